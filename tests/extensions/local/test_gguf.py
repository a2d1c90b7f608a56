"""A GGUF file in this process, by the real llama.cpp: replies, their seeds and limits, and files that are refused."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import jinja2
import pytest
from tiny_model import TEMPLATE

from policygen.errors import ProviderError, UsageError
from policygen.extensions.local.gguf import read_header
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Exchange, Message, Prompt
from policygen.llm.transcript import Transcript
from policygen.runs.config import effective_config
from policygen.search.resume import resume
from policygen.search.run import start
from policygen.tasks.load import load_task

pytest.importorskip("xllamacpp", reason="needs the extra `gguf`")
pytest.importorskip("gguf", reason="needs the package gguf, which writes such files")
from tiny_gguf import make_tiny_gguf

PROMPT = Prompt((Message("system", "Answer."), Message("user", "left or right?")), seed=3)
TCP = [Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers without end at a temperature of 0."""
    return make_tiny_gguf(tmp_path_factory.mktemp("patient") / "tiny.gguf", context=32_768, says=("la ", "la "))


def test_a_reply_is_counted_free_and_repeated_by_its_seed(model: Path) -> None:
    provider = connect(f"local:{model}", LLMOptions())
    reply = provider.complete(PROMPT, 12)
    other = provider.complete(Prompt(PROMPT.messages, seed=4), 12)
    assert reply.text == provider.complete(PROMPT, 12).text != other.text
    assert reply.text == connect(f"local:{model}", LLMOptions()).complete(PROMPT, 12).text
    # A token of each byte, and one for the role of each message, the last of which begins the answer.
    assert (reply.tokens_in, reply.usd) == (len("Answer.left or right?") + 3, 0.0)
    assert 1 <= (reply.tokens_out or 0) <= 12
    (line,) = provider.diagnose().lines
    parameters = 2 * 260 * 64 + 64 + 2 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 128)
    assert line == f"{parameters / 1e6:.1f} million parameters, 0 MB on cpu, context of 512 tokens"


def test_temperature_and_top_p_reach_the_sampling(model: Path) -> None:
    def texts(options: LLMOptions) -> set[str]:
        provider = connect(f"local:{model}", options)
        return {provider.complete(Prompt(PROMPT.messages, seed=seed), 12).text for seed in range(3)}

    greedy = texts(LLMOptions(temperature=0))
    assert len(greedy) == 1
    assert texts(LLMOptions(top_p=1e-6)) == greedy
    assert len(texts(LLMOptions(temperature=2.0, top_p=1.0))) == 3


def test_a_reply_ends_at_the_context_and_a_longer_prompt_is_refused(tmp_path: Path) -> None:
    endless = make_tiny_gguf(tmp_path / "endless.gguf", says=("la ", "la "))
    provider = connect(f"local:{endless}", LLMOptions(temperature=0))
    reply = provider.complete(Prompt((Message("user", "s" * 480),), seed=0), 10_000)
    assert (reply.tokens_in, reply.tokens_out, reply.text) == (482, 30, ("la " * 30).strip())
    assert (reply.truncated, reply.finish_reason) == (True, "length")
    with pytest.raises(ProviderError, match=r"the prompt has 512 tokens and .* takes 512: shorten prompts"):
        provider.complete(Prompt((Message("user", "s" * 510),), seed=0), 10)


def test_an_answer_ends_at_the_end_token_and_its_thinking_is_split_off(tmp_path: Path) -> None:
    says = ("<think>\nhm\n</think>\n\n", "left = ", "2*angle", "<end>")
    provider = connect(f"local:{make_tiny_gguf(tmp_path / 'says.gguf', says=says)}", LLMOptions(temperature=0))
    reply = provider.complete(PROMPT, 100)
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("left = 2*angle", "hm", "stop")
    assert (reply.tokens_out, reply.truncated) == (4, False)
    cut = provider.complete(PROMPT, 2)
    assert (cut.text, cut.reasoning, cut.truncated, cut.finish_reason) == ("left =", "hm", True, "length")


def test_the_options_are_variables_of_the_chat_template(tmp_path: Path) -> None:
    shy = (
        "{% if enable_thinking is defined and not enable_thinking %}{{ raise_exception('it must think') }}{% endif %}"
        "{{ reasoning_effort }}" + TEMPLATE
    )
    source = f"local:{make_tiny_gguf(tmp_path / 'shy.gguf', template=shy)}"
    plain = connect(source, LLMOptions()).complete(PROMPT, 1).tokens_in or 0
    assert connect(source, LLMOptions(reasoning_effort="high")).complete(PROMPT, 1).tokens_in == plain + len("high")
    with pytest.raises(ProviderError, match=r"shy.gguf refuses the prompt: Error: Jinja Exception: it must think$"):
        connect(source, LLMOptions(extra_body={"enable_thinking": False})).complete(PROMPT, 1)


def test_a_chat_template_runs_no_code(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"{{{{ cycler.__init__.__globals__.os.open('{mark}', 66) }}}}"
    jinja2.Template(code).render()  # what it does in an interpreter without a sandbox
    mark.unlink()
    with pytest.raises(UsageError, match="its chat template is faulty"):
        connect(f"local:{make_tiny_gguf(tmp_path / 'code.gguf', template=code + TEMPLATE)}", LLMOptions())
    assert not mark.exists()


def test_the_time_limit_and_ctrl_c_end_an_answer(patient: Path) -> None:
    hurried = connect(f"local:{patient}", LLMOptions(temperature=0, timeout_seconds=0.3)).complete(PROMPT, 30_000)
    assert (hurried.truncated, hurried.finish_reason) == (True, "length")
    assert 0 < (hurried.tokens_out or 0) < 30_000
    provider = connect(f"local:{patient}", LLMOptions(temperature=0))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        provider.complete(PROMPT, 30_000)
    assert provider.complete(PROMPT, 5).tokens_out == 5


@pytest.mark.skipif(not TCP[0].exists(), reason="the system does not list the ports of a process")
def test_no_port_is_opened_and_nobody_can_connect(model: Path) -> None:
    def listening() -> set[str]:
        rows = [line.split() for table in TCP if table.exists() for line in table.read_text().splitlines()[1:]]
        own = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _open(name)}
        return {row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}

    before = listening()
    provider = connect(f"local:{model}", LLMOptions())
    address = provider._server.listening_address
    assert provider.complete(PROMPT, 1).tokens_out == 1
    assert listening() == before
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).parent.exists()


def _open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_files_that_hold_no_chat_model_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, why: str) -> None:
        with pytest.raises(UsageError, match=why):
            connect(f"local:{path}", LLMOptions())

    refused(tmp_path / "gone.gguf", "gone.gguf cannot be read: No such file")
    (tmp_path / "text").write_text("not a model")
    refused(tmp_path / "text", "text is not a GGUF file")
    old = bytearray(model.read_bytes())
    old[4] = 1
    (tmp_path / "old.gguf").write_bytes(old)
    refused(tmp_path / "old.gguf", "GGUF of version 1")
    refused(make_tiny_gguf(tmp_path / "bare.gguf", template=None), "has no chat template")
    refused(make_tiny_gguf(tmp_path / "faulty.gguf", template="{% if %}"), "its chat template is faulty")
    refused(make_tiny_gguf(tmp_path / "part.gguf", parts=3), "is one of 3 parts: join them")
    refused(make_tiny_gguf(tmp_path / "new.gguf", architecture="unheard"), r"its architecture \(unheard\) is unknown")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    refused(model, r"tiny.gguf needs llama.cpp: pip install 'policygen\[gguf\]'")


def test_a_file_that_was_cut_off_anywhere_is_refused(model: Path, tmp_path: Path) -> None:
    whole, cut = model.read_bytes(), tmp_path / "cut.gguf"
    for length in (0, 3, 4, 10, 24, 100, 1000, 4000, 5500, 6000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"is not a GGUF file|is damaged|the file is damaged"):
            connect(f"local:{cut}", LLMOptions())


def test_numbers_in_a_header_that_promise_too_much_are_refused(model: Path, tmp_path: Path) -> None:
    whole, damaged = model.read_bytes(), tmp_path / "damaged.gguf"
    for place in (8, 16, 24):  # the numbers of tensors and of fields, the length of the first name
        for promised in (2**31, 2**62, 2**64 - 1):
            damaged.write_bytes(whole[:place] + promised.to_bytes(8, "little") + whole[place + 8 :])
            with pytest.raises(UsageError, match="is damaged: its GGUF header cannot be read"):
                read_header(damaged)


def test_a_run_that_was_interrupted_is_resumed_with_the_same_replies(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "templates").mkdir()
    for name in ("system", "short", "repair"):
        (tmp_path / "templates" / f"{name}.j2").write_text("left or right?")
    monkeypatch.chdir(tmp_path)
    usual = {"llm": f"local:{model}", "template": "short", "policy": "linear", "iterations": 4, "repairs": 1}
    config = effective_config(
        load_task("cartpole"),
        "cartpole",
        options={**usual, "episodes": 2, "final_episodes": 2, "max_output_tokens": 64},
    )
    texts = []
    for place, last in (("whole", None), ("interrupted", 2)):
        run = start(load_task("cartpole"), config, tmp_path / place)
        for attempt in run.attempts():
            if attempt.number == last:
                break
        if last is not None:
            run.break_off()
            run = resume(run.folder)
            assert [attempt.number for attempt in run.attempts()] == [3, 4]
        run.finish()
        exchanges = Transcript(run.folder / "transcript.jsonl").exchanges()
        texts.append([one.reply.text for one in exchanges if isinstance(one, Exchange)])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 4
