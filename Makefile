# `make demo` and `make test` set up what they need: python3 (3.11 or later) and a network for pip are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Packages are compiled when they are first imported, and kept: compiling all of them took half of the installation.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
export PYTHONDONTWRITEBYTECODE =
CORE := $(VENV)/.core
DEV := $(VENV)/.dev

.PHONY: demo test test-local lint check lowest docs notebooks attack bench adviser shaping encode mediating learning finetune-bench first-runs refined-runs chat format clean

demo: $(CORE)
	$(BIN)/policygen run cartpole --seed 0
	$(BIN)/policygen show latest -o policy.png
	@echo
	@echo 'Next:'
	@echo '  $(BIN)/policygen run cartpole --llm openai:gpt-5-mini --max-usd 0.50  # a language model; needs OPENAI_API_KEY'
	@echo '  $(BIN)/policygen run MountainCar-v0      # any Gymnasium environment; a class of your own: MODULE:CLASS'
	@echo '  $(BIN)/policygen report latest           # the page of the newest run: report.html'

test: $(DEV)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(DEV)
	$(BIN)/ruff format --check policygen tests results/benchmarks hatch_build.py envs
	$(BIN)/ruff check policygen tests results/benchmarks hatch_build.py envs
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 policygen  # uses of what Windows lacks

check: lint test

# The lowest versions that pyproject.toml allows, in an environment of their own: they reach the providers, the parser,
# the loop and the command line. Wheels only, as a user of Python 3.11 gets them.
LOWEST := build/lowest
LOWEST_INSTALL := $(BIN)/uv pip install --quiet --resolution lowest-direct --only-binary :all:
lowest: $(DEV)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(LOWEST_INSTALL) --python $(LOWEST) -e '.[dev]'
	POLICYGEN_LOWEST=1 $(LOWEST)/bin/python -m pytest -n 2 --dist worksteal \
		tests/test_dependencies.py tests/llm tests/policies/test_parse.py tests/search/test_loop.py tests/test_cli.py

# The documentation, into docs/_build/html; a warning, such as a broken link, fails.
docs: $(DEV)
	$(PIP_INSTALL) -e '.[docs]'
	$(BIN)/python -m sphinx -E -W --keep-going -q docs docs/_build/html

# Execute the notebooks and store what they show; run it after changing one.
notebooks: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/execute.py

# Models in this process and their training; installs PyTorch, on Linux with CUDA's libraries some gigabytes.
test-local: $(DEV)
	$(PIP_INSTALL) -e '.[finetune]' 'bitsandbytes>=0.46.1'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/extensions/test_local.py tests/extensions/training

# The long attacks on run folders, replies, files and servers; results/benchmarks/attack.md says what was tried and held.
attack: $(DEV)
	POLICYGEN_ATTACK=long $(BIN)/python -m pytest -n 2 tests/attack

# What policygen promises of its speed, measured: results/benchmarks/speed.md. It takes two minutes on two idle cores, and
# `speed.py --quick` little more than one; both fail if a promise is not kept.
bench: $(DEV)
	$(BIN)/python results/benchmarks/speed.py

# What a table given as advice is worth to Q-learning: results/benchmarks/adviser.md.
adviser: $(CORE)
	OMP_NUM_THREADS=1 $(BIN)/python results/benchmarks/adviser.py

# What a potential is worth to Q-learning, and an objective to CMA-ES: results/benchmarks/shaping.md.
shaping: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python results/benchmarks/shaping.py

# Embeddings of texts as features of a linear policy: results/benchmarks/encode.md. Installs a small encoder with its weights.
encode: $(CORE)
	$(PIP_INSTALL) wordllama==0.4.0.post1
	OMP_NUM_THREADS=1 $(BIN)/python results/benchmarks/encode.py

# When to ask a planner, four rooms and five mediators: results/benchmarks/mediating.md.
mediating: $(DEV)
	$(BIN)/python results/benchmarks/mediating.py --llm planner --seed 100 --episodes 100 -o results/benchmarks/mediating.md

# Steps and CPU time until a task's threshold, here and by Stable-Baselines3: results/benchmarks/learning.md. Takes hours,
# and PyTorch: .venv/bin/pip install -e '.[bench]' before.
learning: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python results/benchmarks/learning.py --anew

# A small transformer trained on searches by sft, rft, dpo and grpo: results/benchmarks/finetune.md. Takes an hour; installs
# PyTorch as test-local does.
finetune-bench: $(DEV)
	$(PIP_INSTALL) -e '.[finetune]'
	OMP_NUM_THREADS=1 $(BIN)/python results/benchmarks/finetune.py --anew

# The published table and pictures of results/benchmarks/first_runs*: five seeds of each task, proposals from builtin.
FIRST := build/first_runs
first-runs: $(CORE)
	rm -rf $(FIRST)
	for seed in 0 1 2 3 4; do for task in cartpole frozenlake; do \
		$(BIN)/policygen run $$task --seed $$seed --out $(FIRST)/$$task || exit 1; done; done
	$(BIN)/policygen plot $(FIRST)/cartpole/* -o results/benchmarks/first_runs_cartpole.png
	$(BIN)/policygen plot $(FIRST)/frozenlake/* -o results/benchmarks/first_runs_frozenlake.png
	$(BIN)/policygen compare $(FIRST)/*/* -o $(FIRST)/table.md
	{ echo '# Baseline runs with `builtin`'; echo; \
	  echo '`builtin`, a search without a language model, makes the proposals. A run has at most 20 iterations, 20 episodes'; \
	  echo 'per score, and 20 episodes of random actions at the start. Final scores are over 100 fresh seeds, or exact. Made with'; \
	  echo '`make first-runs`.'; echo; cat $(FIRST)/table.md; } > results/benchmarks/first_runs.md

# The published table of results/benchmarks/refined_runs.md: one proposal of builtin each, tuned by CMA-ES within 8,000
# episodes at most (the number after the task), three seeds. Takes more than an hour on two cores.
REFINED := build/refined_runs
REFINED_TASKS := reacher:7900 acrobot:7900 pendulum:3900 mountaincar:7900 mountaincar-continuous:7900 \
	inverted-double-pendulum:7900 swimmer:3900 hopper:7900 bipedalwalker:3900
refined-runs: $(DEV)
	rm -rf $(REFINED)
	for seed in 0 1 2; do for job in $(REFINED_TASKS); do task=$${job%%:*}; \
		$(BIN)/policygen run $$task --refine cma:$${job##*:} --iterations 1 --max-episodes 8000 --seed $$seed \
			--out $(REFINED)/$$task || exit 1; done; done
	$(BIN)/policygen compare $(REFINED)/*/* -o $(REFINED)/table.md
	{ echo '# Tuned without a language model'; echo; \
	  echo '`builtin`, a search without a language model, makes the only proposal of a run: one linear map over standardised'; \
	  echo 'quantities. CMA-ES tunes it, within 8,000 episodes per run. Final scores are over 100 fresh seeds. The task files'; \
	  echo 'contribute knowledge for mountaincar (energy, the shape of the hill), pendulum (energy, whether the rod is near'; \
	  echo 'upright), reacher (the Jacobian) and the double pendulum (which six of its nine observations matter); the other'; \
	  echo 'policies read all observations.'; \
	  echo 'Made with `make refined-runs`.'; echo; \
	  cat $(REFINED)/table.md; } > results/benchmarks/refined_runs.md

# The first table of results/benchmarks/chat.md: recorded replies of a chat model are played again and tuned anew. After
# the task: how many replies, and how many episodes the run may play.
CHAT := build/chat
CHAT_TASKS := mountaincar-continuous:1:8000 inverted-pendulum:1:8000 inverted-double-pendulum:1:600 reacher:2:8000 \
	frozenlake:1:8000 cliffwalking:1:8000 maze:1:8000 nim:1:8000 mountaincar:1:8000 navigation:2:2000 pong:1:8000 cartpole:1:8000
chat: $(DEV)
	rm -rf $(CHAT)
	for job in $(CHAT_TASKS); do set -- $$(echo $$job | tr : ' '); \
		$(BIN)/policygen run $$1 --llm replay:results/transcripts/$$1 --iterations $$2 --refine auto \
			--max-episodes $$3 --seed 100 --jobs 1 --out $(CHAT)/$$1 || exit 1; done
	$(BIN)/policygen compare $(CHAT)/*/* --by task --suite props15 -o $(CHAT)/table.md

format: $(DEV)
	$(BIN)/ruff format policygen tests results/benchmarks hatch_build.py
	$(BIN)/ruff check --fix policygen tests results/benchmarks hatch_build.py

clean:
	rm -rf $(VENV) build dist docs/_build docs/_generated docs/notebooks docs/results .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "policygen needs Python 3.11 or later; run: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e .
	touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e '.[dev]'
	touch $(CORE) $@
