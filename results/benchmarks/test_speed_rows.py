"""Rows of the speed table: how they come about and how they are shown, with made-up seconds."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from speed_parts import rows as ratios
from speed_parts.rows import Bar, Missing, Row, faster, within

from policygen.errors import LogbookError

ROWS: list[Row | Missing] = [
    Row("a", 0.001, 0.01, "another", 10.0, 9.0, 11.0, bar=faster(8)),
    Row("b", 0.002, 0.001, "a third", 2.0, 1.5, 2.5, bar=within(1.6)),
    Row(
        "prompt", 8_900, 9_000, "9,000 characters", 0.99, 0.99, 0.99, "characters", Bar(1.0, "at most 9,000 characters")
    ),
    Row("plain", 1e-6, 2e-6, "no bar", 0.5, 0.4, 0.6),
    Missing("c", "it is not installed"),
]


def test_compared_takes_ratios_in_turn_and_says_whether_the_bar_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    monkeypatch.setattr(ratios, "timed", lambda call, times: next(seconds))
    row = ratios.compared("x", int, int, "y", repeats=3, bar=faster(2.5))
    assert (row.ours, row.theirs, row.ratio, row.low, row.high, row.met) == (1.0, 4.0, 3.0, 2.0, 4.0, True)
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    row = ratios.compared("x", int, int, "y", repeats=3, bar=within(0.3))
    assert (row.ratio, row.met) == (pytest.approx(1 / 3), False)
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    assert ratios.compared("x", int, int, "y", repeats=3).met is None


def test_tables_say_every_row_and_why_one_is_missing() -> None:
    lines = ratios.as_markdown(ROWS).splitlines()
    assert [line.count("|") for line in lines[2:]] == [9] * (2 + len(ROWS))
    assert "| a | 1 ms | another | 10 ms | 10 | 9 to 11 | at least 8 x faster | yes |" in lines
    assert "**no**" in lines[5]
    assert "8,900 characters" in lines[6]
    assert "it is not installed" in lines[8]
    read = list(csv.DictReader(io.StringIO(ratios.as_csv(ROWS))))
    assert [row["what"] for row in read] == ["a", "b", "prompt", "plain"]
    assert float(read[0]["ours"]) == 0.001
    record = json.loads(ratios.as_json(ROWS))
    assert len(record["rows"]) == len(ROWS)
    assert record["rows"][4] == {"name": "c", "why": "it is not installed"}


def test_results_are_a_table_a_file_of_figures_and_a_picture(tmp_path: Path) -> None:
    ratios.write_results(ROWS, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["speed.csv", "speed.md", "speed.png"]
    assert (tmp_path / "new" / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_more_is_better_in_the_picture_whatever_the_bar_says() -> None:
    assert ratios._margin(ROWS[0]) == (10 / 8, 9 / 8, 11 / 8)
    assert ratios._margin(ROWS[1]) == (1.6 / 2.0, 1.6 / 2.5, 1.6 / 1.5)
    assert ratios._margin(ROWS[2])[0] == pytest.approx(1 / 0.99)


def test_an_extrapolated_row_keeps_its_ratio() -> None:
    row = ratios.scaled(ratios.compared("x", int, int, "y", repeats=1, bar=faster(1)), 50, "20 episodes")
    assert row.ratio == pytest.approx(row.theirs / row.ours)


def test_an_amount_is_measured_against_its_limit() -> None:
    row = ratios.absolute("prompt", [8_100], 9_000, "9,000 characters", unit="characters")
    assert (row.ratio, row.low, row.high, row.met) == (0.9, 0.9, 0.9, True)
    assert row.bar is not None
    assert row.bar.text == "at most 9,000 characters"
    row = ratios.absolute("x", [0.004, 0.009, 0.006], 5e-3)
    assert (row.ours, row.bar, row.met) == (0.006, Bar(1.0, "at most 0.005 s"), False)
    assert (row.ratio, row.low, row.high) == pytest.approx((1.2, 0.8, 1.8))


def test_results_that_cannot_be_written_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(LogbookError, match=r"cannot make the folder .*taken"):
        ratios.write_results(ROWS, tmp_path / "taken")


def test_what_has_no_bar_and_what_is_not_judged_has_no_verdict() -> None:
    assert ratios.absolute("x", [0.3], 1.0, bar="").met is None
    row = replace(ROWS[1], judged=False)
    assert row.met is None
    assert row.bar == within(1.6)
    lines = ratios.as_markdown([row, ROWS[3]]).splitlines()
    assert ratios.UNJUDGED in lines
    assert lines[-2].endswith("| ours at most 1.6 x | not judged |")
    assert lines[-1].endswith("| 0.4 to 0.6 |  |  |")
    assert ratios.UNJUDGED not in ratios.as_markdown(ROWS)
    assert json.loads(ratios.as_json([row]))["rows"][0]["met"] is None
