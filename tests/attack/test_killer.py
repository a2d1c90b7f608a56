"""Runs that are killed or interrupted at random, resumed, and compared with one that was not disturbed; and races."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from attacks import SETTINGS, Tallies, amount
from support import attempts_of, in_a_process, outcome, sentences, start_process, the_run

FILES = {"best.json", "learning_curve.csv", "learning_curve.png", "summary.json", "episodes.npz", "task.json"}
RIVALS = amount(2, 13)


def disturbed(rng: random.Random, out: Path, longest: float, *arguments: object) -> str:
    """Run a command and end it at a random moment; its standard error."""
    said = out.parent / "said"
    process = start_process(*arguments, cwd=out.parent, stderr=said)
    time.sleep(rng.uniform(0, longest))
    process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT)))
    process.wait(120)
    return said.read_text()


def begun_or_resumed(out: Path) -> tuple[object, ...]:
    """The command that goes on with the run under `out`, or begins it."""
    settings = next(out.glob("*/config.toml"), None)
    return ("resume", settings.parent) if settings else ("run", "cartpole", *SETTINGS, "--out", out)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_run_disturbed_at_random_ends_as_one_that_was_not(
    undisturbed: dict[str, Any], tally: Tallies, tmp_path: Path
) -> None:
    held = tally("runs killed and interrupted at random end as undisturbed ones")
    for seed in range(amount(1, 16)):
        rng = random.Random(f"cartpole {seed}")
        out = tmp_path / f"cut{seed}"
        with held.one():
            for _ in range(rng.randint(1, 4)):
                said = disturbed(rng, out, undisturbed["seconds"], *begun_or_resumed(out))
                if "Interrupted." in said:
                    # What says that nothing is lost leaves a folder to go on with, and what it has so far.
                    folder = the_run(out)
                    assert f"policygen resume {folder}" in said
                    assert (folder / "episodes.npz").exists()
            done = in_a_process(*begun_or_resumed(out), cwd=tmp_path)
            assert done.returncode == 0 or "is finished" in done.stderr, done.stderr
            folder = the_run(out)
            assert outcome(folder) == undisturbed["outcome"]
            assert {path.name for path in folder.iterdir()} >= FILES
            assert not list(folder.glob("*.part"))


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_of_many_processes_one_goes_on(undisturbed: dict[str, Any], tally: Tallies, tmp_path: Path) -> None:
    held = tally(f"{RIVALS} processes resume one run, and one does")
    for race in range(amount(1, 3)):
        begun = start_process("run", "cartpole", *SETTINGS, "--out", f"cut{race}", cwd=tmp_path)
        while not list(tmp_path.glob(f"cut{race}/*/attempts.jsonl")):
            time.sleep(0.01)
        begun.send_signal(signal.SIGSTOP)  # alive, however fast it is and however slow the others begin
        folder = the_run(tmp_path / f"cut{race}")
        # A live run is nobody else's, and the lock of one that was killed is nobody's.
        refused = in_a_process("resume", folder, cwd=tmp_path)
        begun.send_signal(signal.SIGKILL)
        begun.wait()
        with held.one():
            assert refused.returncode == 1, refused.stderr
            assert sentences(refused.stderr) == [
                f"Error: {folder} is in use: another process runs or resumes it; wait for it, or stop it first"
            ]
            files = [tmp_path / f"said{number}" for number in range(RIVALS)]
            rivals = [start_process("resume", folder, cwd=tmp_path, stderr=file) for file in files]
            codes = [rival.wait() for rival in rivals]
            said = [file.read_text() for file in files]
            assert codes.count(0) == 1, list(zip(codes, said, strict=True))
            for code, text in zip(codes, said, strict=True):
                assert code == 0 or "is in use" in text or "is finished" in text, text
            assert [a["number"] for a in attempts_of(folder)] == list(range(len(attempts_of(folder))))
            assert outcome(folder) == undisturbed["outcome"]
