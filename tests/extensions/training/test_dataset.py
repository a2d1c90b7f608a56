"""Datasets: which requests of runs become rows, what each is credited with, and what a stranger's folder cannot do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, MALFORMED_LAKE, Line, Written, attempts_of, fenced

import policygen
from policygen import make_dataset
from policygen.errors import LogbookError, PathError, UsageError

pytestmark = pytest.mark.usefixtures("workplace")


def a_run(*texts: str, provider: Written | None = None, **settings: Any) -> Path:
    settings = {"iterations": len(texts), "stop_at": 2.0, "episodes": 4, "final_episodes": 5, **settings}
    return policygen.run("frozenlake", llm=provider or Written(texts), out="results", **settings).folder


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_a_row_is_an_accepted_reply_to_the_messages_sent() -> None:
    provider = Written([ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT])
    run = a_run(*provider.texts, provider=provider)
    (first, second), held_out = make_dataset([run], "sft")
    assert held_out == []
    assert first["prompt"] == [{"role": m.role, "content": m.content} for m in provider.prompts[0].messages]
    assert (first["completion"], second["completion"]) == (said(ALWAYS_DOWN), said(BEST_LAKE))
    _, down, lake, _ = attempts_of(run)
    assert second | {"prompt": 0, "completion": 0, "incumbent": 0} == {
        **{"prompt": 0, "completion": 0, "incumbent": 0, "task": "frozenlake", "run": run.name, "attempt": 2},
        **{"kind": "table", "score": lake["score"]["mean"]},
    }
    assert (first["incumbent"], first["score"]) == ("", down["score"]["mean"])
    assert policygen.parse(second["incumbent"], "frozenlake") == policygen.parse(ALWAYS_DOWN, "frozenlake")


def test_the_top_share_counts_in_each_task() -> None:
    run = a_run(ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT)
    assert [row["completion"] for row in make_dataset([run], "sft", top=0.3)[0]] == [said(BEST_LAKE)]
    assert len(make_dataset([run], "sft", top=1)[0]) == 3
    with pytest.raises(UsageError, match="--top chooses replies for --method sft"):
        make_dataset([run], "dpo", top=0.3)


def test_a_reply_is_credited_with_its_score_before_tuning() -> None:
    weak = fenced("left = 0", "right = 0.3*angle + 0.02*spin + 0.2*position")
    settings = {"llm": Written([weak]), "iterations": 1, "episodes": 4, "final_episodes": 2, "policy": "linear"}
    run = policygen.run("cartpole", refine="cma:60", out="results", **settings).folder
    (attempt,) = attempts_of(run)[1:]
    assert attempt["tuned"]["proposed_score"]["mean"] < attempt["score"]["mean"]
    ((row,), _) = make_dataset([run], "sft")
    assert (row["score"], row["kind"]) == (attempt["tuned"]["proposed_score"]["mean"], "linear")


def test_pairs_have_one_prompt_and_a_better_and_a_worse_reply(workplace: Path) -> None:
    malformed = a_run(MALFORMED_LAKE, BEST_LAKE, iterations=1)
    (row,) = make_dataset([malformed], "dpo")[0]
    assert (row["chosen"], row["rejected"]) == (said(BEST_LAKE), said(MALFORMED_LAKE))
    assert [len(row["prompt"]), "completion" in row] == [2, False]
    (workplace / "templates").mkdir()
    (workplace / "templates" / "mine.j2").write_text("Write a policy.\n")  # one prompt for all replies
    replies = [ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT, MALFORMED_LAKE]
    runs = [a_run(text, iterations=1, repairs=0, template="mine", seed=seed) for seed, text in enumerate(replies)]
    rows = make_dataset(runs, "dpo")[0]
    ranked = sorted(replies[:3], key=lambda text: policygen.score(policygen.parse(text, "frozenlake")).mean)
    pairs = {(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows}
    assert pairs == {(ranked[2], MALFORMED_LAKE), (ranked[1], ranked[0])}
    assert {row["prompt"][-1]["content"] for row in rows} == {"Write a policy.\n"}


def test_prompts_for_a_reward_have_what_it_needs() -> None:
    run = a_run(MALFORMED_LAKE, ALWAYS_DOWN, BEST_LAKE, iterations=2)
    rows, _ = make_dataset([run], "grpo")
    assert [set(row) for row in rows] == [{"prompt", "task", "run", "attempt", "kind", "incumbent"}] * 2
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    reward = policygen.reward("frozenlake")
    revision = fenced("| 0 | 0 | left |")  # it can be read only where there is a policy to revise
    rewards = reward(completions=[said(revision)] * 2, prompts=columns.pop("prompt"), **columns)
    assert rewards[0] == -0.1 < 0 < rewards[1]


def test_whole_runs_are_held_out_and_copies_are_on_one_side_only() -> None:
    runs = [a_run(BEST_LAKE, ALWAYS_DOWN, seed=seed) for seed in range(4)]
    copy = Path(shutil.copytree(runs[0], "copy"))
    kept, held_out = make_dataset([*runs, copy], "grpo", test=0.25)
    assert len(kept) + len(held_out) == 8
    assert len({row["run"] for row in held_out}) == 1
    assert {row["run"] for row in held_out}.isdisjoint({row["run"] for row in kept})
    prompts = [{json.dumps(row["prompt"]) for row in rows} for rows in (kept, held_out)]
    assert prompts[0].isdisjoint(prompts[1])
    with pytest.raises(UsageError, match="no task has two"):
        make_dataset(runs[:1], "grpo", test=0.25)


def test_a_sweep_stands_for_its_runs_but_links_in_it_are_not_followed(line: Line) -> None:
    each = ("--set", "episodes=4", "--set", "final_episodes=2", "--iterations", 1)
    assert line("sweep", "frozenlake", "--seeds", 2, *each, "--out", "sweep").code == 0
    sweep = Path("sweep")
    assert {row["run"] for row in make_dataset([sweep], "grpo")[0]} == {
        f"frozenlake-builtin-s{seed}" for seed in (0, 1)
    }
    (sweep / "frozenlake-builtin-s0").rename("elsewhere")
    (sweep / "frozenlake-builtin-s0").symlink_to(Path("elsewhere").resolve())
    with pytest.raises(UsageError, match="is a link; name the folder that it leads to"):
        make_dataset([sweep], "grpo")
    log = Path("elsewhere/transcript.jsonl")
    log.rename("transcript.jsonl")
    log.symlink_to(Path("transcript.jsonl").resolve())
    with pytest.raises(LogbookError, match="not a plain file"):
        make_dataset(["elsewhere"], "grpo")
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(LogbookError, match="not a plain file"):
        make_dataset(["elsewhere"], "grpo")
    with pytest.raises(PathError, match="is not a run folder"):
        make_dataset([Path("templates")], "grpo")


def test_no_key_gets_into_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-abcdefghijklmnopqrstuvwx"
    run = a_run(BEST_LAKE)
    log = run / "transcript.jsonl"
    log.write_text(log.read_text().replace("You design", f"{key} You design"))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    ((row,), _) = make_dataset([run], "sft")
    assert key not in json.dumps(row)
