"""Requirements in a run: the judge, tuning, prompts, records, pages and comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import ChatServer
from support import Line, fenced, page_of, summary_of, the_run, transcript_of

from policygen.runs.logbook import Logbook
from policygen.runs.notes import violations_of

ENVS = Path(__file__).parents[2] / "envs"
RAIL = '\n[[requirements]]\nname = "rail"\nalways = "abs(position) <= 0.5"\n'
SOFT = '\n[[requirements]]\nname = "upright"\nfinally = "abs(angle) < 0.05"\nhard = false\n'
# The first drifts away, slowly; the second stays near the centre and falls early.
DRIFTING = fenced("left = 0", "right = 10*angle + 3*spin")
FALLING_EARLY = fenced("left = 0", "right = 1")
SHORT = ("--policy", "equations", "--episodes", 5, "--set", "final_episodes=20", "--repairs", 0, "--jobs", 1)


@pytest.fixture
def pole(workplace: Path) -> Path:
    path = workplace / "mine.toml"
    head, *rest = (ENVS / "cartpole.toml").read_text().split("\n", 1)
    assert head == 'name = "cartpole"'
    path.write_text("\n".join(['name = "mine"', *rest]) + RAIL + SOFT)
    return path


@pytest.mark.usefixtures("pole")
def test_the_best_of_a_run_meets_the_requirement_and_every_view_counts_it(line: Line) -> None:
    with ChatServer([FALLING_EARLY, DRIFTING, FALLING_EARLY]) as server:
        model = ("--llm", "compatible:m", "--base-url", server.openai_url)
        said = line("run", "mine.toml", *SHORT, "--iterations", 2, *model)
    assert said.code == 0, said.err
    folder = the_run(Path("results"))
    first, _, drifting = Logbook(folder).attempts()
    assert [one.name for one in violations_of(first)] == ["rail", "upright"]
    assert drifting.score.mean > 20  # far longer than the best, and refused
    assert not drifting.accepted
    assert "worse: it violates `rail` in " in said.out
    assert "; violates rail in " in said.out
    assert "violations of rail: 0 of 20 episodes (upper 95% bound 14%), worst 0." in said.out
    assert "violations of upright: 20 of 20 episodes, worst 0." in said.out
    final = {one["name"]: one for one in summary_of(folder)["final"]["violations"]}
    assert (final["rail"]["violated"], final["upright"]["violated"]) == (0, 20)
    asked = [entry["messages"][-1]["content"] for entry in transcript_of(folder)]
    assert "- rail: always abs(position) <= 0.5\n- upright: finally abs(angle) < 0.05 (not hard)" in asked[0]
    assert "- rail (always abs(position) <= 0.5): met in all 5 episodes, nearest value 0." in asked[1]
    assert "around the first violation" in asked[1]
    scored = line("eval", folder, "--episodes", 20)
    assert "requirement rail: violated in 0 of 20 episodes (upper 95% bound 14%)" in scored.out
    assert "violations of rail</th><td>0 of 20 episodes (upper 95% bound 14%)" in page_of(folder)
    compared = line("compare", folder, "-o", "table.md")
    assert compared.code == 0, compared.err
    assert "| upright violated in 100% of episodes |" in Path("table.md").read_text()


@pytest.mark.usefixtures("pole")
def test_a_run_says_that_its_best_policy_misses_a_hard_requirement(line: Line) -> None:
    with ChatServer([DRIFTING]) as server:
        model = ("--llm", "compatible:m", "--base-url", server.openai_url)
        said = line("run", "mine.toml", *SHORT, "--iterations", 1, *model)
    (rail,) = (text for text in said.out.splitlines() if text.startswith("violations of rail: "))
    assert rail.endswith("; the requirement allows 1% and is not met")
    assert "is not met" not in said.out.replace(rail, "")  # the other one is not hard


@pytest.mark.usefixtures("pole")
def test_tuning_meets_requirements_and_a_resumed_run_does_the_same(line: Line) -> None:
    tuned = ("--refine", "cma:300", "--iterations", 1, "--seed", 300)
    assert line("run", "mine.toml", *SHORT, *tuned).code == 0
    folder = the_run(Path("results"))
    best = Logbook(folder).attempts()[1]
    assert violations_of(best)[0].violated == 0
    assert best.score.mean > best.tuned.proposed_score.mean
    (folder / "summary.json").unlink()
    log = folder / "attempts.jsonl"
    text = log.read_bytes()
    log.write_bytes(text[: text.index(b"\n") + 1])
    assert line("resume", folder).code == 0
    assert violations_of(Logbook(folder).attempts()[1]) == violations_of(best)
