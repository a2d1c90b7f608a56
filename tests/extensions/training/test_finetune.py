"""Training of a small transformer by every method, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tiny_model import make_tiny_model

from policygen.cli import commands
from policygen.errors import PathError, UsageError
from policygen.extensions.training.finetune import TrainingResult, TrainingSettings, finetune

torch = pytest.importorskip("torch", reason="needs the extra `finetune`")
for name in ("trl", "peft", "datasets"):
    pytest.importorskip(name, reason="needs the extra `finetune`")

QUESTION = [{"role": "system", "content": "Write a policy."}, {"role": "user", "content": "cartpole: left or right?"}]
GOOD, BAD = "right = {}*angle + {}*spin\nleft = 0", "push the cart {} {}"


def answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def rows(**columns: Any) -> list[dict[str, Any]]:
    """64 rows of one prompt, with replies that differ in two digits."""
    rng = random.Random(0)
    digits = [(rng.randint(1, 3), rng.randint(1, 3)) for _ in range(64)]
    common = {"prompt": QUESTION, "task": "cartpole", "kind": "linear", "incumbent": ""}
    return [common | {name: answer(text.format(*pair)) for name, text in columns.items()} for pair in digits]


def train(base: Path, out: Path, method: Any, data: Any = None, **stated: Any) -> TrainingResult:
    """Train for a short time, by default on good replies; other arguments are settings and `say`."""
    say = stated.pop("say", print)
    settings = TrainingSettings(method, **{"max_tokens": 32, "episodes": 2, "batch": 16, **stated})
    data = rows(completion=GOOD) if data is None else data
    return finetune(data, [], str(base), out=out, settings=settings, say=say)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def taught(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained on good replies, and therefore writes policies."""
    out = tmp_path_factory.mktemp("taught") / "model"
    said: list[str] = []
    result = train(base, out, "sft", epochs=25, learning_rate=5e-3, say=said.append)
    assert result.before.readable == 0
    assert result.after.readable > 0.6
    assert result.after.reward > 0
    assert said[0].startswith("before: 0% of 64 replies can be read")
    return out


def test_the_trained_model_plays_in_a_run_that_can_be_repeated_and_replayed(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {path.name for path in taught.iterdir()}
    assert {"model.safetensors", "README.md"} <= left
    assert not [one for one in left if one.endswith((".bin", ".pt")) or one.startswith("checkpoint")]
    (tmp_path / "templates").mkdir()
    for message, name in zip(QUESTION, ("system", "short"), strict=True):
        (tmp_path / "templates" / f"{name}.j2").write_text(message["content"])
    monkeypatch.chdir(tmp_path)
    command = ["run", "cartpole", "--policy", "linear", "--template", "short", "--iterations", "3", "--repairs", "0"]
    command += ["--episodes", "5", "--refine", "none", "--set", "final_episodes=5", "--jobs", "1"]
    found = []
    for place, model in (("a", f"local:{taught}"), ("b", f"local:{taught}"), ("c", "replay:a/{}")):
        earlier = next(Path("a").iterdir()).name if Path("a").exists() else ""
        result = CliRunner().invoke(commands, [*command, "--llm", model.format(earlier), "-o", place])
        assert result.exit_code == 0, result.output
        (folder,) = Path(place).iterdir()
        records = [json.loads(line) for line in (folder / "transcript.jsonl").read_text().splitlines()]
        found.append([record["reply"]["text"] for record in records if record.get("reply")])
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) > 1


@pytest.mark.parametrize("method", ["rft", "dpo", "grpo"])
def test_every_method_ends_with_a_model_and_a_card(method: Any, taught: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = rows(chosen=GOOD, rejected=BAD) if method == "dpo" else rows()[:4]
    result = train(taught, out, method, data, epochs=1, rounds=2, samples=4)
    assert result.after.readable > 0.5
    card = (out / "README.md").read_text()
    assert f"trained by policygen ({method})" in card
    assert f"| after | {result.after.readable:.0%} |" in card
    assert 1 < result.after.distinct < 32  # two digits, mostly from 1 to 3
    assert f"| {result.after.distinct} |" in card


def test_a_loss_that_is_no_number_is_refused_and_nothing_is_saved(taught: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the loss is not finite at step"):
        train(taught, tmp_path / "out", "sft", epochs=5, learning_rate=1e30)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_what_cannot_be_trained_is_a_sentence(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"the runs have no row for --method sft"):
        train(base, out, "sft", [])
    out.mkdir(exist_ok=True)
    (out / "mine").write_text("")
    with pytest.raises(PathError, match="exists and is not overwritten"):
        train(base, out, "sft")
    for method in ("rft", "grpo"):
        with pytest.raises(UsageError, match=r"no reply can be read: train with --method sft first"):
            train(base, tmp_path / method, method, rows()[:1], samples=2)
    long = [row | {"prompt": [{"role": "user", "content": "spin " * 2000}]} for row in rows(completion=GOOD)[:3]]
    with pytest.raises(UsageError, match="all 3 rows are longer than the model's context of 512 tokens"):
        train(base, tmp_path / "long", "sft", long)
