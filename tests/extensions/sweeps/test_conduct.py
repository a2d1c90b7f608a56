"""Sweeps: each cell is the run it would be alone, and nothing is lost whatever ends them.

It tests `extensions.sweeps.executor` and `extensions.sweeps.worker`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attacks import amount
from chat_server import ChatServer, Scripted
from filelock import FileLock
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    Line,
    attempts_of,
    environment,
    in_a_process,
    lines_of,
    sentences,
    start_process,
    summary_of,
)
from sweeping import SWEPT, assert_as_alone, conducted, opened, plan_of, stated

import policygen
from policygen.errors import LogbookError, UsageError
from policygen.extensions.compare.contenders import read_scores
from policygen.extensions.sweeps import shared_budget
from policygen.extensions.sweeps.conduct import open_sweep
from policygen.extensions.sweeps.plan import SweepLimits, idle_templates, read_plan, write_plan
from policygen.extensions.sweeps.shared_budget import spent_so_far
from policygen.prompts.catalogue import copy_template
from policygen.runs.config import effective_config

pytestmark = pytest.mark.usefixtures("workplace", "swept_in_this_process")
SMALL = stated()


def test_finished_cells_are_not_carried_out_again_and_one_process_at_a_time_conducts_a_sweep() -> None:
    first = opened("cartpole")
    with pytest.raises(LogbookError, match="swept is in use"):
        opened("cartpole")
    sweep = conducted(first)
    assert sweep.complete
    assert {key: one.state for key, one in sweep.outcomes.items()} == dict.fromkeys(
        ("cartpole-builtin-s100", "cartpole-builtin-s101"), "finished"
    )
    alone = assert_as_alone("cartpole", 101)
    assert sweep.outcomes["cartpole-builtin-s101"].score == summary_of(alone)["final"]["mean"]
    again = conducted(opened("cartpole", "nim"))
    assert set(again.skipped) == set(sweep.outcomes)
    assert set(again.outcomes) == {"nim-builtin-s100", "nim-builtin-s101"}


def test_a_suite_states_protocol_and_step_limit_and_the_user_wins() -> None:
    Path("envs/suites").mkdir(parents=True)
    Path("envs/suites/mine.toml").write_text(
        'name = "mine"\ntasks = ["cartpole"]\n[run]\niterations = 2\nepisodes = 7\n[max_steps]\ncartpole = 9\n'
    )
    sweep = conducted(opened("mine", seeds=(1,)))
    ((key, result),) = sweep.outcomes.items()
    assert (result.state, result.score) == ("finished", 9.0)
    played = [attempt["played"] for attempt in attempts_of(SWEPT / key)]
    assert list(map(len, played)) == [4, 4, 4, 4]
    assert max(length for rows in played[1:] for _, length, *_ in rows) <= 9


WORDS = tuple(word for text in SMALL for word in ("--set", text))
MANY = 10  # so many iterations that the sweep is not over before it is interrupted
LONG = ("sweep", "cartpole", "--seeds", "3..4", "--workers", 2, "--set", f"iterations={MANY}", *WORDS[2:])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT][: amount(1, 2)])
def test_an_interrupted_sweep_goes_on_as_if_it_had_not_been(number: int, line: Line, tmp_path: Path) -> None:
    process = start_process(*LONG, "--out", "swept", cwd=tmp_path, stderr=tmp_path / "said")
    deadline = time.monotonic() + 300  # of a busy machine
    while sum(log.read_bytes().count(b"\n") for log in SWEPT.glob("*/attempts.jsonl")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    process.wait()
    if number != signal.SIGKILL:
        assert process.returncode == 130
        said = "Interrupted. Nothing is lost; continue with: policygen resume swept --workers 2"
        assert sentences((tmp_path / "said").read_text()) == [said]
    while (done := line("resume", "swept")).code:
        assert "in use" in done.err + done.out  # killed with its parent, a worker may take a moment to break off
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "compare them with: policygen compare swept" in done.out  # so all have finished, before or now
    assert_as_alone("cartpole", 3, iterations=MANY)


DEADLY = """
import multiprocessing, os, signal
import gymnasium as gym
class Deadly(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0, {}
    def step(self, action):
        self.steps += 1
        if os.environ.get("DEADLY") and multiprocessing.parent_process():
            print("farewell", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return 0, 1.0, self.steps > 3, False, {}
gym.register("Deadly-v0", Deadly)
"""


def test_a_cell_that_kills_its_process_fails_and_the_others_go_on(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{environment()['PYTHONPATH']}{os.pathsep}{tmp_path}")
    # The first look at an environment without a task file plays it as well: there it must live.
    done = line("sweep", "deadly:Deadly-v0", "nim", "--seeds", "1", "--out", "swept", *WORDS)
    assert done.code == 0, done.err
    (folder,) = SWEPT.glob("deadly*")
    for name in ("summary.json", "attempts.jsonl", "episodes.npz"):
        (folder / name).unlink()
    (SWEPT / "nim-builtin-s0" / "summary.json").unlink()
    monkeypatch.setenv("DEADLY", "1")
    refused = in_a_process("resume", "swept", cwd=tmp_path)  # this process was told the name above
    assert refused.returncode == 2
    assert "names the module `deadly`, which would run its code" in refused.stderr
    done = line("resume", "swept", "--trust", "--workers", 2)
    assert done.code == 1
    assert f"failed: {folder.name}: its process was ended by signal 9; its output is in" in done.err
    assert "1 of 2 runs finished, 1 failed" in done.err
    assert "farewell" in (SWEPT / "worker-1.log").read_text()


# --- language models -------------------------------------------------------------------------------------------------


REPLIES = [ALWAYS_RIGHT, ALWAYS_DOWN, BEST_LAKE] * 4


def test_a_failing_model_is_reported_at_the_end_and_its_runs_can_go_on(line: Line) -> None:
    with ChatServer([Scripted(status=401)] * 2 + REPLIES) as server:
        address = ("--base-url", server.openai_url)
        arguments = ("--llm", "builtin", "--llm", "compatible:m", "--seeds", 2, "--out", "swept", *WORDS)
        done = line("sweep", "frozenlake", *arguments, *address)
        assert done.code == 1
        lines = sentences(done.err)
        assert lines[0].startswith("2 of 4 runs finished, 2 failed")
        failed = [line.split(":")[1].strip() for line in lines[1:3]]
        assert failed == ["frozenlake-compatible-m-s0", "frozenlake-compatible-m-s1"]
        assert lines[3] == f"continue with: policygen resume swept {' '.join(address)}"
        assert server.openai_url not in Path("swept/sweep.toml").read_text()
        done = line(*lines[3].split()[3:])
        assert done.code == 0, done.err
    assert "2 of 4 runs finished, 2 were finished before" in done.out


def test_each_model_is_asked_at_its_own_address_and_only_there_gets_its_key(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    with ChatServer([Scripted(status=401), *REPLIES]) as hosted, ChatServer(REPLIES) as weak:
        strong = f"openai:gpt-5-mini@{hosted.url}/v1".replace("//", "//me:pa55@")
        arguments = ("sweep", "frozenlake", "--seeds", 1, "--out", "swept", *WORDS)
        bare = line(*arguments, "--llm", "compatible:weak", "--llm", "openai:gpt-5-mini", "--base-url", weak.openai_url)
        assert bare.code == 2
        assert f"as in openai:gpt-5-mini@{weak.openai_url}" in bare.err
        assert not weak.requests
        done = line(*arguments, "--llm", f"compatible:weak@{weak.openai_url}", "--llm", strong)
        assert done.code == 1, done.err
        assert {chat.body["model"] for chat in weak.chats} == {"weak"}
        assert {chat.headers["authorization"] for chat in weak.chats} == {"Bearer none"}
        assert {chat.body["model"] for chat in hosted.chats} == {"gpt-5-mini"}
        assert "pa55" not in Path("swept/sweep.toml").read_text()
        asked = len(hosted.chats)
        refused = line("resume", "swept")
        assert "the user name and password" in refused.err
        assert len(hosted.chats) == asked
        done = line(*sentences(refused.err)[-1].split()[3:], "--llm", strong)
        assert done.code == 0, done.err
        assert len(hosted.chats) > asked
    folder = next(SWEPT.glob("frozenlake-openai-*"))
    label = strong.replace("me:pa55", "***")
    assert summary_of(folder)["llm"] == label
    assert summary_of(folder)["usd"] is None  # the dollars are OpenAI's own
    assert label in line("compare", "swept").out


def test_an_address_in_a_strangers_manifest_gets_no_key(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-canary-0123456789")
    with ChatServer(REPLIES) as server:
        llm = f"compatible:m@{server.openai_url}"
        SWEPT.mkdir()
        write_plan(SWEPT, plan_of("frozenlake", llms=[llm], settings=SMALL))
        done = line("resume", "swept")
        assert f"sweep.toml would send the key in OPENAI_COMPATIBLE_API_KEY to {server.openai_url}" in done.err
        assert not server.requests
        done = line("resume", "swept", "--llm", llm)
        assert done.code == 0, done.err
        assert server.chats[0].headers["authorization"] == "Bearer sk-canary-0123456789"


def test_iterations_and_episodes_are_said_as_for_a_run_and_the_rest_of_the_protocol_is_shown(line: Line) -> None:
    asked = ("--seeds", 1, "--out", "swept", "--iterations", 1, "--max-episodes", 300, "--episodes", 4)
    done = line("sweep", "quick:nim", *asked)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "suite quick: final_episodes 20"
    assert read_plan(SWEPT).settings == ("iterations=1", "episodes=4", "max_episodes=300")


def test_templates_that_nobody_reads_are_warned_of(line: Line) -> None:
    for name in ("calm", "terse"):
        copy_template("improve_table", name)
    words = ("--template", "calm", "--template", "terse", "--seeds", 1, "--out", "swept", *WORDS)
    done = line("sweep", "frozenlake", *words)
    assert done.code == 0, done.err
    assert "the models of this sweep read no prompt" in done.err
    note = "builtin reads no prompt: templates make no difference to its runs"
    assert note in read_scores(["swept"]).notes
    assert note not in read_scores(["swept/frozenlake-builtin-calm-s0"]).notes
    assert idle_templates(plan_of("nim", llms=["builtin", "replay:x"], templates=["a", "b"]))
    assert not idle_templates(plan_of("nim", llms=["manual"], templates=["a", "b"]))
    assert not idle_templates(plan_of("nim", templates=["a"]))


def test_workers_stay_within_the_calls_of_all_runs_and_change_no_run(line: Line) -> None:
    with ChatServer([Scripted(ALWAYS_RIGHT, tokens_in=2000, tokens_out=100)] * 12) as server:
        arguments = ("--llm", "builtin", "--llm", "compatible:m", "--seeds", 3, "--out", "swept", "--workers", 2)
        done = line("sweep", "frozenlake", *arguments, *WORDS, "--base-url", server.openai_url, "--max-calls", 5)
        assert done.code == 1
        assert len(server.chats) == 5
        used = "all 5 calls of the sweep (--max-calls) are used"
        assert f"{used}; continue with a larger budget: policygen resume swept" in done.err
        assert sum(entry[0] for entry in spent_so_far(SWEPT).values()) == 5
        assert_as_alone("frozenlake", 1)
        assert not list(SWEPT.glob("worker-*.log"))  # nothing was printed
        done = line("resume", "swept", "--set", f"base_url={server.openai_url}", "--max-calls", 9)
        assert done.code == 0, done.err
        assert len(server.chats) == 9
    assert "9 calls, 18,900 tokens, cost unknown" in done.out
    assert read_plan(SWEPT).limits == SweepLimits(max_calls=9)
    for folder in SWEPT.glob("*-compatible-*"):
        assert summary_of(folder)["stopped"] == "all 3 iterations are done"
        assert len(lines_of(folder / "attempts.jsonl")) == 4


def test_tokens_and_dollars_of_all_runs_together_stay_within_the_limit(line: Line) -> None:
    with ChatServer([Scripted(ALWAYS_RIGHT, tokens_in=2000, tokens_out=1000)] * 12) as server:
        arguments = ("sweep", "frozenlake", "--llm", "compatible:m", "--base-url", server.openai_url, "--seeds", 2)
        unknown = line(*arguments, "--out", "unknown", "--max-usd", 1)
        assert (unknown.code, "the price of compatible:m is unknown" in unknown.err) == (1, True)
        assert not server.requests
        prices = ("--set", "price_in=1", "--set", "price_out=1")
        for limit, words in ((("--max-usd", 0.02), "0.02 USD"), (("--max-tokens", 6000), "6,000 tokens")):
            before = len(server.chats)
            done = line(*arguments, *WORDS, *prices, "--out", limit[0].strip("-"), *limit)
            assert done.code == 1
            assert f"could exceed {words} of the sweep" in done.err
            assert 1 <= len(server.chats) - before <= 6
    spent = {name: list(spent_so_far(Path(name)).values()) for name in ("max-usd", "max-tokens")}
    assert sum(tokens for _, tokens, _ in spent["max-tokens"]) <= 6000
    assert sum(usd or 0.0 for _, _, usd in spent["max-usd"]) <= 0.02


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cartpoll",), "there is no task `cartpoll`; did you mean cartpole"),
        (("nim", "--set", "seed=3"), "--set seed: in a sweep, use --seeds"),
        (("nim", "--seeds", "x"), "--seeds x: write a number, as in 10"),
        (("nim", "--iterations", 1, "--set", "iterations=2"), "--set iterations and --iterations set the same value"),
        (
            ("nim", "--iterations", 1, "--grid", "iterations=1,2"),
            "--iterations and --grid iterations set the same value",
        ),
        (("nim", "--max-usd", "-1"), "the options: `max_usd`"),
        (("nim", "--address", "auto"), "--address is for a Ray cluster: add --on ray"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_runs(arguments: tuple[Any, ...], sentence: str, line: Line) -> None:
    done = line("sweep", *arguments, "--out", "swept")
    assert done.code == 2
    (said,) = sentences(done.err)
    assert sentence in said
    assert not SWEPT.exists()


def test_a_cluster_needs_what_is_not_installed(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = line("sweep", "nim", "--out", "swept", "--on", "ray")
    assert done.code == 2
    assert sentences(done.err) == ['Error: --on ray needs Ray: pip install "policygen[ray]"']
    open_sweep(SWEPT).lock.release()  # is not in use any more
    done = line("resume", "swept", "--set", "patience=2")
    assert done.code == 2
    assert "--set patience: a resumed sweep can only change prompt_tokens, jobs" in done.err


def test_a_strangers_suite_or_manifest_neither_imports_nor_writes_elsewhere_nor_gets_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    Path("stranger.py").write_text("from pathlib import Path\nPath('owned').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    suites = Path("envs/suites")
    suites.mkdir(parents=True)
    (suites / "imports.toml").write_text("name = 'imports'\ntasks = ['stranger:Thing-v0']\n")
    with pytest.raises(UsageError, match="suite imports names the module `stranger`"):
        open_sweep(Path("imports"), plan_of("imports"))
    prompts = "would write prompts into elsewhere"
    disguised = (" manual:elsewhere", "MANUAL: elsewhere", "ollama:m + manual:elsewhere", "builtin + Manual:elsewhere")
    for number, (plan, refusal) in enumerate((
        (plan_of("frozenlake", llms=["manual:elsewhere"]), f"{prompts}.*--trust"),
        (plan_of("stranger:Thing-v0"), "names the module `stranger`"),
        (plan_of("frozenlake", llms=["openai:m"], settings=("base_url=http://x/v1",)), "its settings state base_url"),
        *((plan_of("frozenlake", llms=[llm]), f"{prompts}.*; do not use this manifest$") for llm in disguised),
    )):  # fmt: skip
        folder = Path(f"theirs{number}")
        folder.mkdir()
        write_plan(folder, plan)
        with pytest.raises((UsageError, LogbookError), match=refusal):
            open_sweep(folder)
    open_sweep(Path("theirs0"), trust=True).lock.release()
    config = effective_config(policygen.load_task("frozenlake"), "frozenlake", suite={"base_url": "http://x/v1"})
    assert config.origin("base_url")  # so that it gets no key
    assert not Path("owned").exists()
    assert not Path("elsewhere").exists()


def test_a_sweep_that_goes_on_can_have_more_for_each_run(line: Line) -> None:
    assert line("sweep", "cartpole", "--seeds", 2, "--iterations", 1, *WORDS[2:], "--out", "swept").code == 0
    done = line("resume", "swept", "--iterations", 2)
    assert done.code == 0, done.err
    assert [summary_of(folder)["iterations"] for folder in sorted(SWEPT.glob("*-s?"))] == [2, 2]
    less = line("resume", "swept", "--max-episodes", 500)
    assert less.code == 1
    assert less.err.count("the run has no such limit; a resumed run can only have more") == 2


def test_an_account_that_stays_locked_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_budget, "SECONDS_TO_WAIT", 0.01)
    with FileLock(tmp_path / ".spent.lock"), pytest.raises(LogbookError, match=r"stayed locked for 0\.01 s"):
        shared_budget.open_account(tmp_path)
