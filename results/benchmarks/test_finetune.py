"""The benchmark of trainings: replies of plain search are shortened without changing what they do, and its tables."""

from __future__ import annotations

from pathlib import Path

import finetune
import numpy as np
import pytest
from measurements import Measurements

import policygen

REPLY = """A random step.
```
let n_angle = (angle - 0.01269)/0.09359
let n_spin = (spin + 0.08192)/0.8482
left = 0*n_angle + 0*n_spin + 0
right = 3.225*n_angle - 1.034e-01*n_spin + 0.6606
```
"""


def test_a_shortened_reply_is_the_same_policy_but_for_rounding() -> None:
    short = finetune.shortened(REPLY)
    assert short == "```\nleft = 0\nright = +34*angle -0.12*spin +0.21\n```"
    policies = [policygen.parse(text, "cartpole", "linear") for text in (REPLY, short)]
    observations = np.random.default_rng(0).normal(scale=[1, 1, 0.1, 1], size=(1000, 4))
    actions = [policy.act(observations) for policy in policies]
    assert np.mean(actions[0] == actions[1]) > 0.97


def test_tables_average_over_seeds_and_leave_out_means_that_do_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measurements("none", finetune.COLUMNS)
    measured.file, measured.page = tmp_path / "none.csv", tmp_path / "none.md"
    for seed in range(200, 205):
        row = {"on": "cartpole", "readable": 0.5, "mean": "100", "solved": 0, "distinct": 3, "memory": 600}
        if seed == 204:
            row |= {"readable": 0.0, "mean": ""}
        measured.once(("cartpole", "rft", seed), lambda row=row: [row])
    monkeypatch.setattr(finetune, "MEASURED", measured)
    measured.page.write_text("text\n\n| other |\n| --- |\n\n| task |\n\nend\n")
    measured.write_table(finetune.lines())
    table = measured.page.read_text()
    assert (
        "| cartpole | sft, then rft | 5 | 40 ± 28 | 100 / 100 / 100 / 100 | 0 ± 0 | 3 ± 0 |  | 600 |\n\nend\n" in table
    )
    assert table.startswith("text\n\n| other |\n| --- |\n\n| task | training |")
