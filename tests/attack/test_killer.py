"""Real runs, killed or interrupted at random moments again and again: what comes out is what an undisturbed run finds.

The long form (POLICYGEN_ATTACK=long) kills many.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks import SETTINGS, Tally, amount
from support import in_a_process, outcome, start_process, summary_of, the_run

FILES = {"best.json", "learning_curve.csv", "learning_curve.png", "summary.json", "episodes.npz", "task.json"}


def disturbed(rng: random.Random, out: Path, longest: float, *arguments: object) -> str:
    """Run a command and end it at a random moment; its standard error."""
    said = out.parent / "said"
    process = start_process(*arguments, cwd=out.parent, stderr=said)
    time.sleep(rng.uniform(0, longest))
    process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT)))
    process.wait(120)
    return said.read_text()


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_run_disturbed_at_random_ends_as_one_that_was_not(
    undisturbed: dict[str, Any], tally: Callable[[str], Tally], tmp_path: Path
) -> None:
    held = tally("runs killed and interrupted at random end as undisturbed ones")
    for seed in range(amount(1, 16)):
        rng = random.Random(f"cartpole {seed}")
        out = tmp_path / f"cut{seed}"
        with held.one():
            for _ in range(rng.randint(1, 4)):
                folders = list(out.glob("*/config.toml"))
                arguments = ("resume", folders[0].parent) if folders else ("run", "cartpole", *SETTINGS, "--out", out)
                said = disturbed(rng, out, undisturbed["seconds"], *arguments)
                if "Interrupted." in said:
                    # What says that nothing is lost leaves a folder to go on with, and what it has so far.
                    folder = the_run(out)
                    assert f"policygen resume {folder}" in said
                    assert "finished" in summary_of(folder)
            folders = list(out.glob("*/config.toml"))
            last = ("resume", folders[0].parent) if folders else ("run", "cartpole", *SETTINGS, "--out", out)
            done = in_a_process(*last, cwd=tmp_path)
            assert done.returncode == 0 or "is finished" in done.stderr, done.stderr
            folder = next(out.glob("*/config.toml")).parent
            assert outcome(folder) == undisturbed["outcome"]
            assert {path.name for path in folder.iterdir()} >= FILES
            assert not list(folder.glob("*.part"))
