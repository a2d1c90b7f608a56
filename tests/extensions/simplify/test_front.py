"""The front of score against size: which scores are compared, which attempt is chosen, and its export."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import Line, Written, fenced, page_of

import policygen
from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score
from policygen.errors import LogbookError, PolicyError, UsageError
from policygen.extensions.simplify.front import front_of, smallest_within
from policygen.policies.parse import parse
from policygen.runs.attempt import Attempt, Comparison, Standing, saved
from policygen.runs.logbook import Logbook
from policygen.tasks.load import load_task

CARTPOLE = load_task("cartpole")
LARGE = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position"
SMALL, FALLING = "left = 0\nright = angle + 0.25*spin", "left = 0\nright = angle"


TEXTS = [LARGE, SMALL, FALLING, "nothing"]


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a large policy, one as good and smaller, one still smaller that falls, and a reply without one."""
    few = dict.fromkeys(("iterations", "episodes", "warmup_episodes", "final_episodes"), 4)
    llm, out = Written(map(fenced, TEXTS)), tmp_path_factory.mktemp("runs")
    others = {"repairs": 0, "stop_at": 1e9, "fragility": False, "jobs": 1, "seed": 300}
    return policygen.run("cartpole", llm=llm, out=out, policy="linear", **few, **others).folder


def tried(number: int, text: str, returns: list[float], *, accepted: bool = False, **more: object) -> Attempt:
    """An attempt with these returns on the first seeds that all attempts share."""
    score = Score(sum(returns) / len(returns), 1.0, None, False, "vector", tuple(returns), tuple(range(len(returns))))
    policy = parse(fenced(text), CARTPOLE, "linear").policy
    return Attempt(number, saved(policy), score, accepted=accepted, **more)


def test_the_size_of_a_saved_policy_is_that_of_the_policy(a_run: Path) -> None:
    sizes = [(one.saved.size, one.policy.size) for one in Logbook(a_run).attempts() if one.saved and one.policy]
    assert sizes == [(11, 11), (6, 6), (4, 4)]


def test_the_smallest_of_equal_policies_is_chosen_and_a_larger_distance_allows_a_worse_one(a_run: Path) -> None:
    attempts, summary = Logbook(a_run).attempts(), Logbook(a_run).summary()
    front = front_of(attempts, summary)
    assert front is not None
    assert (front.best.attempt.number, front.basis, front.best.value) == (1, "final score", 500)
    assert [(one.attempt.number, one.size) for one in front.members] == [(3, 4), (2, 6)]
    assert [one.attempt.number for one in front.all] == [1, 2, 3]
    for within in ("0", "0%", "1%", 3):
        assert smallest_within(a_run, within)[0].number == 2
    # Random actions score about 20 and the falling policy some 40 of 500.
    assert smallest_within(a_run, "90%")[0].number == 2
    chosen, facts = smallest_within(a_run, "99%")
    assert chosen.number == 3
    assert attempts[0].score is not None
    points = 0.99 * (500 - attempts[0].score.value)
    assert f"of 3 policies the smallest within {points:.4g} points (99%) of the best: 4 numbers and names" in facts[0]
    assert attempts[3].comparison.gain is not None
    assert f"difference from the best {attempts[3].comparison.gain:+.4g} on 4 paired search episodes" in facts[1]
    assert facts[2] == "The best, attempt 1: 11 numbers and names, final score 500."


def test_a_score_that_more_episodes_refuted_does_not_count() -> None:
    attempts = [
        Attempt(0, None, None),
        tried(1, LARGE, [8.0, 8.0], accepted=True),
        # Two lucky episodes: the run then played four and found it worse than the best.
        tried(2, SMALL, [9.0, 9.0, 1.0, 1.0], comparison=Comparison(-3.0, 4, 0.9)),
        tried(3, FALLING, [7.0, 7.0], comparison=Comparison(-1.0, 2, 0.9), standing=Standing(8.0, 2, 6.0, 2)),
    ]
    front = front_of(attempts)
    assert front is not None
    assert front.basis == "score so far"
    assert [(one.gain, one.episodes, one.value) for one in front.all] == [(0, 2, 6), (-3, 4, 3), (-1, 2, 5)]
    assert [one.attempt.number for one in front.members] == [3, 1]
    # Before the best there was no comparison with it: neither the paired nor all episodes may flatter.
    later = [*attempts[:3], tried(3, LARGE, [9.5, 9.5], accepted=True, standing=Standing(9.5, 2, 9.0, 2))]
    front = front_of(later)
    assert front is not None
    assert [one.gain for one in front.all] == [-1.5, 5.0 - 9.5, 0.0]
    won = replace(later[3], comparison=Comparison(0.25, 80, 0.01))  # a comparison with the best before it
    front = front_of([*later[:3], won])
    assert front is not None
    assert (front.all[0].gain, front.all[0].episodes) == (-0.25, 80)


def test_what_violates_a_requirement_more_often_or_played_other_episodes_is_no_choice() -> None:
    best = tried(1, LARGE, [8.0, 8.0], accepted=True, standing=Standing(8.0, 2))
    broken = Violations("rail", True, 0.0, 2, 2)
    others = tried(2, SMALL, [8.0, 8.0], violations=(broken,)), tried(3, FALLING, [9.0, 9.0])
    assert others[1].score is not None
    elsewhere = replace(others[1], score=replace(others[1].score, seeds=(7, 8)), standing=Standing(8.0, 2))
    front = front_of([Attempt(0, None, None), best, others[0], elsewhere])
    assert front is not None
    assert front.all == front.members == (front.best,)
    assert front_of([]) is front_of([Attempt(0, None, None)]) is None


def test_every_target_exports_the_chosen_policy_and_says_which(a_run: Path, line: Line) -> None:
    small = policygen.parse(SMALL, "cartpole", "linear")
    for target in ("c", "python", "st", "json", "latex"):
        said = line("export", a_run, "--to", target, "--smallest-within", "1%", "-o", f"p.{target}x")
        assert said.code == 0, said.err
        assert f"Run {a_run.name}, attempt 2, of 3 policies the smallest within" in said.err
        written = Path(f"p.{target}x").read_text()
        assert written == policygen.export(a_run, target, smallest_within="1%")  # type: ignore[arg-type]
        plain = policygen.export(small, target)  # type: ignore[arg-type]
        assert len(written.splitlines()) - len(plain.splitlines()) in (0, 3)  # the head of source code has its origin
        assert written.splitlines()[-5:] == plain.splitlines()[-5:]
        assert ("attempt 2, of 3 policies the smallest" in written) == (target in ("c", "python", "st"))
        assert str(a_run) not in written
    trusted = line("export", a_run, "--to", "python", "--smallest-within", "1%", "--trust")
    assert trusted.code == 0, trusted.err
    assert trusted.out.splitlines()[-5:] == Path("p.pythonx").read_text().splitlines()[-5:]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_a_folder_of_c_gets_the_chosen_policy_and_its_test(a_run: Path, line: Line) -> None:
    said = line("export", a_run, "--to", "c", "--smallest-within", "1%", "-o", "c")
    assert said.code == 0, said.err
    subprocess.run(["cc", "-o", "t", "c/cartpole.c", "c/cartpole_test.c", "-lm"], check=True)
    assert subprocess.run(["./t"], check=False).returncode == 0
    assert (
        "attempt 2, of 3 policies the smallest" in Path("c/cartpole.h").read_text() + Path("c/cartpole.c").read_text()
    )


def test_what_is_undefined_or_no_distance_is_one_sentence(a_run: Path, line: Line, tmp_path: Path) -> None:
    for text in ("one", "-1%", "nan", "inf", "", "%"):
        with pytest.raises(UsageError, match=r"^cannot choose within `.*` of the best: write a share as 1%, or"):
            smallest_within(a_run, text)
    run = shutil.copytree(a_run, tmp_path / "run")
    lines = (run / "attempts.jsonl").read_text().splitlines(keepends=True)
    (run / "summary.json").unlink()
    (run / "attempts.jsonl").write_text("".join(lines[:1]))
    with pytest.raises(PolicyError, match="has no policy with a score yet"):
        smallest_within(run, "1%")
    # A best policy that is no better than random actions.
    attempts = Logbook(a_run).attempts()
    assert attempts[1].score is not None
    (run / "attempts.jsonl").write_text("")
    for one in (replace(attempts[0], score=replace(attempts[1].score, mean=501.0)), *attempts[1:]):
        Logbook(run).record_attempt(one, Logbook(a_run).buffer(0))
    said = line("export", run, "--to", "c", "--smallest-within", "1%")
    assert said.code == 2
    assert "is undefined in" in said.err
    assert "give points of the score instead, as in 5" in said.err
    assert line("export", run, "--to", "c", "--smallest-within", "1").code == 0
    for more in (["--attempt", "1"], ["--plant"], ["--task", "cartpole"]):
        assert "chooses a policy of a run" in line("export", run, "--to", "c", "--smallest-within", "1%", *more).err
    assert "chooses a policy" in line("export", run, "--to", "minari", "--smallest-within", "1%").err
    for other in (policygen.Policy.load(a_run), a_run / "best.json"):
        with pytest.raises((UsageError, LogbookError)):
            policygen.export(other, "c", smallest_within="1%")


def test_the_page_has_the_front_and_show_the_size(a_run: Path, line: Line) -> None:
    page = page_of(a_run)
    assert page.count('alt="Score against size"') == 1
    rows = page.partition('id="size"')[2].partition("</section>")[0].split("<tr>")[2:]
    assert [row.partition('href="#attempt-')[2][0] for row in rows] == ["3", "2", "1"]
    assert "1</a>, the best</td><td>11</td><td>500.0</td>" in rows[2]
    assert "Family tree" not in page
    assert "# size: 11 numbers and names, without features and bins of the task" in line("show", a_run).out
