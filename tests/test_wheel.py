"""What a user installs: the wheel holds everything, and works where there is no checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support import CHECKOUT, foreign_variables

import policygen


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", *isolated, "--outdir", str(out), str(CHECKOUT)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("policygen-*.whl")
    return built


def test_the_wheel_holds_every_template_task_and_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("templates", "envs"):
        own = [path for path in (CHECKOUT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert own
        assert {f"policygen/{path.relative_to(CHECKOUT).as_posix()}" for path in own} <= names
    for path in (CHECKOUT / "policygen").rglob("*.py"):
        assert path.relative_to(CHECKOUT).as_posix() in names
    assert not any(name.startswith(("tests/", "results/", "notebooks/")) for name in names)


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
    assert json.loads((folder / "summary.json").read_text())["attempts"] == 3
    assert (folder / "best.json").exists()
    assert (folder / "learning_curve.png").exists()
    version = subprocess.check_output([binaries / "policygen", "--version"], cwd=empty, env=clean, text=True)
    assert version == f"policygen, version {policygen.__version__}\n"
