"""A real transformer in this process: its replies, their seeds, and folders that are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

from policygen.errors import ProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt

torch = pytest.importorskip("torch", reason="needs the extra `local`")
pytest.importorskip("transformers", reason="needs the extra `local`")
peft = pytest.importorskip("peft", reason="needs the extra `local`")

PROMPT = Prompt((Message("system", "Answer."), Message("user", "left or right?")), seed=3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copied"))


def test_a_reply_is_counted_free_and_repeated_by_its_seed(model: Path) -> None:
    provider = connect(f"local:{model}", LLMOptions())
    reply, again = provider.complete(PROMPT, 20), provider.complete(PROMPT, 20)
    other = provider.complete(Prompt(PROMPT.messages, seed=4), 20)
    assert reply.text == again.text != other.text
    assert (reply.tokens_out, reply.usd) == (20, 0.0)
    assert reply.truncated
    assert reply.finish_reason == "length"
    assert 5 < (reply.tokens_in or 0) < 60
    assert provider.diagnose().ok
    assert "context of 512 tokens" in provider.diagnose().lines[0]


def test_sampling_leaves_the_programs_own_random_stream_alone(model: Path) -> None:
    provider = connect(f"local:{model}", LLMOptions())
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    provider.complete(PROMPT, 5)
    assert torch.equal(torch.rand(3), expected)


def test_a_reply_ends_at_the_context_and_a_longer_prompt_is_refused(model: Path) -> None:
    provider = connect(f"local:{model}", LLMOptions())
    words = Prompt((Message("user", "spin " * 60),), seed=0)
    tokens = provider.complete(words, 1).tokens_in
    assert tokens is not None
    near = Prompt((Message("user", "spin " * (60 * 500 // tokens)),), seed=0)
    reply = provider.complete(near, 10_000)
    assert (reply.tokens_in or 0) + (reply.tokens_out or 0) <= 512
    with pytest.raises(ProviderError, match="takes 512: shorten prompts"):
        provider.complete(Prompt((Message("user", "spin " * 3000),), seed=0), 10)


def test_an_adapter_is_put_on_its_base(model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    large = peft.LoraConfig(r=4, lora_alpha=400, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(base, large)
    adapted.save_pretrained(tmp_path)
    plain, adapter = connect(f"local:{model}", LLMOptions()), connect(f"local:{tmp_path}", LLMOptions())
    assert adapter.complete(PROMPT, 20).text != plain.complete(PROMPT, 20).text
    fields = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(
        json.dumps(fields | {"megatron_config": {}, "megatron_core": "antigravity"})
    )
    assert connect(f"local:{tmp_path}", LLMOptions()).complete(PROMPT, 20).text == adapter.complete(PROMPT, 20).text
    (tmp_path / "adapter_config.json").write_text(json.dumps(fields | {"peft_type": "XLORA"}))
    with pytest.raises(UsageError, match="an adapter of type 'XLORA'; only LoRA is supported"):
        connect(f"local:{tmp_path}", LLMOptions())
    shutil.move(model, gone := tmp_path / "gone")
    try:
        (tmp_path / "adapter_config.json").write_text(json.dumps(fields))
        with pytest.raises(UsageError, match=r"the base model of .* is missing"):
            connect(f"local:{tmp_path}", LLMOptions())
    finally:
        shutil.move(gone, model)


def test_what_would_run_code_is_refused(copied: Path) -> None:
    for name in ("config.json", "tokenizer_config.json"):
        plain = (copied / name).read_text()
        (copied / name).write_text(json.dumps(json.loads(plain) | {"auto_map": {"AutoModelForCausalLM": "own.Own"}}))
        with pytest.raises(UsageError, match=f"{name} asks to run code of the model's author"):
            connect(f"local:{copied}", LLMOptions())
        (copied / name).write_text(plain)
    torch.save({}, copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"pytorch_model.bin runs code when loaded, so save it as safetensors"):
        connect(f"local:{copied}", LLMOptions())


def test_folders_that_hold_no_chat_model_are_refused(copied: Path, tmp_path: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match="has no chat template"):
        connect(f"local:{copied}", LLMOptions())
    (copied / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(UsageError, match=r"cannot be loaded as a chat model: .*nothing"):
        connect(f"local:{copied}", LLMOptions())
    (copied / "config.json").write_text("[")
    with pytest.raises(UsageError, match=r"config\.json is not JSON"):
        connect(f"local:{copied}", LLMOptions())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no model"):
        connect(f"local:{tmp_path / 'empty'}", LLMOptions())
