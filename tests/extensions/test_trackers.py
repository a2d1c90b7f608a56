"""Trackers write every attempt once, read back from what the real packages wrote; one that fails stops no run."""

from __future__ import annotations

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, BEST_LAKE, NO_POLICY, Line, Written, files_with

import policygen
from policygen.errors import UsageError
from policygen.extensions.trackers import PACKAGES, trackers
from policygen.runs.listeners import Listener
from policygen.search.resume import resume
from policygen.search.run import carry_out

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4, "stop_at": 2.0, "repairs": 0}
REPLIES = [ALWAYS_DOWN, NO_POLICY, BEST_LAKE]


def tensorboard(folder: Path) -> dict[int, dict[str, list[Any]]]:
    """Steps, their tags, and all values of each, from the event files."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
            for value in event.summary.value:
                text = value.tensor.string_val
                said = text[0].decode().replace("\n    ", "\n").removeprefix("    ") if text else value.simple_value
                found[event.step][value.tag.removesuffix("/text_summary")].append(said)
    return found


def wandb(folder: Path) -> dict[int, dict[str, list[Any]]]:
    from wandb import teardown
    from wandb.proto.wandb_internal_pb2 import Record

    teardown()  # it writes in a process of its own, which may be behind
    found: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    names = set()
    for path in sorted(folder.rglob("*.wandb")):
        for data in records(path.read_bytes()):
            record = Record.FromString(data)
            names |= {record.run.display_name} - {""}
            items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            for name, value in items.items():
                if name != "attempt" and not name.startswith("_"):
                    found[items["attempt"]][name].append(value)
    assert names == {folder.name}
    return found


def records(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, blocks of 32 KB after a header of 7 bytes."""
    at, part = 7, b""
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:
            at += 2**15 - at % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield part
            part = b""


ODD = "50% of a #1? %20 & ü"  # a folder whose name no address can hold as it is
READERS = {"tensorboard": tensorboard, "wandb": wandb}


@pytest.mark.parametrize("name", sorted(READERS))
def test_every_attempt_is_written_once_by_a_run_that_is_interrupted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PACKAGES[name])
    key = "sk-abcdefgh12345678WXYZ"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    replies = [f"{text}\nThe key is {key}." for text in REPLIES]

    def stop(attempt: policygen.Attempt) -> None:
        if attempt.number == 1:
            raise KeyError

    asked = {"llm": Written(replies), "iterations": 3, "out": ODD, **QUICK}
    with pytest.raises(KeyError):
        policygen.run("frozenlake", listeners=trackers([name]), on_attempt=stop, **asked)
    folder = next(path.parent for path in Path(ODD).glob("*/config.toml"))
    again = Written(replies[1:])
    begun = resume(folder, again)
    summary = carry_out(begun, trackers([name, name]))
    found = READERS[name](folder)
    attempts = begun.search.attempts
    assert [step for step in sorted(found) if "attempt/accepted" in found[step]] == [0, 1, 2, 3]
    for attempt in attempts:
        values = found[attempt.number]
        assert all(len(value) == 1 for name, value in values.items() if name != "settings"), values
        assert attempt.verdict in values["verdict"][0]
        assert "attempt/usd" not in values or attempt.number == 0  # not known
        numbers = {"attempt/accepted": float(attempt.accepted), "attempt/episodes": attempt.counts.episodes}
        numbers |= {"attempt/calls": attempt.number, "attempt/tokens_in": 2000 * attempt.number}
        if attempt.score is not None:
            numbers["attempt/score"] = attempt.score.mean
        if attempt.policy is not None:
            numbers["attempt/best"] = attempt.standing.reported_best
            assert values["policy"][0].strip() == attempt.policy.to_text(whole=True).strip()
        assert {name: values[name][0] for name in numbers} == pytest.approx(numbers)
    assert "policy" not in found[2]
    assert found[3]["result/final_score"] == [pytest.approx(summary.final.mean)]
    assert files_with(Path(ODD), key) == []
    assert sorted(path.name for path in Path.cwd().iterdir()) == [ODD]


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_tracker_that_fails_is_one_sentence_and_the_run_is_whole(name: str) -> None:
    pytest.importorskip(PACKAGES[name])

    class InTheWay(Listener):
        def started(self, run: Any) -> None:
            (run.folder / name).symlink_to(Path.cwd())

    listeners = [InTheWay(), *trackers([name])]
    with pytest.warns(UserWarning, match="failed, and the run continues without it") as said:
        result = policygen.run("frozenlake", llm=Written(REPLIES), iterations=3, listeners=listeners, **QUICK)
    sentences = [str(one.message) for one in said if one.category is UserWarning]
    assert len(sentences) == 1
    assert "\n" not in sentences[0]
    assert result.final is not None
    assert len(list(Path.cwd().iterdir())) == 1


def test_a_tracker_that_is_not_installed_is_a_sentence_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r'--track wandb needs an extra: pip install "policygen\[wandb\]"'):
        trackers(["wandb"])


def test_the_runs_of_a_sweep_are_tracked(line: Line) -> None:
    settings = ("iterations=1", "episodes=4", "final_episodes=4", "stop_at=2")
    quick = [word for text in settings for word in ("--set", text)]
    done = line("sweep", "frozenlake", "--seeds", "5,6", *quick, "--out", "swept", "--track", "tensorboard")
    assert done.code == 0, done.err
    assert [sorted(tensorboard(path.parent)) for path in Path("swept").glob("*/config.toml")] == [[0, 1, 2]] * 2
