"""Disks that are full or read-only: a sentence, nothing lost, and the run goes on elsewhere as if nothing had been."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attacks import LONG, SETTINGS, Tallies
from support import command, environment, in_a_process, outcome, sentences, the_run

SIZES = range(4, 124, 12) if LONG else (64,)  # KB: full at the first prompt, in the transcript, at the last episodes


def with_a_disk(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script that may mount what no other process sees."""
    shell = ["unshare", "-rm", "sh", "-ec", script]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(shell, cwd=cwd, env=environment(), timeout=300, check=False, **streams)


@pytest.fixture
def disk(tmp_path: Path) -> None:
    """Skip a test where this process may not mount a disk of its own."""
    able = sys.platform.startswith("linux") and shutil.which("unshare") is not None
    if not able or with_a_disk("mkdir -p disk && mount -t tmpfs -o size=64k none disk", tmp_path).returncode:
        pytest.skip("this system lets nobody mount a disk")


def typed(*arguments: object) -> str:
    return shlex.join(command(*arguments))


@pytest.mark.usefixtures("disk")
def test_a_full_disk_loses_nothing(undisturbed: dict[str, Any], tmp_path: Path, tally: Tallies) -> None:
    held = tally("a run on a full disk stops with a message, and resumes from a copy with the same result")
    for size in SIZES:
        with held.one():
            kept = tmp_path / f"kept{size}"
            run = typed("run", "cartpole", *SETTINGS, "--out", "disk/out")
            done = with_a_disk(
                f"mount -t tmpfs -o size={size}k none disk; {run} || code=$?; cp -r disk/out {kept}; exit $code",
                tmp_path,
            )
            assert done.returncode == 1, f"{size} KB: {done.stderr}"
            said = sentences(done.stderr)
            assert "No space left on device; free some space or write elsewhere" in said[0], said
            folders = list(kept.iterdir())
            if size < 12:
                assert not folders  # not even its settings: there is no run
                continue
            assert said[1].startswith("Nothing is lost; continue with: policygen resume disk/out/"), said
            resumed = in_a_process("resume", folders[0], cwd=tmp_path)
            assert resumed.returncode == 0, f"{size} KB: {resumed.stderr}"
            assert outcome(folders[0]) == undisturbed["outcome"]


@pytest.mark.skipif(not LONG, reason="takes its time: with `make attack`")
@pytest.mark.usefixtures("disk")
def test_a_read_only_folder_is_read_and_not_resumed(tmp_path: Path, tally: Tallies) -> None:
    held = tally("a read-only run folder can be looked at, and resuming it gives an error message")
    assert in_a_process("run", "frozenlake", *SETTINGS, "--out", "made", cwd=tmp_path).returncode == 0
    folder = the_run(tmp_path / "made")
    (folder / "summary.json").unlink()
    theirs = Path("disk") / folder.name
    prepared = f"mount -t tmpfs none disk; cp -r {folder} disk; mount -o remount,ro disk; "
    for line in (("show", theirs), ("plot", theirs, "-o", "curves.png"), ("prompt", theirs)):
        with held.one():
            done = with_a_disk(prepared + typed(*line), tmp_path)
            assert done.returncode == 0, done.stderr
    unwritable = f"cannot write to {theirs} (Read-only file system); copy the folder to where you may write"
    for line, sentence in (
        (("resume", theirs), unwritable),
        (("run", "frozenlake", *SETTINGS, "--out", "disk/out"), "Read-only file system; choose another --out"),
    ):
        with held.one():
            done = with_a_disk(prepared + typed(*line), tmp_path)
            assert done.returncode == (2 if "--out" in line else 1)  # 2: choose another place
            (said,) = sentences(done.stderr)
            assert sentence in said
