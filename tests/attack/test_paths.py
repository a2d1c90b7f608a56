"""Names and links from strangers: a run's folder lies directly under --out, and nothing is written through a link."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks import LONG, Tallies
from searched import made
from support import Line

import policygen
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook

pytestmark = pytest.mark.usefixtures("workplace")

NAMES = (
    *("../../outside", "/etc/outside", "..", ".", "", " ", "a/b", "a\\b", "a\0b", "a\nb\r"),
    *("\x1b]0;title\x07", "\x9b2J"),
    *("x" * 5_000, "é" * 300, "\u202egnp.exe", "CON", "-rf", "~", "$HOME", "*", "a:b", "\ud83d"),
)
SMALL: dict[str, Any] = {"iterations": 2, "episodes": 2, "warmup_episodes": 2, "final_episodes": 2, "jobs": 1}
FILES = (
    *("config.toml", "task.json", "templates.json", "attempts.jsonl", "transcript.jsonl", "best.json", "episodes.npz"),
    *("summary.json", "learning_curve.csv", "learning_curve.png", ".lock", ".best.json.part", ".config.toml.part"),
)


def test_every_name_makes_a_folder_directly_under_out(tally: Tallies, tmp_path: Path) -> None:
    held = tally("a hostile task name makes a folder under --out, or a sentence")
    task = policygen.load_task("frozenlake")
    for number, name in enumerate(NAMES):
        out = tmp_path / str(number) / "deep" / "out"
        before = set(tmp_path.rglob("*"))
        with held.one():
            config = RunConfig(task="frozenlake", llm=f"{name}:m" if number % 2 else "builtin")
            logbook = Logbook.create(out, replace(task, name=name), config)
            assert logbook.folder.parent == out
            assert logbook.folder.name.isascii()
            assert logbook.folder.name.isprintable()
            new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
            assert all(path.parent == logbook.folder for path in new)
            logbook.release()


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has everything but its end."""
    folder = made("cartpole", tmp_path_factory.mktemp("runs"), **SMALL, fragility=False)
    (folder / "summary.json").unlink()
    return folder


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
@pytest.mark.parametrize(
    ("what", "name"),
    [
        pytest.param(what, name, marks=pytest.mark.draws if ".png" in name else ())
        for third, what in enumerate(("link", "dangling", "pipe", "folder"), start=-1)
        for name in (FILES if LONG or what == "link" else FILES[third::3])
    ],
)
def test_nothing_is_written_through_what_stands_in_the_place_of_a_file(
    what: str, name: str, unfinished: Path, tally: Tallies, tmp_path: Path, line: Line
) -> None:
    held = tally("a link, pipe or folder in the place of a file is not followed")
    number, readers = FILES.index(name), ("show", "eval", "plot")
    for command in ("resume", *(readers if LONG else readers[number % 3 :][: what == "link"])):
        folder, victim = tmp_path / "stranger" / unfinished.name, tmp_path / "victim"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(unfinished, folder)
        victim.write_text("precious")
        (folder / name).unlink(missing_ok=True)
        if what == "pipe":
            os.mkfifo(folder / name)
        elif what == "folder":
            (folder / name).mkdir()
        else:
            (folder / name).symlink_to(victim if what == "link" else tmp_path / "new")
        more = {"eval": ("--episodes", 2), "plot": ("-o", tmp_path / "c.png")}.get(command, ())
        with held.one():
            said = line(command, folder, *more)
            assert victim.read_text() == "precious", command
            assert not (tmp_path / "new").exists(), command
            assert "Traceback" not in said.err
