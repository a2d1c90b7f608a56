"""Datasets: which requests of runs become rows, what each is credited with, and what a stranger's folder cannot do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    MALFORMED_LAKE,
    Line,
    Written,
    attempts_of,
    fenced,
    lines_of,
    transcript_of,
)

import policygen
from policygen.llm.messages import Prompt, Reply
from policygen.runs.steering import Steering

WORDS = "Keep away from row 3."


class Commented(Written):
    """Replies in order; the user comments while the model writes the second one."""

    folder = Path()

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        reply = super().complete(prompt, max_output_tokens)
        if len(self.prompts) == 2:
            (run,) = self.folder.iterdir()
            Steering(run).say(WORDS, once=True)
        return reply


def a_run(out: Path, *texts: str, provider: Written | None = None, **settings: Any) -> Path:
    settings = {"iterations": len(texts), "stop_at": 2.0, "episodes": 4, "final_episodes": 5, **settings}
    return policygen.run("frozenlake", llm=provider or Written(texts), out=out, **settings).folder


def rows_of(line: Line, *arguments: object, form: str = "sft", output: str = "d.jsonl") -> list[dict[str, Any]]:
    done = line("dataset", *arguments, "-o", output, "--form", form)
    assert done.code == 0, done.err
    rows = lines_of(Path(output))
    Path(output).unlink()
    return rows


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_a_row_is_an_accepted_reply_to_the_messages_sent(line: Line) -> None:
    provider = Written([ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT])
    run = a_run(Path("results"), *provider.texts, provider=provider)
    first, second = rows_of(line, run)
    assert first["prompt"] == [{"role": m.role, "content": m.content} for m in provider.prompts[0].messages]
    assert (first["completion"], second["completion"]) == (said(ALWAYS_DOWN), said(BEST_LAKE))
    random, down, lake, _ = attempts_of(run)
    assert second | {"prompt": 0, "completion": 0, "incumbent": 0} == {
        **{"prompt": 0, "completion": 0, "incumbent": 0, "task": "frozenlake", "run": run.name, "attempt": 2},
        **{"model": "by-hand", "kind": "table", "score": lake["score"]["mean"], "accepted": True, "problems": ""},
        "normalised": pytest.approx(1.0, abs=1e-4),
    }
    assert (first["incumbent"], first["score"]) == ("", down["score"]["mean"])
    assert policygen.parse(second["incumbent"], "frozenlake") == policygen.parse(ALWAYS_DOWN, "frozenlake")
    assert 0 < random["score"]["mean"] < 0.1
    done = line("dataset", "latest", "-o", "d.jsonl", "--form", "sft")
    assert done.out == "d.jsonl: 2 rows: 2 frozenlake (table)\nleft out: 1 not accepted\n"


def test_the_top_share_counts_in_each_task(line: Line) -> None:
    run = a_run(Path("results"), ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT)
    assert [row["completion"] for row in rows_of(line, run, "--top", 0.3)] == [said(BEST_LAKE)]
    assert len(rows_of(line, run, "--top", 1)) == 3


def test_a_reply_is_credited_with_its_score_before_tuning(line: Line) -> None:
    weak = fenced("left = 0", "right = 0.3*angle + 0.02*spin + 0.2*position")
    llm = Written([weak])
    settings = {"llm": llm, "iterations": 1, "episodes": 4, "final_episodes": 2, "policy": "linear"}
    run = policygen.run("cartpole", refine="cma:60", out="results", **settings).folder
    (attempt,) = attempts_of(run)[1:]
    assert attempt["proposed_score"]["mean"] < attempt["score"]["mean"]
    (row,) = rows_of(line, run)
    assert row["score"] == attempt["proposed_score"]["mean"]
    assert row["kind"] == "linear"
    assert row["completion"] == said(weak)


def test_pairs_have_one_prompt_and_a_better_and_a_worse_reply(line: Line) -> None:
    texts = [MALFORMED_LAKE, BEST_LAKE, ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE]
    run = a_run(Path("results"), *texts, iterations=2, candidates=2)
    rows = rows_of(line, run, form="dpo")
    assert [(row["chosen"], row["rejected"]) for row in rows] == [
        (said(ALWAYS_DOWN), said(MALFORMED_LAKE)),  # the other candidate of the round
        (said(BEST_LAKE), said(MALFORMED_LAKE)),  # its repair
        (said(BEST_LAKE), said(ALWAYS_RIGHT)),
    ]
    sent = transcript_of(run)
    assert [len(exchange["messages"]) for exchange in sent] == [2, 4, 2, 2, 2]
    assert [len(row["prompt"]) for row in rows] == [2, 2, 2]
    assert "attempt 1 of" in rows[1]["prompt"][-1]["content"]
    assert ["north" in row["problems"] for row in rows] == [True, True, False]
    assert all(row["score"] > 0 for row in rows)


def test_prompts_for_a_reward_have_what_it_needs(line: Line) -> None:
    run = a_run(Path("results"), MALFORMED_LAKE, ALWAYS_DOWN, BEST_LAKE, iterations=2)
    rows = rows_of(line, run, form="grpo")
    assert [set(row) for row in rows] == [{"prompt", "task", "run", "attempt", "kind", "incumbent"}] * 2
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    reward = policygen.reward("frozenlake")
    revision = fenced("| 0 | 0 | left |")  # it can be read only where there is a policy to revise
    rewards = reward(completions=[said(revision)] * 2, prompts=columns.pop("prompt"), **columns)
    assert rewards[0] == -0.1 < 0 < rewards[1]
    done = line("dataset", run, "-o", "g.jsonl", "--form", "grpo")
    assert "left out: 1 repairs" in done.out


def test_whole_runs_are_held_out_and_copies_are_on_one_side_only(line: Line) -> None:
    runs = [a_run(Path("results"), BEST_LAKE, ALWAYS_DOWN, seed=seed) for seed in range(4)]
    copy = Path("copy")
    shutil.copytree(runs[0], copy)
    done = line("dataset", *runs, copy, "-o", "d.jsonl", "--form", "grpo", "--test", 0.25)
    assert done.code == 0, done.err
    kept, held_out = lines_of(Path("d.jsonl")), lines_of(Path("d.test.jsonl"))
    assert len(kept) + len(held_out) == 8
    assert {row["run"] for row in held_out}.isdisjoint({row["run"] for row in kept})
    assert len({row["run"] for row in held_out}) == 1
    assert "left out: 2 repeated" in done.out
    prompts = [{json.dumps(row["prompt"]) for row in rows} for rows in (kept, held_out)]
    assert prompts[0].isdisjoint(prompts[1])
    done = line("dataset", runs[0], "-o", "e.jsonl", "--form", "grpo", "--test", 0.25)
    assert done.code == 2
    assert "no task has two" in done.err
    assert not Path("e.jsonl").exists()


def test_what_a_user_said_is_left_out_unless_asked_for(line: Line) -> None:
    provider = Commented([ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT, ALWAYS_DOWN])
    Commented.folder = Path("results")
    run = a_run(Path("results"), *provider.texts, provider=provider)
    assert [row["attempt"] for row in rows_of(line, run, form="grpo")] == [1, 2]
    rows = rows_of(line, run, "--comments", form="grpo")
    assert [WORDS in row["prompt"][-1]["content"] for row in rows] == [False, False, True, False]
    done = line("dataset", run, "-o", "d.jsonl", "--form", "grpo")
    assert "2 since a user's comment" in done.out
    assert WORDS not in Path("d.jsonl").read_text()


def test_a_sweep_stands_for_its_runs_but_links_in_it_are_not_followed(
    line: Line, swept_in_this_process: None, tmp_path: Path
) -> None:
    each = ("--set", "episodes=4", "--set", "final_episodes=2", "--iterations", 2)
    assert line("sweep", "frozenlake", "--seeds", 2, *each, "--out", "sweep").code == 0
    runs = [row["run"] for row in rows_of(line, "sweep", form="grpo")]
    assert sorted(runs) == ["frozenlake-builtin-s0"] * 2 + ["frozenlake-builtin-s1"] * 2
    (Path("sweep") / "frozenlake-builtin-s0").rename("elsewhere")
    (Path("sweep") / "frozenlake-builtin-s0").symlink_to(Path("elsewhere").resolve())
    done = line("dataset", "sweep", "-o", "d.jsonl", "--form", "grpo")
    assert done.code == 2
    assert "is a link; name the folder that it leads to" in done.err
    (Path("elsewhere") / "transcript.jsonl").rename("transcript.jsonl")
    (Path("elsewhere") / "transcript.jsonl").symlink_to(Path("transcript.jsonl").resolve())
    done = line("dataset", "elsewhere", "-o", "d.jsonl", "--form", "grpo")
    assert done.code == 1
    assert "not a plain file" in done.err
    assert not Path("d.jsonl").exists()


def test_no_key_gets_into_a_dataset(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-abcdefghijklmnopqrstuvwx"
    run = a_run(Path("results"), BEST_LAKE)
    log = run / "transcript.jsonl"
    log.write_text(log.read_text().replace("You design", f"{key} You design"))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    (row,) = rows_of(line, run)
    assert key not in json.dumps(row)


def test_nothing_is_overwritten_and_wrong_input_gets_a_sentence(line: Line) -> None:
    run = a_run(Path("results"), MALFORMED_LAKE, repairs=0)
    Path("d.jsonl").write_text("mine")
    cases: list[tuple[tuple[object, ...], str]] = [
        ((run, "-o", "d.jsonl", "--form", "grpo"), "d.jsonl exists and is not overwritten"),
        ((run, "-o", "e.jsonl", "--form", "sft"), "there is no row for e.jsonl"),
        ((run, "-o", "e.jsonl", "--form", "dpo", "--top", 0.5), "--top chooses replies for --form sft"),
        ((Path("results"), "-o", "e.jsonl", "--form", "sft"), "is not a run folder"),
        ((run, "-o", "no/e.jsonl", "--form", "grpo"), "the folder no does not exist"),
    ]
    for arguments, message in cases:
        done = line("dataset", *arguments)
        assert done.code == 2
        assert message in done.err
        assert "Traceback" not in done.err
    assert Path("d.jsonl").read_text() == "mine"
    assert not Path("e.jsonl").exists()
    done = line("dataset", run, "-o", "e.jsonl", "--form", "sft")
    assert "left out: 1 malformed" in done.out
    os.mkfifo(run / "comments.jsonl")
    assert "not a plain file" in line("dataset", run, "-o", "e.jsonl", "--form", "grpo").err


@pytest.mark.parametrize("form", ["sft", "dpo", "grpo"])
def test_it_loads_with_datasets_of_hugging_face(line: Line, tmp_path: Path, form: str) -> None:
    datasets = pytest.importorskip("datasets")
    run = a_run(Path("results"), ALWAYS_DOWN, MALFORMED_LAKE, BEST_LAKE, iterations=2)
    assert line("dataset", run, "-o", "d.jsonl", "--form", form).code == 0
    loaded = datasets.load_dataset("json", data_files="d.jsonl", cache_dir=str(tmp_path / "cache"))["train"]
    assert list(loaded) == lines_of(Path("d.jsonl"))
