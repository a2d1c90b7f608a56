"""Pages of runs, sweeps and policies: their content, and protection from text in a stranger's run folder.

It tests `extensions.page.sweep`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from support import BEST_LAKE, MALFORMED_LAKE, NO_POLICY, Line, Written, page_of
from sweeping import plan_of

import policygen
from policygen.errors import LogbookError, UsageError
from policygen.extensions.compare.words import number
from policygen.extensions.page import render
from policygen.extensions.page.attempts import MOST_CHARACTERS, turns_of
from policygen.extensions.page.content import read_run
from policygen.extensions.page.pictures import film_of
from policygen.extensions.page.render import RunPage, write_page
from policygen.extensions.sweeps.plan import cells_of, write_plan
from policygen.llm.messages import Exchange, Message, Prompt, Reply
from policygen.runs.config import effective_config
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.search.run import carry_out, start

# A reply that tries whatever a browser would do for it, around a policy that can be read.
HOSTILE = (
    "</pre></details><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\n"
    '<link rel="stylesheet" href="http://198.51.100.7/x.css"><img src="http://198.51.100.7/x.png">\n'
    "<a href=\"javascript:document.title='taken'\">{{ 7*7 }} {% raw %}</a> \x1b[31m \u202e\n"
)
SECRET = "sk-proj-abcdefgh12345678WXYZ"


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a first policy, a repaired one that is best, and a failure, in a folder that a stranger wrote into."""
    out = tmp_path_factory.mktemp("runs")
    replies = [HOSTILE + BEST_LAKE.replace("| 1 | * | left |", "| 1 | * | down |"), MALFORMED_LAKE, BEST_LAKE]
    provider = Written([*replies, f"The key is {SECRET}. {NO_POLICY}"])
    folder = policygen.run(
        "frozenlake", llm=provider, out=out, iterations=3, repairs=1, stop_at=0.9, max_calls=4
    ).folder
    task = json.loads((folder / "task.json").read_text())
    task["about"] = f"A lake. {HOSTILE}"
    (folder / "task.json").write_text(json.dumps(task))
    settings = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(settings + '"<script>document.title=1</script>" = "<b>1</b>"\n')
    return folder


@pytest.fixture(scope="module")
def page(a_run: Path) -> str:
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("OPENAI_API_KEY", SECRET)
        return page_of(a_run)


def words(page: str) -> str:
    """What a reader sees, as one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.split("</style>")[1])).split())


def test_the_page_says_what_was_controlled_what_came_out_and_how_sure_that_is(page: str, a_run: Path) -> None:
    said = words(page)
    for part in (
        "FrozenLake-v1 with is_slippery = True",
        "observed values meaning square 0 to 15 4 * row + column row floor(square / 4) a feature of the task",
        "left, down, right, up",
        "0.740",
        "exact: computed from the environment's transition table",
        "best known score 0.740",
    ):
        assert part in said
    assert re.search(r"random actions 0\.0\d\d \[", said)
    assert policygen.Policy.load(a_run).to_text(whole=True).splitlines()[4] in unescape(page)


def test_every_attempt_says_what_it_changed_and_why_it_was_kept_or_not(page: str) -> None:
    said = words(page)
    for part in (
        *("the first policy", "became the best", "against the best", "no policy"),
        *("Changes from attempt 1, the best before it", "of 16 cells have another action"),
    ):
        assert part in said
    assert re.search(r'<span class="plus">\+ \| *1 *\|[^<]*left', page)


def test_every_prompt_and_reply_is_on_the_page_with_repairs_folded(page: str, a_run: Path) -> None:
    text = unescape(page)
    for exchange in Logbook(a_run).transcript.exchanges():
        assert exchange.reply.text.splitlines()[-1].replace(SECRET, "***") in text  # type: ignore[union-attr]
        assert exchange.prompt.messages[-1].content[-200:] in text
    assert page.count("You design small, readable control policies") == 1
    assert "System message: the same as in attempt 1." in words(page)
    assert len(re.findall(r'<details class="repairs"><summary>1 more request', page)) == 1


def test_costs_settings_versions_and_the_commands_that_repeat_it(page: str, a_run: Path) -> None:
    said = words(page)
    for part in (
        *("8,000 in, 400 out", "cost unknown", "no command can repeat it", "iterations 3", "gymnasium"),
        f"policygen run frozenlake --llm replay:{a_run} --policy table",
    ):
        assert part in said
    command = read_run(a_run).replay.split()
    assert command[command.index("--iterations") + 1] == "3"
    assert {"repairs=1", "stop_at=0.9"} <= set(command)
    assert "jobs" not in " ".join(command)


def test_nothing_of_a_run_folder_becomes_markup_and_keys_are_hidden(page: str) -> None:
    assert SECRET not in page
    assert "The key is ***." in page
    body = page.split("</style>")[1]
    assert "<script" not in body
    assert not re.search(r"<(img|link|a|iframe)[^>]*(198\.51|javascript|onerror)", body)
    assert "&lt;script&gt;document.title=" in body
    assert "{{ 7*7 }} {% raw %}" in unescape(body)
    assert "\\x1b[31m \\u202e" in unescape(body)
    assert "\x1b" not in page
    addresses = re.findall(r'(?:src|href|srcset)="([^"]*)', page)
    assert addresses
    assert all(address.startswith(("data:image/", "#")) for address in addresses)


def test_a_page_is_small_and_what_has_none_is_refused(page: str, a_run: Path, tmp_path: Path) -> None:
    assert len(page) < 400_000
    with pytest.raises(UsageError, match=r"end the name in \.html"):
        write_page(a_run, tmp_path / "r.pdf")
    with pytest.raises(LogbookError, match="is not a run or a sweep"):
        write_page(tmp_path, tmp_path / "r.html")


def test_an_unfinished_run_says_so_and_one_that_has_only_begun_has_a_page(a_run: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("config.toml", "task.json"):
        (begun / name).write_bytes((a_run / name).read_bytes())
    assert "no policy has been found yet" in words(page_of(begun))
    lines = (a_run / "attempts.jsonl").read_text().splitlines(keepends=True)
    (begun / "attempts.jsonl").write_text("".join(lines[:2]))
    (begun / "transcript.jsonl").write_bytes((a_run / "transcript.jsonl").read_bytes())
    said = words(page_of(begun))
    for part in ("the run is not finished", "unfinished", "not scored yet"):  # the second reply is there, and waits
        assert part in said


def test_prompts_that_are_too_much_for_a_page_are_left_out_but_for_those_of_the_best() -> None:
    size = MOST_CHARACTERS // 20
    exchanges = [
        Exchange(n, 0, Prompt((Message("user", f"{n:02}" + "x" * (size - 2)),)), Reply("r", "m"), 1)
        for n in range(1, 24)
    ]
    turns = turns_of(exchanges, frozenset((1,)))
    assert [number for number, (turn,) in turns.items() if turn.left_out] == [2, 3, 4]
    assert all(turn.reply is not None and turn.reply.text == "r" for (turn,) in turns.values())


def test_where_the_environment_cannot_be_played_the_page_says_why_it_has_no_film(a_run: Path) -> None:
    policy = policygen.Policy.load(a_run)
    film, words = film_of(replace(policy, task=replace(policy.task, gym_id="Nowhere-v0")))
    assert film is None
    assert words.startswith("No film: ")


def test_a_sweep_has_a_page_with_its_tables_and_curves(tmp_path: Path, line: Line) -> None:
    sweep = tmp_path / "s"
    sweep.mkdir()
    plan = plan_of("frozenlake", seeds=[0, 1])
    write_plan(sweep, plan)
    task = policygen.load_task("frozenlake")
    for cell in cells_of(plan):
        settings = {"seed": cell.seed, "iterations": 2}
        carry_out(start(task, effective_config(task, "frozenlake", options=settings), sweep, name=cell.key))
    said = line("report", "s", "-o", "s.html")
    assert said.code == 0, said.err
    assert said.out.startswith("s.html (0.")
    page = (tmp_path / "s.html").read_text()
    for part in ("all 2 runs are finished", "Scores", "Best policies", "frozenlake-builtin-s1"):
        assert part.lower() in words(page).lower()
    assert page.count("data:image/svg+xml") == 1
    (sweep / "frozenlake-builtin-s0" / "summary.json").unlink()
    assert "1 of 2 runs are finished" in words(page_of(sweep))


def test_a_policy_has_a_page_with_its_score_pictures_and_requirements(line: Line, workplace: Path) -> None:
    (workplace / "steady.txt").write_text("left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n")
    text = (Path(__file__).parents[3] / "envs" / "cartpole.toml").read_text().replace('"cartpole"', '"mine"', 1)
    (workplace / "mine.toml").write_text(text + '\n[[requirements]]\nname = "rail"\nalways = "abs(position) <= 0.1"\n')
    assert "add --task" in line("report", "steady.txt").err
    said = line("report", "steady.txt", "--task", "mine.toml", "-o", "p.html")
    assert said.code == 0, said.err
    page = (workplace / "p.html").read_text()
    score = policygen.score(policygen.parse((workplace / "steady.txt").read_text(), "cartpole", "linear"))
    for part in (f"{number(score.mean)} mean return over 100 fresh", "requirement rail", "10*angle"):
        assert part in words(page)
    assert "Attempts" not in words(page)
    assert len(re.findall("data:image/(?:svg|png)", page)) == 4  # actions and signals, each also narrow
    assert page.count("data:image/gif") == 1


def test_a_run_with_a_page_writes_it_after_attempts_and_it_reloads_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloads = []

    def look(attempt: policygen.Attempt) -> None:
        pages = list(tmp_path.glob("*/report.html"))
        reloads.append([b'http-equiv="refresh"' in page.read_bytes() for page in pages])
        for page in pages:
            page.unlink()
        monkeypatch.setattr(render, "SHARE_OF_TIME", 100.0 if attempt.number else 0.0)

    quick = {"iterations": 2, "episodes": 4, "final_episodes": 4}
    folder = policygen.run("frozenlake", out=tmp_path, listeners=[RunPage()], on_attempt=look, **quick).folder
    assert reloads == [[True], [], [True]]  # writing had no time left after attempt 1
    assert b'http-equiv="refresh"' not in (folder / "report.html").read_bytes()


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    class InTheWay(Listener):
        def started(self, run: RunView) -> None:
            (run.folder / "report.html").mkdir()

    quick = {"iterations": 1, "episodes": 4, "final_episodes": 4}
    with pytest.warns(UserWarning, match="RunPage failed, and the run continues without it"):
        done = policygen.run("frozenlake", out=tmp_path, listeners=[InTheWay(), RunPage()], **quick)
    assert done.final is not None
