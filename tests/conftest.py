"""What the tests share: a workplace without keys, addresses or files from outside, and the command line in-process."""

from __future__ import annotations

import functools
import gc
import os
import ssl
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest
from searched import made
from support import Line, Said, foreign_variables

from policygen import cli
from policygen.extensions.plants import tuning
from policygen.extensions.plants.plant import FITTED_PLANT
from policygen.extensions.plots.curves import LearningCurve
from policygen.runs.attempt import best_of
from policygen.runs.logbook import Logbook
from policygen.search import runner
from policygen.tasks import warmup

PICTURE = "learning_curve.png"

# This process and those that tests begin keep what they compile: without that, each of them compiles the whole package
# again, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Certificates are read once: that takes longer than most requests here, and no server here speaks TLS.
ssl.create_default_context = functools.cache(ssl.create_default_context)
os.environ["POLICYGEN_NO_CACHE"] = "1"  # what is measured of an environment is kept for its own tests only
os.fsync = lambda file: None  # tests end processes, never the machine, and it takes longer than most writes
gc.disable()  # until all is imported and collected


@pytest.fixture
def workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty working directory, and an environment without keys, server addresses and proxies."""
    before = dict(os.environ)
    for name in foreign_variables():
        os.environ.pop(name, None)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def line(workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """Runs the command line in this process, in the workplace: seconds less than a process of its own takes."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it

    def typed(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["policygen", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0 if code is None else 1, said.out, said.err)

    return typed


@pytest.fixture
def quickly_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without a task file is looked at for few steps, where its bins do not matter."""
    monkeypatch.setattr(warmup, "STEPS", 200)
    monkeypatch.setattr(warmup, "LONGEST", 400)


@pytest.fixture(scope="session")
def plant_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on pendulum whose best attempt was tuned in a plant; tests only read it."""
    settings = {"refine": "model", "max_steps": 1_500, "iterations": 1, "final_episodes": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "INNER_EPISODES", 400)
        patch.setattr(tuning, "MOST_ROUNDS", 2)
        folder = made("pendulum", tmp_path_factory.mktemp("plants"), **settings)
    best = best_of(Logbook(folder).attempts())
    assert best is not None
    assert FITTED_PLANT.of(best) is not None
    return folder


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of these tests."""
    config.addinivalue_line("markers", "draws: runs in this process end with a picture of their learning curve")
    config.addinivalue_line("markers", "perturbs: runs in this process end with a score under perturbations")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Never look for garbage in what was imported and collected: it stays, and a look takes longer than most tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)  # tests make much that soon goes by itself
    gc.enable()


def pytest_sessionfinish() -> None:
    """End what the tests began."""
    forks.stop()


@pytest.fixture(autouse=True)
def _runs_end_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in this process ends without what would take longer than a small search, unless a test is marked for it."""
    if request.node.get_closest_marker("draws") is None:
        monkeypatch.setattr(LearningCurve, "finished", lambda self, summary: (self._run.folder / PICTURE).touch())
    if request.node.get_closest_marker("perturbs") is None:
        monkeypatch.setattr(runner, "FRAGILITY", ())
