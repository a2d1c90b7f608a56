"""Measures what stands in nano.md: a transformer of 1.1 million parameters that proposes policies for unseen variants.

python results/benchmarks/nano.py [variants] [data] [train] [compare] [tune] [page] [--tasks FAMILY ...] [--anew]

Needs `pip install "policygen[finetune]"`. Set OMP_NUM_THREADS=1. `variants` draws the variants and scores a reference
on those held out (nano_variants.jsonl); `data` tunes policies for the others; `train` trains on them by sft and rft;
`compare` counts proposals, and `tune` episodes, until a policy reaches the threshold (nano.csv); `page` writes the
tables of nano.md. What is in the files already is not made again; `--anew` forgets the measurements.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tomli_w
from finetune import make_tiny_model, spread
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, Continuous_MountainCarEnv, PendulumEnv
from measurements import HERE, Measurements, parser_of

import policygen
from policygen.episodes.dynamics import Array, Dynamics, DynamicsEnv, StepResult
from policygen.episodes.players import Players, evaluate
from policygen.episodes.score import episode_seeds, half_interval
from policygen.episodes.trajectory import RandomActor
from policygen.episodes.vector import ADVANCES
from policygen.extensions.local.provider import LocalModel, load_chat_model
from policygen.extensions.training.finetune import TrainingSettings, finetune
from policygen.llm.base import LLMOptions
from policygen.llm.messages import Prompt, Reply
from policygen.policies.linear import LinearPolicy

MEASURED = Measurements(
    "nano", ("variant", "proposals from", "seed", "proposals", "readable", "reached", "score", "episodes", "seconds")
)
VARIANTS = HERE / "nano_variants.jsonl"
PUBLISHED = HERE / "nano"  # folder of the model
PLACE = HERE.parent.parent / "build" / "nano"
HELD_OUT, TRAINING = 10, 80  # variants of each family
SEED = 250  # of the held-out variants; training variants have the next one
SEEDS = range(250, 255)  # of models and runs
STEPS = 150  # of an episode
CAP = 30  # proposals
SHARE = 0.8  # of the way from random actions to the reference: the threshold
EPISODES = 20  # that score a proposal
FRESH = episode_seeds(25_000, "evaluation", 100)  # that score random actions, references and data
COPIES = 20  # rows with other signs for each training variant
KEPT = 0.95  # of the way from random actions to the best policy of a training variant: other policies are left out
PRACTISED = 32  # further training variants of each family, for rft
MOST_TUNED = 3_000  # episodes of a run with tuning
METHODS = {"cma": "cma:100", "model": "model"}
PROPOSERS = ("random", "builtin", "copy", "nearest", "nano, sft", "nano")  # copies are controls: see nano.md
TUNED = {"builtin + cma": 3, "nano + cma": 3, "builtin + model": 1}  # held-out variants of each family in these runs
COMMON = {"max_tokens": 64, "episodes": 10, "batch": 16, "trust": True}
SFT = TrainingSettings("sft", epochs=1, learning_rate=2e-3, **COMMON)
RFT = TrainingSettings("rft", epochs=2, rounds=3, samples=8, learning_rate=5e-4, **COMMON)
SYSTEM = "policy\n"


@dataclass(frozen=True)
class Family:
    """A task of Gymnasium with a set point, whose variants are drawn.

    Attributes:
        env: its class; variants differ in attributes, within `ranges`.
        readings: for each quantity that a policy reads its number in the observation, and its name.
        outputs: name of the action, or two labels.
        regulated: number of the state that is to be held at the set point, which is drawn from `aims`.
        tolerance: of the state at which a step is worth 1/2.
        limit: attribute that limits the action; empty for labels.
    """

    env: type[gym.Env[Any, Any]]
    ranges: dict[str, tuple[float, float]]
    readings: tuple[tuple[int, str], ...]
    outputs: tuple[str, ...]
    regulated: int
    aims: tuple[float, float]
    tolerance: float
    limit: str = ""


TURNING = (PendulumEnv, AcrobotEnv)  # an angle is regulated, which is read as cosine and sine
FAMILIES = {
    "cartpole": Family(
        CartPoleEnv,
        {"masspole": (0.05, 0.5), "length": (0.25, 1), "force_mag": (6, 20), "gravity": (4, 15)},
        ((0, "x"), (1, "v"), (2, "tilt"), (3, "spin")),
        ("left", "right"),
        0,
        (-0.8, 0.8),
        0.3,
    ),
    "pendulum": Family(
        PendulumEnv,
        {"m": (0.5, 2), "l": (0.6, 1.5), "g": (1, 6), "max_torque": (4, 12)},
        ((0, "cos"), (1, "sin"), (2, "rate")),
        ("torque",),
        0,
        (-3.1, 3.1),
        0.4,
        "max_torque",
    ),
    "car": Family(
        Continuous_MountainCarEnv,
        {"power": (0.004, 0.02), "max_action": (0.6, 2)},
        ((0, "x"), (1, "v")),
        ("force",),
        0,
        (-1.1, 0.5),
        0.1,
        "max_action",
    ),
    "acrobot": Family(
        AcrobotEnv,
        {"LINK_MASS_1": (0.5, 3), "LINK_MASS_2": (0.2, 0.6), "LINK_LENGTH_1": (0.6, 1.5), "torque": (2, 6)},
        ((2, "cos"), (3, "sin"), (4, "first"), (5, "second")),
        ("minus", "plus"),
        1,
        (-2.0, 2.0),
        0.4,
    ),
}
CARD = """# nano: a proposer of small policies

A transformer of 1.1 million parameters that answers a line about one of four control tasks with an equation. It knows
nothing else. `../nano.md` says what it is worth, and how it was made from random weights. License: that of policygen.
"""
Variant = dict[str, Any]


def drawn(family: str, number: int, seed: int) -> Variant:
    """Draw a variant: a system with a set point in the first four entries, and in the others how it is described."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), number])
    of = FAMILIES[family]
    values = {name: rounded(np.exp(rng.uniform(*np.log(bounds)))) for name, bounds in of.ranges.items()}
    aim, delay = rounded(rng.uniform(*of.aims)), int(rng.integers(3))
    return {"family": family, "values": values, "aim": aim, "delay": delay, **dressed(family, rng)}


def rounded(value: float) -> float:
    """Round to two significant digits."""
    return float(f"{value:.2g}")


def dressed(family: str, rng: np.random.Generator) -> Variant:
    """Draw the signs of the readings and of the actuator of a variant."""
    count = len(FAMILIES[family].readings)
    rng.integers(2, size=count)  # held-out variants were drawn when each reading had one of two names
    return {"signs": [int(sign) for sign in rng.choice([-1, 1], count)], "drive": int(rng.choice([-1, 1]))}


class Motion(Dynamics):
    """The step of a variant: Gymnasium's, with a delayed action, signs of readings and actuator, and a set point."""

    def __init__(self, variant: Variant) -> None:
        self.of = of = FAMILIES[variant["family"]]
        self.inner: Any = of.env()
        for name, value in variant["values"].items():
            setattr(self.inner, name, value)
        if of.env is Continuous_MountainCarEnv:
            self.inner.min_action, self.inner.goal_position = -self.inner.max_action, math.inf
        if of.env is CartPoleEnv:
            self.inner.total_mass = self.inner.masspole + self.inner.masscart
            self.inner.polemass_length = self.inner.masspole * self.inner.length
            self.inner.spec = gym.spec("CartPole-v1")
        if of.env is AcrobotEnv:
            self.inner.LINK_COM_POS_1 = self.inner.LINK_LENGTH_1 / 2
            self.inner.dt = 0.05
            self.inner.AVAIL_TORQUE = [-self.inner.torque, self.inner.torque]
        self.advance_inner = ADVANCES[of.env]
        self.delay, self.aim, self.drive = variant["delay"], variant["aim"], variant["drive"]
        self.signs, self.seen = np.array(variant["signs"]), [number for number, _ in of.readings]
        self.is_choice = not of.limit
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (len(self.seen),), np.float32)

    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Start as Gymnasium does with a seed of its own; no action is on its way."""
        observation = self.inner.reset(seed=int(random.integers(2**31)))[0]
        state = np.asarray(self.inner.state, np.float64)
        return np.concatenate([state, np.zeros(self.delay)]), observation[self.seen] * self.signs

    def advance(self, state: Array, actions: npt.NDArray[Any], noise: Array) -> StepResult:
        """Compute one step of n copies; a step at the set point is worth 1, and one far from it 0."""
        late = len(state) - self.delay
        asked = np.asarray(actions, np.float64).reshape(-1)
        asked = self.drive * (2 * asked - 1 if self.is_choice else asked)
        queue = [*state[late:], asked]
        acting = (queue[0] > 0).astype(np.int64) if self.is_choice else queue[0].astype(np.float32)[:, None]
        after = self.advance_inner(self.inner, state[:late], acting)
        error = after.state[self.of.regulated] - self.aim
        if self.of.env in TURNING:
            error = (error + np.pi) % (2 * np.pi) - np.pi
        rewards = 1 / (1 + (error / self.of.tolerance) ** 2)
        ended = after.ended & (self.of.env is CartPoleEnv)
        return StepResult(
            np.stack([*after.state, *queue[1:]]), after.observations[:, self.seen] * self.signs, rewards, ended
        )


class VariantEnv(DynamicsEnv):
    """A single environment of a variant, which is given as JSON."""

    def __init__(self, variant: str, render_mode: str | None = None) -> None:
        self.dynamics = Motion(json.loads(variant))
        self.observation_space, self.render_mode, self.state = self.dynamics.observation_space, render_mode, None
        self.action_space = gym.spaces.Discrete(2)
        if limit := self.dynamics.of.limit:
            most = getattr(self.dynamics.inner, limit)
            self.action_space = gym.spaces.Box(-most, most, (1,), np.float32)

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one step."""
        after = self.dynamics.advance(self.state[:, None], np.asarray(action).reshape(1, -1), np.zeros((1, 0)))
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), bool(after.ended[0]), False, {}


if "Nano-v0" not in gym.registry:
    gym.register("Nano-v0", VariantEnv)


def prompt_of(variant: Variant) -> str:
    """Describe a variant in a line: constants, delay, set point, signs of readings and of the actuator."""
    of, aim = FAMILIES[variant["family"]], variant["aim"]
    aims = " ".join(
        f"{round(value, 2) + 0:g}" for value in ((np.cos(aim), np.sin(aim)) if of.env in TURNING else (aim,))
    )
    constants = " ".join(f"{value:g}" for value in variant["values"].values())
    readings = " ".join(signed(sign, name) for sign, (_, name) in zip(variant["signs"], of.readings, strict=True))
    output = signed(variant["drive"], of.outputs[-1])
    return f"{variant['family']} {constants} late {variant['delay']} at {aims} from {readings} to {output}"


def signed(sign: float, text: str) -> str:
    """Return a text behind its sign."""
    return f"{'-' if sign < 0 else '+'}{text}"


def task_of(name: str, variant: Variant, solved: float | None = None) -> policygen.Task:
    """Write the task file of a variant beside the others; return the task."""
    of = FAMILIES[variant["family"]]
    system = {key: variant[key] for key in ("family", "values", "aim", "delay", "signs", "drive")}
    record: dict[str, Any] = {"name": name, "gym_id": "Nano-v0", "kwargs": {"variant": json.dumps(system)}}
    record |= {"about": prompt_of(variant), "max_steps": STEPS, "run": {"policy": "linear"}}
    record |= {"solved": solved} if solved is not None else {}
    record["observations"] = [{"name": name} for _, name in of.readings]
    record["actions"] = [{"name": of.outputs[0]} if of.limit else {"name": "action", "labels": list(of.outputs)}]
    file = PLACE / "envs" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tomli_w.dumps(record))
    return policygen.load_task(str(file), trust=True)


def weights_of(policy: LinearPolicy, variant: Variant) -> list[float]:
    """Return the weights of a policy of `builtin` where all signs are positive, then the bias.

    Of labels the sign of the difference matters only: the largest weight is 10.
    """
    of = FAMILIES[variant["family"]]
    names = [name for _, name in of.readings]
    found = np.zeros((len(names) + 1, len(policy.equations)))
    found[-1] = policy.bias
    for term, row in zip(policy.terms, policy.weights, strict=True):
        shifted, divisor = dict(policy.lets)[term.name].arguments  # (NAME - mean)/spread
        quantity, mean = shifted.arguments
        found[names.index(quantity.name)] = row / divisor.value
        found[-1] += row / divisor.value * (mean.value if shifted.function == "+" else -mean.value)
    weights = found[:, -1] if of.limit else found[:, 1] - found[:, 0]
    if not of.limit:
        weights *= 10 / max(1e-9, np.abs(weights[:-1]).max())
    return [rounded(weight) for weight in weights * variant["drive"] * np.array([*variant["signs"], 1])]


def text_of(weights: Sequence[float], variant: Variant) -> str:
    """Return equations in which the signs stand before the names, as in the prompt, and do not change the weights."""
    of = FAMILIES[variant["family"]]
    signs = zip(variant["signs"], of.readings, strict=True)
    terms = [f"{w:+g}*{signed(sign, name)}" for w, (sign, (_, name)) in zip(weights, signs, strict=False) if w]
    terms += [f"{weights[-1]:+g}"] if abs(weights[-1]) > 5e-3 else []
    *others, last = of.outputs
    total = signed(variant["drive"], f"({' '.join(terms) or '0'})")
    return "\n".join([*(f"{label} = 0" for label in others), f"{last} = {total}"])


def random_score(task: policygen.Task) -> float:
    """Return the mean return of random actions."""
    with Players(task, 1) as players:
        return statistics.mean(float(one.rewards.sum()) for one in players.play(RandomActor(task, SEED), FRESH))


def tuned_policies(task: policygen.Task, seed: int, iterations: int, episodes: int) -> list[LinearPolicy]:
    """Return the policies that `builtin` finds with tuning."""
    found: list[Any] = []
    settings: dict[str, Any] = {"refine": f"cma:{episodes}", "iterations": iterations, "episodes": 10, "jobs": 1}
    settings |= {"final_episodes": 2, "fragility": False, "policy": "linear"}
    policygen.run(task, seed=seed, out=PLACE / "data", on_attempt=found.append, **settings)
    return [one.policy for one in found if isinstance(one.policy, LinearPolicy) and one.policy.weights.any()]


def append(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines."""
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def rows_in(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, if it is there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def draw_variants(families: Sequence[str]) -> None:
    """Draw the held-out variants with their thresholds: of the best of several tuned policies, on fresh episodes.

    Left out are those of which no tuned policy has half of the return that is possible.
    """
    for family in families:
        known = [row["number"] for row in rows_in(VARIANTS) if row["family"] == family]
        numbers = itertools.count(max(known, default=-1) + 1)
        while len(known) < HELD_OUT:
            variant = drawn(family, number := next(numbers), SEED)
            task, began = task_of(name := f"nano-{family}-{number}", variant), time.process_time()
            random = random_score(task)
            reference = max((evaluate(one, FRESH).mean for one in tuned_policies(task, SEED, 4, 500)), default=random)
            row = {"name": name, "number": number, **variant, "random": random, "reference": reference}
            row["threshold"] = random + SHARE * (reference - random)
            if reference >= STEPS / 2:
                append(VARIANTS, {**row, "seconds": round(time.process_time() - began, 1)})
                known.append(number)


def make_data(families: Sequence[str]) -> None:
    """Tune policies for the training variants; keep those that are good when their weights are rounded."""
    file = PLACE / "data.jsonl"
    known = {row["name"] for row in rows_in(file)}
    for number, family in itertools.product(range(TRAINING), families):
        if (name := f"train-{family}-{number}") in known:
            continue
        variant = drawn(family, number, SEED + 1)
        task, began = task_of(name, variant), time.process_time()
        random, scored = random_score(task), []
        for policy in tuned_policies(task, SEED + number, 3, 300):
            weights = weights_of(policy, variant)
            read = policygen.parse(f"```\n{text_of(weights, variant)}\n```", task, "linear")
            scored.append((evaluate(read, FRESH).mean, weights))
        best = max([random, *(score for score, _ in scored)])
        kept = [weights for score, weights in scored if score - random >= KEPT * (best - random)]
        row = {"name": name, "variant": variant, "random": random, "best": best}
        row |= {"policies": kept if best >= STEPS / 2 else []}
        append(file, {**row, "seconds": round(time.process_time() - began, 1)})


def row_of(name: str, variant: Variant, weights: Sequence[float]) -> dict[str, Any]:
    """Return a row of a dataset as `policygen dataset` writes it."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{prompt_of(variant)}\n"}]
    completion = [{"role": "assistant", "content": f"```\n{text_of(weights, variant)}\n```"}]
    return {"prompt": messages, "completion": completion, "task": name, "kind": "linear", "incumbent": ""}


def described(seed: int) -> list[dict[str, Any]]:
    """Return rows of all policies, each under many signs."""
    rng, found = np.random.default_rng(seed), []
    for row in training_rows():
        for weights, _ in itertools.product(row["policies"], range(COPIES // len(row["policies"]))):
            other = {**row["variant"], **dressed(row["variant"]["family"], rng)}
            found.append(row_of(row["name"], other, weights))
    return found


def practice() -> list[dict[str, Any]]:
    """Return rows without replies, of variants that no policy was tuned for: `rft` plays its own policies there."""
    found = []
    for number, family in itertools.product(range(TRAINING, TRAINING + PRACTISED), FAMILIES):
        variant, name = drawn(family, number, SEED + 1), f"train-{family}-{number}"
        task_of(name, variant, STEPS)
        found.append(row_of(name, variant, [0.0] * (len(variant["signs"]) + 1)))
    return found


def make_model(folder: Path, texts: Sequence[str], seed: int) -> None:
    """Save an untrained model that reads a name with its sign as one token, which it can repeat at once."""
    make_tiny_model(folder, context=160, hidden=160, layers=4, texts=texts, seed=seed)
    tokenizer, model = load_chat_model(str(folder))
    names = {name for of in FAMILIES.values() for name in (*(name for _, name in of.readings), of.outputs[-1], "(")}
    tokenizer.add_tokens([signed(sign, name) for name in sorted(names) for sign in (-1, 1)])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train(seed: int) -> None:
    """Train a model by sft on tuned policies under many signs, then by rft on other variants."""
    rows, more, own, place = described(seed), described(seed + 1_000), practice(), PLACE / f"{seed}"
    texts = [message["content"] for row in rows for message in row["prompt"] + row["completion"]]
    for out, base, given in (("sft", "base", rows), ("sft again", "sft", more), ("rft", "sft again", own)):
        if any(row["seed"] == seed for row in MEASURED.rows("training", out)):
            continue
        if out == "sft":
            shutil.rmtree(place, ignore_errors=True)
            make_model(place / base, texts, seed)
        shutil.rmtree(place / out, ignore_errors=True)
        began, settings = time.process_time(), dataclasses.replace(RFT if out == "rft" else SFT, seed=seed)
        result = finetune(given, own[:64], str(place / base), out=place / out, settings=settings, say=print)
        row = {"proposals": len(given), "readable": result.after.readable, "score": result.after.reward}
        row |= {"seconds": f"{time.process_time() - began:.0f}"}
        MEASURED.once(("training", out, seed), lambda row=row: [row])


def training_rows() -> list[dict[str, Any]]:
    """Return the training variants for which policies were found, with their policies."""
    return [row for row in rows_in(PLACE / "data.jsonl") if row["policies"]]


def place_of(variant: Variant) -> Array:
    """Return a system's constants, delay and set point, each from 0 to 1 over its range."""
    of = FAMILIES[variant["family"]]
    ranges = zip(variant["values"].values(), of.ranges.values(), strict=True)
    constants = [np.log(value / low) / np.log(high / low) for value, (low, high) in ranges]
    return np.array([*constants, variant["delay"] / 2, (variant["aim"] - of.aims[0]) / (of.aims[1] - of.aims[0])])


class Copy:
    """A provider that copies policies of training variants of the same family, with this variant's signs.

    Each is of a random variant, or, if `nearest`, of the most similar one whose policies are not used up.
    """

    spec = model = "copy"
    is_language_model = False

    def __init__(self, variant: Variant, seed: int, nearest: bool) -> None:
        own = [row for row in training_rows() if row["variant"]["family"] == variant["family"]]
        np.random.default_rng(seed).shuffle(own)  # type: ignore[arg-type]  # a list may be shuffled
        if nearest:
            own.sort(key=lambda row: np.linalg.norm(place_of(row["variant"]) - place_of(variant)))
        self.variant, self.policies = variant, itertools.cycle(row["policies"][0] for row in own)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer with the next copy."""
        text = text_of(next(self.policies), self.variant)
        return Reply(f"```\n{text}\n```", "copy", 0, 0, 0.0, 0.0, finish_reason="stop")


def llm_of(proposer: str, variant: Variant, seed: int) -> Any:
    """Return the provider of a proposer."""
    if proposer in ("copy", "nearest"):
        return Copy(variant, seed, proposer == "nearest")
    return (
        loaded(f"{seed}/{'sft again' if proposer == 'nano, sft' else 'rft'}")
        if proposer.startswith("nano")
        else proposer
    )


@functools.cache
def loaded(folder: str) -> LocalModel:
    """Return a trained model, as `--llm local:DIR` loads it."""
    return LocalModel(folder, LLMOptions())


def searched(variant: Variant, proposer: str, seed: int) -> list[dict[str, Any]]:
    """Propose until a policy reaches the threshold; return a row."""
    name, _, method = proposer.partition(" + ")
    found: list[Any] = []
    settings: dict[str, Any] = {
        "refine": METHODS.get(method, "none"),
        "iterations": CAP,
        "final_episodes": 2,
        "jobs": 1,
    }
    settings |= {"max_episodes": MOST_TUNED} if method else {}
    began = time.process_time()
    policygen.run(
        task_of(variant["name"], variant, variant["threshold"]),
        llm=llm_of(name, variant, seed),
        policy="linear",
        template="short",
        seed=seed,
        repairs=0,
        episodes=EPISODES,
        stop_at=variant["threshold"],
        max_output_tokens=COMMON["max_tokens"],
        fragility=False,
        out=PLACE / "runs",
        on_attempt=found.append,
        **settings,
    )
    tried = found[1:]
    good = [i for i, one in enumerate(tried, 1) if one.score is not None and one.score.mean >= variant["threshold"]]
    tried = tried[: good[0]] if good else tried
    return [
        {
            "proposals": good[0] if good else "",
            "readable": f"{sum(one.policy is not None for one in tried) / max(1, len(tried)):.3g}",
            "reached": int(bool(good)),
            "score": f"{max((one.score.mean for one in tried if one.score is not None), default=math.nan):.6g}",
            "episodes": tried[-1].standing.episodes if tried else 0,
            "seconds": f"{time.process_time() - began:.1f}",
        }
    ]


def runs_of(family: str, proposer: str, most: int = HELD_OUT) -> dict[str, list[dict[str, Any]]]:
    """Return the measured runs of a proposer by held-out variant, of the first ones of a family or of all."""
    names = [row["name"] for row in rows_in(VARIANTS) if family in ("all", row["family"]) and row["number"] < most]
    return {name: rows for name in names if (rows := MEASURED.rows(name, proposer))}


def count(row: dict[str, Any]) -> float:
    """Return the proposals until the threshold; one more than allowed if it was not reached."""
    return float(row["proposals"]) if row["reached"] else CAP + 1.0


def lines() -> Iterator[str]:
    """Yield the table of proposals until the threshold."""
    yield "| family | proposals from | runs | reached % | proposals: median | mean | first one reaches % | readable % |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for family, proposer in itertools.product((*FAMILIES, "all"), PROPOSERS):
        if not (runs := runs_of(family, proposer)):
            continue
        rows = list(itertools.chain.from_iterable(runs.values()))
        median = statistics.median(map(count, rows))
        cells = [family, proposer, f"{len(rows)}", f"{100 * statistics.mean(row['reached'] for row in rows):.0f}"]
        cells += [f"> {CAP}" if median > CAP else f"{median:g}"]
        cells += [spread([statistics.mean(map(count, some)) for some in runs.values()], ".1f")]
        cells += [f"{100 * statistics.mean(count(row) == 1 for row in rows):.0f}"]
        cells += [f"{100 * statistics.mean(row['readable'] for row in rows):.0f}"]
        yield f"| {' | '.join(cells)} |"


def gains(proposer: str, other: str, family: str) -> list[float]:
    """Return for each variant how many proposals more than `other` a proposer needs, over the seeds that both have."""
    own, others, found = runs_of(family, proposer), runs_of(family, other), []
    for name in own.keys() & others.keys():
        by_seed = {row["seed"]: count(row) for row in others[name]}
        pairs = [count(row) - by_seed[row["seed"]] for row in own[name] if row["seed"] in by_seed]
        found += [statistics.mean(pairs)] if pairs else []
    return found


def pair_lines() -> Iterator[str]:
    """Yield the table of paired differences, a variant being one observation."""
    yield "| model | against | family | variants | fewer proposals in | as many in | more in | difference |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for model, other, family in itertools.product(PROPOSERS[4:], PROPOSERS, (*FAMILIES, "all")):
        if PROPOSERS.index(other) < PROPOSERS.index(model) and (family == "all" or other == "builtin"):
            found = gains(model, other, family)
            signs = [sum(np.sign(found) == sign) for sign in (-1, 0, 1)]
            cells = [model, other, family, f"{len(found)}", *(f"{n}" for n in signs), spread(found, "+.1f")]
            yield f"| {' | '.join(cells)} |"


def tuned_lines() -> Iterator[str]:
    """Yield the table of episodes until the threshold, with and without tuning."""
    yield "| proposals and tuning | family | runs | reached % | real episodes: median | range |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for proposer, family in itertools.product(("builtin", "nano", *TUNED), (*FAMILIES, "all")):
        rows = [row for some in runs_of(family, proposer, max(TUNED.values())).values() for row in some]
        if rows:
            needed = [row["episodes"] if row["reached"] else math.inf for row in rows]
            median, least, most = (
                "not reached" if math.isinf(n) else f"{n:,.0f}"
                for n in (statistics.median(needed), min(needed), max(needed))
            )
            share = f"{100 * statistics.mean(row['reached'] for row in rows):.0f}"
            name = proposer if " + " in proposer else f"{proposer}, no tuning"
            yield f"| {name} | {family} | {len(rows)} | {share} | {median} | {least} to {most} |"


def training_lines() -> Iterator[str]:
    """Yield the table of the trainings."""
    yield "| training | seed | rows | readable % | reward | CPU s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in MEASURED.rows("training"):
        cells = [row["proposals from"], f"{row['seed']}", f"{row['proposals']:,.0f}", f"{100 * row['readable']:.0f}"]
        cells += [f"{row['score']:.2f}", f"{row['seconds']:.0f}"]
        yield f"| {' | '.join(cells)} |"


def publish() -> None:
    """Copy the first model beside the page, with a card that says how it was made, and a task to use it on."""
    made = PLACE / f"{SEEDS[0]}"
    shutil.copytree(made / "rft", PUBLISHED, ignore=shutil.ignore_patterns("checkpoints"), dirs_exist_ok=True)
    shutil.copytree(PLACE / "templates", PUBLISHED / "templates", dirs_exist_ok=True)
    cards = [(made / stage / "README.md").read_text() for stage in ("sft", "sft again", "rft")]
    (PUBLISHED / "README.md").write_text("\n#".join([CARD, *cards]).replace(f"{made}/", ""))
    example = (PLACE / "envs" / "nano-pendulum-0.toml").read_text()
    (PUBLISHED / "pendulum.toml").write_text(example.replace('"Nano-v0"', '"nano:VariantEnv"'))


def main() -> None:
    """Carry out what is asked for, and write the page's tables."""
    parser = parser_of(__doc__, SEEDS)
    parser.add_argument("--proposers", nargs="+", choices=[*PROPOSERS, *TUNED], default=[*PROPOSERS, *TUNED])
    asked = MEASURED.asked(parser, FAMILIES, "variants", "data", "train", "compare", "tune", "page")
    (PLACE / "templates").mkdir(parents=True, exist_ok=True)
    (PLACE / "templates" / "system.j2").write_text(SYSTEM)
    (PLACE / "templates" / "short.j2").write_text("{{ task.about }}\n")
    os.chdir(PLACE)
    if "variants" in asked.what:
        draw_variants(asked.tasks)
    if "data" in asked.what:
        make_data(asked.tasks)
    for seed in asked.seeds if "train" in asked.what else ():
        train(seed)
    by_number = sorted(rows_in(VARIANTS), key=lambda row: row["number"])  # interrupted, all families have as many
    held_out = [row for row in by_number if row["family"] in asked.tasks]
    for part, proposers in (("compare", PROPOSERS), ("tune", TUNED)):
        if part in asked.what:
            for seed, variant, proposer in itertools.product(asked.seeds, held_out, proposers):
                if proposer in asked.proposers and variant["number"] < TUNED.get(proposer, HELD_OUT):
                    key = (variant["name"], proposer, seed)
                    MEASURED.once(key, functools.partial(searched, variant, proposer, seed))
    if "page" in asked.what:
        for table in (lines(), pair_lines(), tuned_lines(), training_lines()):
            MEASURED.write_table(table)
        found = gains("nano", "builtin", "all")
        if len(MEASURED.rows("training", "rft")) == len(SEEDS) and statistics.mean(found) + half_interval(found) < 0:
            publish()


if __name__ == "__main__":
    main()
