"""Finetune a local language model on datasets made from runs, by TRL's trainers and `policygen.reward`.

The methods are supervised finetuning (`sft`), preferences (`dpo`), policy gradients with group baselines (`grpo`), and
rejection sampling (`rft`): rounds of training on the best quarter of the model's own replies (Yuan et al. 2023,
arXiv:2308.01825). It needs the extra `finetune`.
"""

# Imports inside functions are of optional packages.

from __future__ import annotations

import dataclasses
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from policygen.errors import PathError, UsageError
from policygen.extensions.local import load_chat_model
from policygen.extensions.training.dataset import Form, Row, best_share
from policygen.extensions.training.reward import UNREADABLE, Reward, ScoredCompletion, reward
from policygen.files import write_atomically
from policygen.runs.attempt import text_digest

Method = Literal["sft", "rft", "dpo", "grpo"]
FORMS: dict[Method, Form] = {"sft": "sft", "rft": "grpo", "dpo": "dpo", "grpo": "grpo"}  # the dataset of each method
LARGE = 50_000_000  # of models with more parameters than this, only a LoRA adapter is trained
MOST_TESTED = 64  # number of replies that test a model before and after training


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training."""

    method: Method
    epochs: float = 3.0  # passes over the rows; for `rft`, over the replies kept in each round
    rounds: int = 4  # of `rft`
    samples: int = 8  # replies to each prompt, in a round of `rft` or a step of `grpo`
    learning_rate: float = 1e-4  # of AdamW
    beta: float = 0.03  # weight of the divergence from the base model, for `dpo` and `grpo`
    batch: int = 8  # rows per step, for `sft`, `rft` and `dpo`
    max_tokens: int = 512  # maximum length of a sampled reply
    episodes: int = 10  # for scoring a reply
    seed: int = 0  # of every random draw; the test before and after training uses the next seed


@dataclass(frozen=True, slots=True)
class ReplyScores:
    """The results of testing a model's replies."""

    readable: float  # share of replies with a policy that can be played
    reward: float  # mean reward, from -0.1 to about 1
    replies: int  # number of replies
    distinct: int  # number of different policies; a model that always writes the same one has collapsed

    def __str__(self) -> str:
        return (
            f"{self.readable:.0%} of {self.replies} replies can be read, mean reward {self.reward:.3f}, "
            f"{self.distinct} different policies"
        )


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a training: tests before and after it, its duration, and why it ended early (or empty)."""

    before: ReplyScores
    after: ReplyScores
    seconds: float
    ended: str = ""


def finetune(
    rows: Sequence[Row],
    test: Sequence[Row],
    base: str,
    *,
    out: Path,
    settings: TrainingSettings,
    say: Callable[[str], None],
) -> TrainingResult:
    """Train the model `base`, a folder or a name in the hub, and save it in the folder `out` with a model card.

    Args:
        rows: rows of the form that the method takes (`FORMS`).
        test: rows with the prompts that test the model before and after training; if empty, `rows`.
        say: called with lines about the progress.

    Raises:
        UsageError: the extra is not installed, the model or every row is unusable, none of the model's own replies can
            be read (`rft`, `grpo`), or the loss is not finite.
        PathError: `out` exists and is not an empty folder.
    """
    if missing := [name for name in ("torch", "trl", "peft", "datasets") if find_spec(name) is None]:
        raise UsageError(f"finetune needs {', '.join(missing)}: pip install 'policygen[finetune]'")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise PathError(f"{out} exists and is not overwritten; remove it, or choose another -o")
    began = time.perf_counter()
    model = _Trainee(base, settings, out)
    fitting = model.rows_that_fit(rows, say)
    prompts = list({json.dumps(row["prompt"]): row for row in test or fitting}.values())[:MOST_TESTED]
    tested = [row for row in prompts for _ in range(math.ceil(MOST_TESTED / len(prompts)))][:MOST_TESTED]
    unseen = _reward(test or fitting, settings, settings.seed + 1)  # on episodes that training does not use
    before = model.reply_scores(tested, unseen)
    say(f"before: {before}")
    if FORMS[settings.method] == "grpo" and not before.readable:
        raise UsageError("no reply can be read: train with --method sft first, on good replies")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers, about names that TRL uses
        ended = model.train_in_rounds(fitting, say) if settings.method == "rft" else model.train(fitting, say)
    after = model.reply_scores(tested, unseen)
    say(f"after:  {after}")
    result = TrainingResult(before, after, time.perf_counter() - began, ended)
    model.model.save_pretrained(out, safe_serialization=True)
    model.tokenizer.save_pretrained(out)
    write_atomically(out / "README.md", _card(base, len(fitting), settings, result, held_out=bool(test)))
    return result


def sample_replies(source: str, rows: Sequence[Row], settings: TrainingSettings) -> list[str]:
    """Return a reply of the model `source`, a folder or a name in the hub, to each row's prompt."""
    return _Trainee(source, settings, Path()).replies(rows)


class _Trainee:
    """A model in training, with its tokenizer; TRL's trainers do the work."""

    def __init__(self, base: str, settings: TrainingSettings, out: Path) -> None:
        import peft
        import torch

        self.settings, self.out = settings, out
        self.tokenizer, self.model = load_chat_model(base)
        if hasattr(self.model, "merge_and_unload"):  # merge an adapter into its base
            self.model = self.model.merge_and_unload()
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
        self.tokenizer.padding_side = "left"
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.large = sum(parameter.numel() for parameter in self.model.parameters()) > LARGE
        self.context = int(getattr(self.model.config.get_text_config(), "max_position_embeddings", 0) or 2**20)
        lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        self._adapter = lora if self.large else None
        self._cuda = torch.cuda.is_available()
        torch.manual_seed(settings.seed)

    def rows_that_fit(self, rows: Sequence[Row], say: Callable[[str], None]) -> list[Row]:
        """Return the rows that fit into the model's context together with a reply; raise UsageError if none does."""
        method = self.settings.method
        if not rows:
            raise UsageError(f"the runs have no row for --method {method}; name more runs, or longer ones")
        columns = {"sft": ("completion",), "dpo": ("chosen", "rejected")}.get(method, ())
        room = self.context - (0 if columns else self.settings.max_tokens)

        def length(row: Row) -> int:
            texts = [row["prompt"], *(row["prompt"] + row[name] for name in columns)]
            return max(len(self.tokenizer.apply_chat_template(one, tokenize=True, return_dict=False)) for one in texts)

        fit = [row for row in rows if length(row) <= room]
        if not fit:
            raise UsageError(
                f"all {len(rows)} rows are longer than the model's context of {self.context} tokens; choose another "
                "--base, or shorter prompts"
            )
        if len(fit) < len(rows):
            say(f"left out: {len(rows) - len(fit)} of {len(rows)} rows do not fit into the model's context")
        return fit

    def train(self, rows: Sequence[Row], say: Callable[[str], None]) -> str:
        """Train on `rows` with the method's trainer; return why it ended early, or empty."""
        import trl
        from datasets import Dataset, disable_progress_bars
        from transformers import PrinterCallback, TrainerCallback

        method, settings = self.settings.method, self.settings
        common: dict[str, Any] = {
            "output_dir": str(self.out),
            "num_train_epochs": settings.epochs,
            "learning_rate": settings.learning_rate,
            "per_device_train_batch_size": settings.samples if method == "grpo" else settings.batch,
            "seed": settings.seed,
            "bf16": self._cuda and self.large,
            # Passed only if needed, because transformers 6 renames it.
            **({"gradient_checkpointing": True} if self.large else {}),
            "logging_steps": 10,
            "logging_nan_inf_filter": False,  # it would hide a loss that is not finite
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "dataloader_pin_memory": self._cuda,
        }
        ended: list[str] = []

        class Progress(TrainerCallback):  # type: ignore[misc]  # untyped
            """Report the loss and the time left; end a `grpo` training that can no longer learn."""

            began = time.perf_counter()

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
                if "loss" not in (logs or {}):
                    return
                loss, left = float(logs["loss"]), state.max_steps - state.global_step
                seconds = left * (time.perf_counter() - self.began) / max(1, state.global_step)
                gained = f", reward {float(logs['reward']):.3f}" if "reward" in logs else ""
                say(f"step {state.global_step} of {state.max_steps}: loss {loss:.4g}{gained}, {seconds:.0f} s left")
                if not math.isfinite(loss):
                    raise UsageError(f"the loss is not finite at step {state.global_step}: lower --learning-rate")
                if logs.get("frac_reward_zero_std") == 1 and not settings.beta:  # nothing will move the weights again
                    ended.append(
                        f"all replies had the same reward, {logs['reward']:.3g}, in the steps to {state.global_step}; "
                        "if that is low, lower --learning-rate or state a --beta"
                    )
                    control.should_training_stop = True

        disable_progress_bars()
        replies = {"dpo": ("chosen", "rejected"), "grpo": ("task", "kind", "incumbent")}.get(method, ("completion",))
        given = {
            "train_dataset": Dataset.from_list([{key: row[key] for key in ("prompt", *replies)} for row in rows]),
            "processing_class": self.tokenizer,
            "callbacks": [Progress()],
            "peft_config": self._adapter,
        }
        if method == "dpo":
            config = trl.DPOConfig(**common, max_length=self.context, beta=settings.beta)
            trainer = trl.DPOTrainer(self.model, args=config, **given)
        elif method == "grpo":
            lengths = {"num_generations": settings.samples, "max_completion_length": settings.max_tokens}
            config = trl.GRPOConfig(**common, **lengths, beta=settings.beta)
            trainer = trl.GRPOTrainer(self.model, _reward(rows, settings, settings.seed), config, **given)
        else:
            config = trl.SFTConfig(**common, max_length=self.context)
            trainer = trl.SFTTrainer(self.model, args=config, **given)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        self.model, self._adapter = trainer.model, None
        return next(iter(ended), "")

    def train_in_rounds(self, rows: Sequence[Row], say: Callable[[str], None]) -> str:
        """Repeatedly sample replies and train on each task's best quarter; return why it ended early, or empty."""
        reward_of = _reward(rows, self.settings, self.settings.seed)
        for number in range(1, self.settings.rounds + 1):
            asked = [row for row in rows for _ in range(self.settings.samples)]
            texts = [text for row in rows for text in self.replies([row] * self.settings.samples)]
            values = [one.reward for one in _scored(reward_of, asked, texts)]
            answered = [
                row | {"completion": [{"role": "assistant", "content": text}], "score": value}
                for row, text, value in zip(asked, texts, values, strict=True)
            ]
            best = [row for row in best_share(answered, 1 / 4, lambda row: row) if row["score"] > UNREADABLE]
            kept = {json.dumps([row["prompt"], row["completion"]]): row for row in best}
            mean = sum(values) / len(values)
            say(f"round {number}: mean reward {mean:.3f} of {len(values)} replies, {len(kept)} kept")
            if not kept:
                return f"round {number} had no readable reply"
            self.train(list(kept.values()), say)
        return ""

    def replies(self, rows: Sequence[Row]) -> list[str]:
        """Sample a reply to each row's prompt."""
        import torch

        found: list[str] = []
        self.model.eval()
        for first in range(0, len(rows), 32):
            texts = [
                self.tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
                for row in rows[first : first + 32]
            ]
            encoded = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            encoded = encoded.to(self.model.device)
            with torch.inference_mode():
                output = self.model.generate(
                    **{name: encoded[name] for name in ("input_ids", "attention_mask")},
                    max_new_tokens=self.settings.max_tokens,
                    do_sample=True,
                    pad_token_id=self.tokenizer.pad_token_id,
                )
            found += self.tokenizer.batch_decode(output[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
        return found

    def reply_scores(self, rows: Sequence[Row], reward_of: Reward) -> ReplyScores:
        """Test the model on the rows' prompts."""
        scored = _scored(reward_of, rows, self.replies(rows))
        readable = [one for one in scored if one.reward > UNREADABLE]
        distinct = {(one.policy.task.name, text_digest(one.policy)) for one in readable if one.policy}
        count = len(scored)
        return ReplyScores(len(readable) / count, sum(one.reward for one in scored) / count, count, len(distinct))


def _reward(rows: Sequence[Row], settings: TrainingSettings, seed: int) -> Reward:
    return reward(sorted({row["task"] for row in rows}), settings.episodes, seed=seed)


def _scored(reward_of: Reward, rows: Sequence[Row], texts: Sequence[str]) -> list[ScoredCompletion]:
    columns = {name: [row.get(name) for row in rows] for name in ("task", "kind", "incumbent")}
    return reward_of.scored(list(texts), **columns)


def _card(base: str, count: int, settings: TrainingSettings, result: TrainingResult, *, held_out: bool) -> str:
    before, after = result.before, result.after
    ended = f"\n- ended early: {result.ended}" if result.ended else ""
    prompts = "held-out prompts" if held_out else "training prompts"
    stated = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(settings).items())
    return f"""# {Path(base).name}, trained by policygen ({settings.method})

- base model: {base}
- data: {count} rows
- settings: {stated}
- duration: {result.seconds:.0f} s{ended}

{before.replies} replies to {prompts}, scored on {settings.episodes} episodes that training
did not use. A reward of 0 is that of random actions, 1 the task's target, -0.1 a reply without a policy.

| | replies with a policy | mean reward | different policies |
|---|---|---|---|
| before | {before.readable:.0%} | {before.reward:.3f} | {before.distinct} |
| after | {after.readable:.0%} | {after.reward:.3f} | {after.distinct} |
"""
