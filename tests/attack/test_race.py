"""Many processes at one run folder: one works, every other is told so in a sentence and changes nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks import SETTINGS, Tally, amount
from support import attempts_of, in_a_process, outcome, sentences, start_process, the_run

RIVALS = amount(2, 13)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_of_many_processes_one_goes_on(
    undisturbed: dict[str, Any], tally: Callable[[str], Tally], tmp_path: Path
) -> None:
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
