"""The wheel holds everything that a user needs, and works where there is no checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from support import CHECKOUT, foreign_variables

import policygen


def build(out: Path, *options: str, source: Path = CHECKOUT, address: str = "") -> Path:
    """The only package that a build of the source writes into `out`."""
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "build", *options, *isolated, "--outdir", str(out), str(source)],
        capture_output=True,
        text=True,
        env={**os.environ, "POLICYGEN_REPOSITORY": address},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("policygen-*")
    return built


def metadata_of(wheel: Path) -> Message:
    """Name, addresses and readme (the payload) of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        return message_from_string(file.read(name).decode())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "--wheel")


def test_the_wheel_holds_every_template_task_and_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("templates", "envs"):
        own = [path for path in (CHECKOUT / folder).rglob("*") if path.suffix in (".toml", ".j2")]
        assert len(own) > 10
        assert {f"policygen/{path.relative_to(CHECKOUT).as_posix()}" for path in own} <= names
    for path in (CHECKOUT / "policygen").rglob("*.py"):
        assert path.relative_to(CHECKOUT).as_posix() in names
    assert not any(name.startswith(("tests/", "results/", "notebooks/")) for name in names)
    assert "policygen/envs/gymnasium/Walker2d-v5.toml" in names
    assert "policygen/envs/harvest.py" not in names


def test_a_release_has_addresses_and_links_that_work_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    local = metadata_of(wheel)
    assert (local.get_all("Project-URL"), local.get_payload()) == (None, readme)
    address = "https://git.example/owner/policygen"
    # From the source distribution, as `python -m build` makes the wheel of a release.
    with tarfile.open(build(tmp_path / "sdist", "--sdist", address=address)) as file:
        file.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # from 3.11.4 on
    (source,) = tmp_path.glob("policygen-*")
    released = metadata_of(build(tmp_path / "wheel", "--wheel", source=source))
    addresses = dict(str(line).split(", ") for line in released.get_all("Project-URL", []))
    assert addresses["Source"] == address
    tag = f"v{policygen.__version__}"
    text = str(released.get_payload())
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", text)
    for picture, link in [*links, *(("", addresses[name]) for name in ("Documentation", "Changelog"))]:
        if link.startswith(address):
            start = f"{address}/{'raw' if picture else 'blob'}/{tag}/"
            assert link.startswith(start)
            assert (CHECKOUT / link.removeprefix(start).partition("#")[0]).exists(), link
        else:
            assert link.startswith(("https://", "#")), link
    assert sum(bool(picture) for picture, _ in links) == 1
    back = text.replace(f"{address}/raw/{tag}/", "").replace(f"{address}/blob/{tag}/", "")
    assert back == readme  # nothing but the links differs


def test_an_installed_wheel_runs_far_from_any_checkout(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    binaries = home / ("Scripts" if os.name == "nt" else "bin")
    python = binaries / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    # Its dependencies are those of the tests; policygen itself is not found there: a .pth adds no other .pth.
    (purelib / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    install = ["-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--no-compile", "--quiet"]
    done = subprocess.run([sys.executable, *install, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    empty = tmp_path / "empty"
    empty.mkdir()
    clean = {k: v for k, v in os.environ.items() if k not in (*foreign_variables(), "PYTHONPATH")}
    where = "import policygen; print(policygen.__file__)"
    imported = subprocess.check_output([python, "-c", where], cwd=empty, env=clean, text=True).strip()
    assert Path(imported).is_relative_to(purelib)
    assert not Path(imported).is_relative_to(CHECKOUT)

    run = [binaries / "policygen", "run", "frozenlake", "--iterations", "3"]
    done = subprocess.run(run, cwd=empty, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [path.name for path in empty.iterdir()] == ["results"]
    (folder,) = (empty / "results").iterdir()
    assert json.loads((folder / "summary.json").read_text())["stopped"] == "all 3 iterations are done"
    assert (folder / "best.json").exists()
    assert (folder / "learning_curve.png").exists()
    version = subprocess.check_output([binaries / "policygen", "--version"], cwd=empty, env=clean, text=True)
    assert version == f"policygen, version {policygen.__version__}\n"


def test_every_file_that_states_the_version_states_the_same() -> None:
    places = {
        "pyproject.toml": r'^version = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "README.md": r"To cite policygen (\S+) \(MIT",
        "CHANGELOG.md": r"^## (\S+) - ",
    }
    for name, pattern in places.items():
        found = re.search(pattern, (CHECKOUT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, name
        assert found[1] == policygen.__version__, name
