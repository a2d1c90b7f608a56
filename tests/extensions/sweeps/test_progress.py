"""What a sweep shows: a table with progress and time left, lines elsewhere, and what to do next."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from sweeping import plan_of

from policygen.extensions.sweeps.conduct import open_sweep
from policygen.extensions.sweeps.progress import SweepTerminal, closing_words, resume_command
from policygen.extensions.sweeps.worker import CellResult, Note, Progress

pytestmark = pytest.mark.usefixtures("workplace")


def test_the_table_has_a_row_a_task_and_says_what_is_done_and_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = open_sweep(Path("swept"), plan_of("nim", "cartpole", seeds=[1, 2]))
    terminal = SweepTerminal(sweep)
    sweep.running["cartpole-builtin-s1"] = Progress("cartpole-builtin-s1", 3, 20, 412.25)
    sweep.skipped["nim-builtin-s1"] = 0.5
    sweep.outcomes["nim-builtin-s2"] = finished = CellResult("nim-builtin-s2", "finished", "", 1.0, 75.0)
    assert closing_words(sweep)[0] == "1 of 4 runs finished, 1 were finished before, 2 are not finished"
    console = Console(file=io.StringIO(), width=100)
    console.print(terminal._table())
    rows = [row for row in console.file.getvalue().splitlines() if row.strip()]  # type: ignore[attr-defined]
    assert rows[1].split() == ["nim,", "builtin", "2/2", "0.75"]
    assert rows[2].split() == ["cartpole,", "builtin", "0/2", "seed", "1:", "3/20,", "412.2"]
    assert rows[3].split()[:2] == ["all", "2/4"]
    assert "left" in rows[3]
    terminal.tell(finished)
    terminal.tell(Note("cartpole-builtin-s1", "waiting 2 s \x1b[31m"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("   2/4  nim-builtin-s2: 1  (1 min 15 s), about ")
    assert second == "cartpole-builtin-s1: waiting 2 s \\x1b[31m"
    terminal.tell(CellResult("cartpole-builtin-s1", "interrupted"))
    assert " s)" not in capsys.readouterr().out  # nobody measured how long it took
    sweep.lock.release()


def test_the_way_on_names_every_option_that_the_manifest_does_not_keep() -> None:
    plan = plan_of("nim", llms=["manual:chats here"], settings=("iterations=1",))
    sweep = open_sweep(Path("a sweep"), plan, overrides=("base_url=http://here:1/v1?a&b", "jobs=2"))
    sweep.cache, sweep.track, sweep.executor_options = Path("an swers"), ("wandb",), "--workers 3"
    assert resume_command(sweep) == (
        "policygen resume 'a sweep' --base-url 'http://here:1/v1?a&b' --set jobs=2 --trust --cache 'an swers' "
        "--track wandb --workers 3"
    )
    sweep.lock.release()
