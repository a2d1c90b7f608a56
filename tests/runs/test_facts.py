"""The facts of a run: every figure with unit and basis, of runs finished, in progress, and without a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from drawn import a_run
from gymnasium.wrappers import TimeLimit
from support import BEST_LAKE, LEANING, NO_POLICY, Line, Written, figure, page_of

import policygen
from policygen.episodes.score import Score, number
from policygen.episodes.trajectory import Trajectory
from policygen.runs.facts import read_record, run_facts
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.runs.notes import NOTES, Note

pytestmark = pytest.mark.usefixtures("workplace")


def value(table: pd.DataFrame, name: str, section: str = "result") -> object:
    (found,) = table[(table["section"] == section) & (table["name"] == name)]["value"]
    return found


@pytest.mark.perturbs
def test_a_table_has_every_figure_with_its_interval_and_its_basis() -> None:
    run = policygen.run("cartpole", iterations=2, episodes=4, final_episodes=6, warmup_episodes=4, fragility=True)
    table = policygen.facts(run)
    assert list(table.columns) == ["section", "name", "value", "low", "high", "basis"]
    assert not table.duplicated(["section", "name"]).any()
    numbers = table[[isinstance(one, int | float) for one in table["value"]]]
    assert (numbers["basis"] != "").all()
    final = table.iloc[0]
    assert (final["name"], final["value"]) == ("final score", run.final.mean)
    assert (final["low"], final["high"]) == run.final.ci95
    assert final["basis"] == "mean return over 6 fresh episodes that the search never saw, 95% interval"
    assert value(table, "episodes", "costs") == figure(run, "episodes")
    assert value(table, "score", "attempt 0") == run.attempts[0].score.mean
    assert value(table, "without perturbations") == pytest.approx(sum(run.final.returns) / 6)
    assert policygen.facts(run.folder).equals(table)
    assert [str(one) for one in run.figures] == [str(one) for one in run_facts(read_record(run.folder))]


def test_a_run_in_progress_has_the_best_so_far_and_the_same_costs_as_at_its_end() -> None:
    seen: list[pd.DataFrame] = []

    class Looks(Listener):
        def started(self, run: RunView) -> None:
            self.run = run

        def attempted(self, attempt: policygen.Attempt) -> None:
            seen.append(policygen.facts(self.run))

    run = policygen.run("frozenlake", llm=Written([BEST_LAKE, NO_POLICY]), iterations=2, repairs=0, listeners=[Looks()])
    before, after = seen[0].iloc[0], seen[-1].iloc[0]
    assert (before["name"], before["value"]) == ("best so far", None)
    assert before["basis"] == "(no policy has been found yet)"
    assert after["value"] == run.final.mean
    assert after["basis"] == "(exact) mean return; the run is not finished"
    for name in ("requests", "tokens in", "attempts", "episodes"):
        assert value(seen[-1], name, "costs") == value(policygen.facts(run), name, "costs"), name


def test_a_run_without_a_policy_says_so_and_an_exact_score_has_no_interval(tmp_path: Path) -> None:
    run = policygen.run("frozenlake", llm=Written([NO_POLICY]), iterations=1, repairs=0)
    first = run.figures[0]
    assert str(first) == "unknown (no reply contained a policy)"
    exact = Score(0.74, 0.4, (0.74, 0.74), True, "exact")
    (fact, *_) = run_facts(read_record(a_run(tmp_path, [0.74], final=exact)))
    assert (fact.low, str(fact)) == (None, "0.74 (exact) mean return, from the environment's transition table")


class Tripping(gym.Env[np.ndarray, int]):
    """Every step costs 1, a trip 0.5; one action in twelve trips."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(12)

    def __init__(self, gain: float = -1.0) -> None:
        self.gain = gain

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        trips = int(action) == 11
        return self._observation(), -0.5 if trips else self.gain, trips, False, {}

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)


@pytest.mark.parametrize(("gain", "learned"), [(-1.0, True), (1.0, False)])
def test_a_policy_that_ends_its_episodes_because_that_pays_is_a_warning(gain: float, learned: bool, line: Line) -> None:
    few = {"iterations": 1, "episodes": 8, "final_episodes": 8, "fragility": False, "policy": "linear"}
    run = policygen.run(lambda: TimeLimit(Tripping(gain), 60), **few)
    warned = [str(one) for one in run.figures if one.name == "early ends"]
    assert bool(warned) is learned
    if learned:
        assert run.final.mean == -0.5
        length = number(float(np.mean(run.attempts[0].played.lengths)))
        said = f"episodes end after 1 step, random ones after {length} (means over 8 episodes): ending early pays here"
        assert warned == [said]
        assert f"early ends: {said}" in str(run)
        assert "ending early pays here" in page_of(run.folder)


def test_numbers_have_four_digits_and_thousands_are_separated() -> None:
    words = list(map(number, (9359.94, 12345.6, 347.96, 0.00012345, -0.0, -63.022, float("nan"))))
    assert words == ["9,360", "12,346", "348", "0.0001234", "0", "-63.02", "nan"]


def test_a_note_of_another_file_is_shown_on_the_page_and_in_compare(
    monkeypatch: pytest.MonkeyPatch, line: Line
) -> None:
    def changes(policy: policygen.Policy | None, played: Sequence[Trajectory]) -> int:
        return sum(int((one.actions[1:] != one.actions[:-1]).sum()) for one in played)

    monkeypatch.setattr(NOTES, "_entries", dict(NOTES._entries))
    Note("action_changes", int, make=changes, heading="changes of the action", number=float)
    few = {"iterations": 1, "episodes": 4, "final_episodes": 4}
    runs = [policygen.run("cartpole", llm=Written([LEANING]), seed=seed, **few) for seed in (0, 1)]
    best = [changes(None, played_of(run)) for run in runs]
    table = policygen.facts(runs[0])
    assert value(table, "changes of the action", "notes") == best[0]
    assert value(table, "changes of the action", "attempt 0") > 0
    assert Logbook(runs[0].folder).attempts() == list(runs[0].attempts)
    assert f"changes of the action: {number(best[0])} " in str(runs[0])
    assert f'<th scope="row">changes of the action</th><td>{number(best[0])} ' in page_of(runs[0].folder)
    compared = policygen.compare(*(run.folder for run in runs))
    assert compared.table["changes of the action"].tolist() == [sum(best) / 2]
    assert "| changes of the action |" in line("compare", *(run.folder for run in runs)).out


def played_of(run: policygen.RunResult) -> list[Trajectory]:
    """The scored episodes of the best policy."""
    best = run.attempts[run.best.number]
    return [one.trajectory for one in Logbook(run.folder).buffer().of_attempt(best.number, len(best.played))]
