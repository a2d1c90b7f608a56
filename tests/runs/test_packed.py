"""Long runs: what old attempts keep, and what is read of a long run that goes on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support import LEANING, Written, attempts_of, fenced

import policygen
from policygen.episodes.score import score_of_returns
from policygen.errors import LogbookError
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.logbook import Logbook
from policygen.runs.packed import Packed, Unpacking
from policygen.runs.records import attempt_from_record, attempt_to_record
from policygen.runs.state import RECENT, Assessment, Attempt, Played, Search
from policygen.search.loop import new_search
from policygen.search.resume import load_run, resume

LINES = "left = 0\nright = {}*angle + 0.25*spin"


def attempt(number: int, policy: Policy | None, episodes: int = 20) -> Attempt:
    rng = np.random.default_rng(number)
    returns = rng.normal(size=episodes)
    played = tuple(Played(value, 7, "terminated", (("forward", value),)) for value in returns.tolist())
    score = score_of_returns(returns, tuple(range(episodes)), "test") if policy is not None else None
    return Attempt(number, policy, score, played, accepted=number == 1, verdict="worse", idea=f"Idea {number}.")


def long_search(attempts: int, kind: str = "linear") -> Search:
    task = policygen.load_task("cartpole")
    search = new_search(task, policygen.runs.config.effective_config(task, "cartpole", options={"policy": kind}))
    for number in range(attempts):
        policy = parse(LINES.format(1 + number), task, "linear").policy if number else None
        search.keep(Assessment(attempt(number, policy)))
    return search


def packed_fields(one: Attempt) -> list[str]:
    """The fields of an attempt that are compressed, looked at without unpacking them."""
    names = [name for name in one.__slots__ if isinstance(vars(Attempt)[name], Unpacking)]
    return [name for name in names if vars(Attempt)[name].packed(one) is not None]


def test_attempts_that_no_prompt_tells_of_are_compressed_and_say_the_same() -> None:
    search = long_search(3 * RECENT)
    fields = [packed_fields(one) for one in search.attempts]
    assert fields[0] == []  # random actions
    assert fields[1] == []  # the best
    assert all(set(some) == {"policy", "played"} for some in fields[2:-RECENT])
    assert all(some == [] for some in fields[-RECENT:])
    for old in search.attempts[2:-RECENT:17]:
        whole = attempt(old.number, parse(LINES.format(1 + old.number), search.task, "linear").policy)
        assert old.policy is not None
        assert whole.policy is not None
        assert old.policy.to_text() == whole.policy.to_text()
        assert (old.played, old.digests, old.has_policy, old.failed) == (whole.played, whole.digests, True, False)
        assert attempt_to_record(old) == {
            **attempt_to_record(whole),
            **{name: getattr(old, name) for name in ("best_mean", "best_episodes")},
        }
        assert dataclasses.replace(old, verdict="better").played == whole.played


def test_an_old_attempt_keeps_a_few_hundred_bytes_of_its_policy_and_episodes() -> None:
    search = long_search(RECENT + 60)
    sizes = [len(vars(Attempt)["policy"].packed(one)) for one in search.attempts[2:60]]
    assert max(sizes) < 900  # twenty returns of sixteen digits are two thirds of it


def written_run(attempts: int) -> Path:
    """A run that goes on, of so many attempts."""
    return policygen.run(
        "cartpole",
        llm=Written([fenced(LINES.format(2 + n)) for n in range(attempts)]),
        policy="linear",
        iterations=attempts,
        episodes=2,
        warmup_episodes=2,
        final_episodes=2,
        stop_at=1e9,
    ).folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("workplace"))
        folder = written_run(8).resolve()
    (folder / "summary.json").unlink()
    return folder


def test_a_run_that_goes_on_reads_the_policy_of_its_best_alone(run_folder: Path) -> None:
    logged = Logbook(run_folder).attempts()
    assert all(packed_fields(one) for one in logged[1:])
    # What cannot be read as a policy is no obstacle as long as nobody asks for it, and one sentence then.
    lines = (run_folder / "attempts.jsonl").read_text().splitlines()
    best = max(record["number"] for record in attempts_of(run_folder) if record["accepted"])
    for number in set(range(1, 9)) - {best}:
        record = json.loads(lines[number])
        record["policy"]["equations"] = {"left": "no such name", "right": "0"}
        lines[number] = json.dumps(record)
    whole = (run_folder / "attempts.jsonl").read_bytes()
    try:
        (run_folder / "attempts.jsonl").write_text("\n".join(lines) + "\n")
        loaded = load_run(run_folder)
        assert loaded.search.best is not None
        assert loaded.search.best.number == best
        other = next(one for one in loaded.search.attempts[1:] if one.number != best)
        with pytest.raises(LogbookError, match=r"attempts\.jsonl is damaged: .* policygen resume|resume") as failure:
            _ = other.policy
        assert "\n" not in str(failure.value)
        assert other.has_policy
        assert not other.failed
    finally:
        (run_folder / "attempts.jsonl").write_bytes(whole)


def test_lines_of_an_unfinished_round_go_without_a_policy_being_read(run_folder: Path) -> None:
    log = run_folder / "attempts.jsonl"
    whole = log.read_text()
    log.write_text(whole + '{"torn')
    run = resume(run_folder, Written([]))
    run.logbook.release()
    assert log.read_text() == whole


def test_an_attempt_without_a_text_of_its_policy_is_read() -> None:
    task = policygen.load_task("cartpole")
    record = attempt_to_record(attempt(3, parse(LEANING, task).policy))
    del record["policy"]["text"]
    assert attempt_from_record(record, task).policy == parse(LEANING, task).policy


def test_what_is_packed_is_read_when_asked_and_then_kept_for_a_while() -> None:
    read: list[str] = []

    def reader(name: str, value: object) -> object:
        read.append(name)
        return (name, value)

    packed = Packed({"a": [1.5, float("inf")], "b": "text"}, reader, {})
    assert not read
    assert packed["a"] == packed["a"] == ("a", [1.5, float("inf")])
    assert read == ["a"]
