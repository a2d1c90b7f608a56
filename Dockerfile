# docker build -t policygen . && docker run --rm -v "$PWD:/work" policygen run cartpole
FROM python:3.13-slim
RUN pip install --no-cache-dir uv
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY policygen policygen
COPY templates templates
COPY envs envs
RUN uv pip install --system --no-cache ".[render]"
RUN useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["policygen"]
