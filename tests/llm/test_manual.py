"""A person as the model: in a terminal, as a real process, and through files, as real threads of time."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from services import Asked
from support import environment

import policygen
from policygen.errors import ProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt
from policygen.runs.config import effective_config
from policygen.search.resume import resume
from policygen.search.run import start

TERMINAL = """
from policygen.errors import ProviderError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt

provider = connect("manual", LLMOptions())
prompt = Prompt((Message("system", "You improve policies."), Message("user", "Improve this.")))
for _ in range(4):
    try:
        print("GOT", repr(provider.complete(prompt, 100).text))
    except ProviderError as error:
        print("ERROR", error)
"""


def test_the_prompt_is_shown_and_replies_end_with_END_or_the_input() -> None:
    typed = "| 0 | left |\n\n| 1 | right |\nEND\nsecond END of it\n  END  \nthe last"
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL], input=typed, capture_output=True, text=True, check=True, env=environment()
    )
    lines = done.stdout.splitlines()
    assert lines[lines.index("===== system =====") + 1] == "You improve policies."
    assert lines[lines.index("===== user =====") + 1] == "Improve this."
    assert [line for line in lines if line.startswith(("GOT", "ERROR"))] == [
        "GOT '| 0 | left |\\n\\n| 1 | right |'",
        "GOT 'second END of it'",
        "GOT 'the last'",
        "ERROR the input ended before a reply was pasted",
    ]


def _later(path: Path, *pieces: str) -> threading.Thread:
    def write() -> None:
        while not list(path.parent.glob("prompt-*.md")):
            time.sleep(0.01)
        with path.open("w", encoding="utf-8") as file:
            for piece in pieces:
                time.sleep(0.1)
                file.write(piece)
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_reply_file_is_awaited_until_it_is_complete(tmp_path: Path, asked: Asked) -> None:
    folder = tmp_path / "chat"
    provider = connect(f"manual:{folder}", LLMOptions())
    writer = _later(folder / "reply-001.md", "", "| 0 | left |\n", "| 1 ", "| right |\n")
    reply = asked(provider)
    writer.join()
    assert reply.text == "| 0 | left |\n| 1 | right |"
    assert (reply.model, reply.tokens_in, reply.usd) == ("manual", None, None)
    shown = (folder / "prompt-001.md").read_text(encoding="utf-8")
    assert shown == "===== system =====\nYou improve policies.\n\n===== user =====\nHere is one. Improve it.\n"
    assert sorted(path.name for path in folder.iterdir()) == ["prompt-001.md", "reply-001.md"]


def test_replies_of_an_interrupted_run_are_used_for_their_own_prompts_only(tmp_path: Path, asked: Asked) -> None:
    other = Prompt((Message("user", "Something else."),))
    for number, text in enumerate(("one", "<think>hm</think>two", "three"), start=1):
        (tmp_path / f"reply-00{number}.md").write_text(text, encoding="utf-8-sig")
    interrupted = connect(f"manual:{tmp_path}", LLMOptions())
    assert [asked(interrupted).text, asked(interrupted).text] == ["one", "two"]  # the same prompt has two numbers
    asked(interrupted, other)
    assert asked(connect(f"manual:{tmp_path}", LLMOptions())).text == "one"
    assert asked(connect(f"manual:{tmp_path}", LLMOptions()), other).text == "three"


def test_a_file_may_not_choose_the_folder_of_the_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "settings.toml"
    file.write_text('llm = "manual:elsewhere"')
    task = policygen.load_task("frozenlake")
    config = effective_config(task, "frozenlake", file=file)
    with pytest.raises(UsageError, match=r"settings\.toml would write prompts into elsewhere: .* add --trust"):
        start(task, config, tmp_path / "out")
    for known in (
        config.trusted(),
        effective_config(task, "frozenlake", file=file, options={"llm": "manual:elsewhere"}),
    ):
        folder = start(task, known, tmp_path / "out").folder
        with pytest.raises(UsageError, match=r"config\.toml would write prompts into elsewhere"):
            resume(folder)
        resume(folder, trust=True).logbook.release()
    untrusted = dataclasses.replace(task, run=(("llm", "manual:elsewhere"),))
    with pytest.raises(UsageError, match=r"the \[run\] table of frozenlake would write prompts"):
        start(untrusted, effective_config(untrusted, "frozenlake"), tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
def test_nothing_is_followed_out_of_the_folder_of_the_prompts(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "replies"
    folder.mkdir()
    (folder / "prompt-001.tmp").symlink_to(victim)
    os.mkfifo(folder / "reply-001.md")
    with pytest.raises(ProviderError, match="it is a link, a pipe or a device"):
        Asked()(connect(f"manual:{folder}", LLMOptions()))
    assert victim.read_text() == "precious"
    assert (folder / "prompt-001.md").is_file()
