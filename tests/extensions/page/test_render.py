"""The page of a run: its content, protection from untrusted text in a run folder, and pages of runs in progress."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from support import BEST_LAKE, MALFORMED_LAKE, NO_POLICY, Line, Written, page_of

import policygen
from policygen.errors import PathError, UsageError
from policygen.extensions.page import render
from policygen.extensions.page.render import RunPage, write_page
from policygen.runs.logbook import Logbook

# A reply that tries whatever a browser would do for it, around a policy that can be read.
HOSTILE = (
    "</pre></details><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\n"
    '<link rel="stylesheet" href="http://198.51.100.7/x.css"><img src="http://198.51.100.7/x.png">\n'
    "<a href=\"javascript:document.title='taken'\">{{ 7*7 }} {% raw %}</a> \x1b[31m \u202e\n"
)
SECRET = "sk-proj-abcdefgh12345678WXYZ"
QUICK = {"episodes": 4, "final_episodes": 4}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a first policy, a repaired one that is best, and a failure, in a folder with hostile texts."""
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


def test_the_page_shows_task_scores_policy_attempts_costs_and_settings(page: str, a_run: Path) -> None:
    said = words(page)
    for part in (
        "FrozenLake-v1 with is_slippery = True",
        "observation square 0 to 15 4 * row + column feature row floor(square / 4)",
        "action action left, down, right, up",
        "0.7402",
        "(exact) mean return, from the environment's transition table",
        "best known score 0.7402",
        *("became the best", "failed", "no policy", "Changes from the best policy before it"),
        *("tokens in 8,000", "tokens out 400", "USD unknown", "iterations 3", "gymnasium"),
        "its own model or environment, so no command can repeat it",
        f"policygen run frozenlake --llm replay:{a_run} --set policy=table",
    ):
        assert part in said
    assert re.search(r"random actions 0\.\d+ \[", said)
    assert policygen.Policy.load(a_run).to_text(whole=True).splitlines()[4] in unescape(page)
    assert re.search(r'<span class="plus">\+ \| *1 *\|[^<]*left', page)
    assert len(re.findall(r'<img src="data:image/', page)) == 3  # curve, map and worst episode
    assert 'http-equiv="refresh"' not in page
    command = re.findall(r"<pre>(policygen run .*)</pre>", page)[-1]
    assert {"iterations=3", "repairs=1", "stop_at=0.9"} <= set(command.split())
    assert "jobs" not in command


def test_every_prompt_and_reply_is_on_the_page(page: str, a_run: Path) -> None:
    text = unescape(page)
    for exchange in Logbook(a_run).transcript.exchanges():
        assert exchange.reply.text.splitlines()[-1].replace(SECRET, "***") in text  # type: ignore[union-attr]
        assert exchange.prompt.messages[-1].content[-200:] in text
    assert text.count("<summary>Repair request") == 1


def test_nothing_of_a_run_folder_becomes_markup_and_keys_are_hidden(page: str) -> None:
    assert SECRET not in page
    assert "The key is ***." in page
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in page
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


def test_the_command_writes_it_and_refuses_what_is_no_run(a_run: Path, workplace: Path, line: Line) -> None:
    said = line("report", a_run, "-o", "r.html")
    assert (said.code, said.out[:10]) == (0, "r.html (0."), said.err
    with pytest.raises(UsageError, match=r"end the name in \.html"):
        write_page(a_run, workplace / "r.pdf")
    with pytest.raises(PathError, match="is not a run"):
        write_page(workplace, workplace / "r.html")


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
    for part in ("the run is not finished", "unfinished", "in progress"):  # the second reply is there, and waits
        assert part in said


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

    folder = policygen.run(
        "frozenlake", out=tmp_path, listeners=[RunPage()], on_attempt=look, iterations=2, **QUICK
    ).folder
    assert reloads == [[True], [], [True], [True]]  # writing had no time left after attempt 1
    assert b'http-equiv="refresh"' not in (folder / "report.html").read_bytes()
