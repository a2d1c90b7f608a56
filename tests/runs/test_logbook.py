"""The folder of a run: its files read back as written, and damage is reported."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from searched import made
from support import FALLING, LEANING, NO_POLICY, Written, figure, lines_of

import policygen
from policygen.errors import LogbookError
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply
from policygen.llm.store import Transcript
from policygen.runs.config import RunConfig
from policygen.runs.facts import CURVE_COLUMNS
from policygen.runs.logbook import FolderInUse, Logbook, lock_folder

pytestmark = pytest.mark.usefixtures("workplace")

PROMPT = Prompt((Message("system", "a\u2028b"), Message("user", "c | d\n\n\té 漢 \u0085")))


def a_run(texts: list[str], task: str = "cartpole", **settings: Any) -> policygen.RunResult:
    chosen = {"iterations": len(texts), "episodes": 5, "final_episodes": 5, "repairs": 0, **settings}
    return policygen.run(task, llm=Written(texts), **chosen)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    settings = {"iterations": 1, "episodes": 5, "final_episodes": 5, "fragility": False}
    return made("cartpole", tmp_path_factory.mktemp("made"), Written([LEANING]), **settings)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run, which a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def new(out: str = "out", **settings: Any) -> Logbook:
    task = policygen.load_task("frozenlake")
    return Logbook.create(Path(out), task, RunConfig(task="frozenlake", **settings))


def test_exchanges_come_back_as_they_were_and_each_long_message_is_written_once(tmp_path: Path) -> None:
    reply = Reply("| 0 | left |\u2028", "m", 3, None, None, 0.5, True, "hm\n", "length")
    system = Message("system", "s" * 1_000)
    prompts = [Prompt((system, Message("user", f"{number} " * 500))) for number in (0, 1, 1)]
    exchanges = [Exchange(number, 0, prompt, reply, 2) for number, prompt in enumerate([PROMPT, *prompts])]
    exchanges.append(FailedExchange(4, 1, PROMPT, 6, "gave up"))
    path = tmp_path / "transcript.jsonl"
    written = Transcript(path)
    for exchange in exchanges:
        written.record(exchange)
    assert path.read_text().count(system.content) == 1
    assert list(Transcript(path).exchanges()) == exchanges


def test_every_run_gets_a_folder_of_its_own() -> None:
    folders = {new().folder for _ in range(5)}
    assert len(folders) == 5
    assert all(folder.name.startswith("frozenlake-builtin-") for folder in folders)
    assert "-replay-" in new(llm="replay:a/b/c").folder.name  # and not the address


def test_the_curve_has_running_totals_and_an_empty_cell_for_what_there_is_not() -> None:
    result = a_run([LEANING, NO_POLICY, FALLING])
    with open(result.folder / "learning_curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CURVE_COLUMNS
    assert [row["attempt"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["calls"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["tokens_in"] for row in rows] == ["0", "2000", "4000", "6000"]
    assert [row["usd"] for row in rows] == ["0", "", "", ""]  # the price is unknown from the first reply on
    assert [row["failed"] for row in rows] == ["0", "0", "1", "0"]
    assert rows[2]["score"] == ""
    assert rows[2]["best_search"] == rows[1]["best_search"] == rows[1]["score"]
    assert (
        float(rows[2]["best"])
        == float(rows[1]["best"])
        == pytest.approx(result.attempts[1].standing.validated_mean, rel=1e-5)
    )
    assert float(rows[3]["score"]) == pytest.approx(result.attempts[3].score.mean, rel=1e-5)
    assert int(rows[3]["episodes"]) == figure(result, "episodes")


def test_a_torn_last_line_is_passed_over_and_one_before_others_is_damage() -> None:
    logbook = new()
    logbook.transcript.record(FailedExchange(1, 0, PROMPT, 1, "é"))
    path = logbook.folder / "transcript.jsonl"
    whole = path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole + whole[:cut])
        assert len(list(logbook.transcript.exchanges())) == 1
        logbook.transcript.record(FailedExchange(2, 0, PROMPT, 1, "later"))
        with pytest.raises(LogbookError, match=r"line 2 is not JSON.*it records the run's spending: restore"):
            list(logbook.transcript.exchanges())
        path.write_bytes(whole + whole[:cut])
        logbook.clear_up([])
        logbook.transcript.record(FailedExchange(2, 0, PROMPT, 1, "later"))
        assert [line["attempt"] for line in lines_of(path)] == [1, 2]  # every line can be read again by any reader


def test_a_request_without_an_answer_is_counted_and_one_with_an_answer_only_once() -> None:
    logbook = new()
    for attempt, request in ((1, 0), (1, 0), (1, 1)):
        logbook.transcript.record_sent(attempt, request)
    logbook.transcript.record(Exchange(1, 1, PROMPT, Reply("x", "m"), 1))
    logbook.transcript.record_sent(2, 0)
    logbook.transcript.record_sent(2, 0)
    logbook.transcript.record(Exchange(2, 0, PROMPT, Reply("x", "m"), 2))
    logbook.transcript.record_sent(3, 0)
    found = list(logbook.transcript.exchanges())
    assert [(type(e).__name__, e.attempt, e.requests) for e in found] == [
        ("FailedExchange", 1, 1),
        ("FailedExchange", 1, 1),
        ("Exchange", 1, 1),
        ("Exchange", 2, 2),
        ("FailedExchange", 3, 1),
    ]


def test_every_file_says_its_form_and_another_version_is_refused_in_a_sentence(folder: Path) -> None:
    for name, read in (
        ("config.toml", lambda book: book.config()),
        ("task.json", lambda book: book.task()),
        ("templates.json", lambda book: book.templates()),
        ("summary.json", lambda book: book.summary()),
        ("attempts.jsonl", lambda book: book.attempts()),
        ("transcript.jsonl", lambda book: list(book.transcript.exchanges())),
    ):
        path = folder / name
        text = path.read_text()
        later = re.sub(r"(policygen-[a-z]+)/\d", r"\1/3", text)
        assert later != text, name
        path.write_text(later)
        with pytest.raises(LogbookError, match=f"{name} was written by a later version.*update policygen"):
            read(Logbook(folder))
        path.write_text(text)
    settings = folder / "config.toml"
    text = settings.read_text()
    for mark in ("", 'format = "policygen-run/1"\n'):
        settings.write_text(text.replace('format = "policygen-run/2"\n', mark))
        with pytest.raises(
            LogbookError, match=r"^\S*config.toml was written by an earlier version of policygen[^\n]*$"
        ):
            Logbook(folder).config()


def test_damage_is_one_sentence(folder: Path) -> None:
    first = (folder / "attempts.jsonl").read_text().split("\n")[0]
    tree = '{"number": 1, "policy": {"kind": "tree"}, "score": null, "played": [], "problems": []}'
    for name, content, fault, read in (
        ("attempts.jsonl", '{"number": 0}\n', "at attempt 0", Logbook.attempts),
        ("attempts.jsonl", f'{first}\n{{"number": 1}}\n', "after attempt 0", Logbook.attempts),
        ("attempts.jsonl", f"{first}\n{tree}\n", "after attempt 0", Logbook.attempts),
        ("transcript.jsonl", '{"attempt": 1}\n', "a request", lambda book: list(book.transcript.exchanges())),
        ("summary.json", "{", "", Logbook.summary),
        ("task.json", "{ torn", "", Logbook.task),
        ("templates.json", '{"texts": {"system": 3}}', "", Logbook.templates),
        ("config.toml", "colour = 3\n" + (folder / "config.toml").read_text(), ".*colour", Logbook.config),
    ):
        (folder / name).write_text(content)
        with pytest.raises(LogbookError, match=rf"^[^\n]*{name} is damaged: {fault}[^\n]*$"):
            read(Logbook(folder))


def test_a_run_that_does_not_begin_leaves_no_folder_but_the_users_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Logbook, "write_settings", interrupted)
    with pytest.raises(KeyboardInterrupt):
        policygen.run("cartpole", iterations=1, out="out")
    assert list(Path("out").iterdir()) == []
    kept = Path("out/mine/thesis.txt")
    kept.parent.mkdir()
    kept.write_text("mine")
    with pytest.raises(KeyboardInterrupt):
        Logbook.create(Path("out"), policygen.load_task("cartpole"), RunConfig(task="cartpole"), name="mine")
    assert kept.read_text() == "mine"
    assert {path.name for path in kept.parent.iterdir()} <= {"thesis.txt", ".lock"}


def test_a_folder_in_which_another_process_begins_a_run_is_left_alone() -> None:
    folder = Path("out/cell")
    folder.mkdir(parents=True)
    (folder / "task.json").write_text("theirs")
    with lock_folder(folder), pytest.raises(FolderInUse, match="is in use: another process runs or resumes it"):
        Logbook.create(Path("out"), policygen.load_task("cartpole"), RunConfig(task="cartpole"), name="cell")
    assert (folder / "task.json").read_text() == "theirs"
