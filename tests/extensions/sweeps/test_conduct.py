"""Sweeps: each run is the one it would be alone, failures stop no other run, and nothing of a stranger is obeyed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import ChatServer, Scripted
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, Line, attempts_of, figure, sentences, summary_of
from sweeping import SWEPT, assert_as_alone, stated, swept

import policygen
from policygen.episodes.score import number
from policygen.errors import LogbookError, UsageError
from policygen.extensions.sweeps import conduct
from policygen.extensions.sweeps.plan import cell_folders
from policygen.runs.config import effective_config
from policygen.runs.logbook import lock_folder

pytestmark = pytest.mark.usefixtures("workplace")
SMALL = stated()
WORDS = tuple(word for text in SMALL for word in ("--set", text))
REPLIES = [ALWAYS_RIGHT, ALWAYS_DOWN, BEST_LAKE] * 4


def test_finished_runs_are_not_carried_out_again_and_more_are_added() -> None:
    lines: list[str] = []
    orders = swept("cartpole", say=lines.append)
    complete, closing = conduct.closing_words(SWEPT, orders)
    assert complete
    assert closing == ["2 of 2 runs finished", "to compare them: policygen compare swept"]
    alone = assert_as_alone("cartpole", 101)
    assert f"cartpole-builtin-s101: {number(summary_of(alone)['final']['mean'])} [" in lines[-1]
    before = {folder: (folder / "summary.json").stat().st_mtime_ns for folder in cell_folders(SWEPT)}
    swept("cartpole", "nim", settings=(*SMALL, "jobs=1"), say=lines.append)  # such a setting changes no run
    assert [line.split()[:2] for line in lines[2:]] == [["3/4", "nim-builtin-s100:"], ["4/4", "nim-builtin-s101:"]]
    assert all((folder / "summary.json").stat().st_mtime_ns == time for folder, time in before.items())
    with pytest.raises(UsageError, match=r"swept is a sweep with other settings \(iterations=3, .*\); choose another"):
        swept("cartpole", settings=("iterations=4",))
    lock = lock_folder(SWEPT)
    with pytest.raises(LogbookError, match="swept is in use"):
        swept("cartpole")
    lock.release()


def test_a_suite_states_the_protocol_and_the_user_wins() -> None:
    Path("envs/suites").mkdir(parents=True)
    suite = 'name = "mine"\ntasks = ["cartpole"]\n[run]\niterations = 2\nepisodes = 7\n'
    Path("envs/suites/mine.toml").write_text(suite)
    (order,) = swept("mine", seeds=(1,))
    played = [attempt["played"] for attempt in attempts_of(order.run_folder)]
    assert {len(one["lengths"]) for one in played} == {4}
    with pytest.raises(UsageError, match="is a sweep with other settings"):
        swept("cartpole", seeds=(1,))


def test_a_failing_model_is_reported_and_its_runs_are_tried_again(line: Line) -> None:
    with ChatServer([Scripted(status=401)] * 2 + REPLIES) as server:
        address = ("--base-url", server.openai_url)
        asked = ("sweep", "frozenlake", "--llm", "builtin", "--llm", "compatible:m", "--seeds", 2, "--out", "swept")
        done = line(*asked, *WORDS, *address)
        assert done.code == 1
        lines = sentences(done.err)
        assert lines[0].startswith("2 of 4 runs finished, 2 failed")
        failed = [line.split(":")[1].strip() for line in lines[1:3]]
        assert failed == ["frozenlake-compatible-m-s0", "frozenlake-compatible-m-s1"]
        assert "401" in lines[1]
        assert lines[3] == "repeat the command to continue"
        assert server.openai_url not in Path("swept/sweep.toml").read_text()
        done = line(*asked, *WORDS, *address)
        assert done.code == 0, done.err
    assert "4 of 4 runs finished; 8 calls" in done.out
    assert not list(SWEPT.glob("*.failed"))


def test_each_model_is_asked_at_its_own_address_and_only_there_gets_its_key(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    with ChatServer([Scripted(status=401), *REPLIES]) as hosted, ChatServer(REPLIES) as weak:
        strong = f"openai:gpt-5-mini@{hosted.url}/v1".replace("//", "//me:pa55@")
        asked = ("sweep", "frozenlake", "--seeds", 1, "--out", "swept", *WORDS)
        bare = line(*asked, "--llm", "compatible:weak", "--llm", "openai:gpt-5-mini", "--base-url", weak.openai_url)
        assert bare.code == 2
        assert f"as in openai:gpt-5-mini@{weak.openai_url}" in bare.err
        assert not weak.requests
        models = ("--llm", f"compatible:weak@{weak.openai_url}", "--llm", strong)
        assert line(*asked, *models).code == 1
        assert {chat.body["model"] for chat in weak.chats} == {"weak"}
        assert {chat.headers["authorization"] for chat in weak.chats} == {"Bearer none"}
        assert {chat.body["model"] for chat in hosted.chats} == {"gpt-5-mini"}
        assert not [path for path in SWEPT.rglob("*") if "pa55" in path.name]
        assert "pa55" not in Path("swept/sweep.toml").read_text()
        done = line(*asked, *models)
        assert done.code == 0, done.err
    folder = next(SWEPT.glob("frozenlake-openai-*"))
    assert figure(folder, "requests") > 0
    assert figure(folder, "USD") is None  # the dollars are OpenAI's own


def test_a_strangers_suite_neither_imports_nor_chooses_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("stranger.py").write_text("from pathlib import Path\nPath('owned').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    suites = Path("envs/suites")
    suites.mkdir(parents=True)
    (suites / "imports.toml").write_text("name = 'imports'\ntasks = ['stranger:Thing-v0']\n")
    with pytest.raises(UsageError, match="suite imports names the module `stranger`"):
        swept("imports")
    (suites / "sends.toml").write_text("name = 'sends'\ntasks = ['nim']\n[run]\nbase_url = 'http://x/v1'\n")
    with pytest.raises(UsageError, match=r"`run\.base_url`: a suite may state only"):
        swept("sends")
    config = effective_config(policygen.load_task("frozenlake"), "frozenlake", suite={"base_url": "http://x/v1"})
    assert config.origin("base_url")  # so that it gets no key
    assert not Path("owned").exists()
