"""Measures what stands in nano.md: a transformer of 2 million parameters that proposes policies for unseen variants.

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

import finetune as trainings
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tomli_w
from finetune import spread
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, Continuous_MountainCarEnv, PendulumEnv
from measurements import HERE, Measurements, parser_of

import policygen
from policygen.episodes.dynamics import Array, Dynamics, DynamicsEnv, StepResult
from policygen.episodes.players import Players, evaluate
from policygen.episodes.score import episode_seeds, half_interval
from policygen.episodes.trajectory import RandomActor
from policygen.episodes.vector import ADVANCES
from policygen.extensions.training.finetune import TrainingSettings, finetune
from policygen.llm.base import LLMOptions
from policygen.llm.local import LocalModel, load_chat_model
from policygen.llm.messages import Prompt, Reply
from policygen.policies.linear import LinearPolicy

MEASURED = Measurements(
    "nano", ("variant", "proposals from", "seed", "proposals", "readable", "reached", "score", "episodes", "seconds")
)
VARIANTS = HERE / "nano_variants.jsonl"
PUBLISHED, NANO = HERE / "nano", "nano"  # folders of the model: beside the page, and where it is made
PLACE = HERE.parent.parent / "build" / "nano"
HELD_OUT, TRAINING = 10, 16  # variants of each family
SEED = 245  # of the held-out variants; training variants have the next one
SEEDS = range(245, 250)  # of the comparison
CAP = 30  # proposals
SHARE = 0.9  # of the way from random actions to the reference: the threshold
EPISODES = 20  # that score a proposal
FRESH = episode_seeds(24_500, "evaluation", 100)  # that score random actions, references and data
COPIES = 16  # rows with other names and units for each policy of the data
MOST_TUNED = 3_000  # episodes of a run with tuning
PROPOSERS = ("random", "builtin", "copy", "nano, sft", "nano")  # "copy" is no part of the product: see nano.md
TUNED = tuple(f"{one} + {method}" for method in ("cma", "model") for one in ("builtin", "nano"))
COMMON = {"max_tokens": 140, "episodes": 10, "batch": 16, "seed": SEED, "trust": True}
SFT = TrainingSettings("sft", epochs=4, learning_rate=2e-3, **COMMON)
RFT = TrainingSettings("rft", epochs=2, rounds=4, samples=8, learning_rate=5e-4, **COMMON)


@dataclass(frozen=True)
class Family:
    """A task of Gymnasium whose variants are drawn.

    Attributes:
        env: its class; variants differ in attributes, within `ranges` (factors on the shipped values).
        names: for each observation the names that a variant may have.
        units: for each observation its units with their factors; sideways ones also have a sign.
        sideways: numbers of the observations whose sign depends on which side counts as positive.
        outputs: names of the action, or sets of labels.
        inputs: for each quantity of the equations the number of the observation whose unit it has, else None.
    """

    env: type[gym.Env[Any, Any]]
    max_steps: int
    ranges: dict[str, tuple[float, float]]
    names: tuple[tuple[str, ...], ...]
    units: tuple[tuple[tuple[str, float], ...], ...]
    sideways: tuple[int, ...]
    outputs: tuple[tuple[str, ...], ...]
    step: float
    limit: str = ""  # attribute that limits the action; empty for labels
    inputs: tuple[tuple[str, int | None], ...] = ()


PLAIN = (("", 1.0),)
LENGTHS, SPEEDS = (("m", 1.0), ("cm", 100.0)), (("m/s", 1.0), ("cm/s", 100.0))
ANGLES, RATES = (("rad", 1.0), ("deg", 57.3)), (("rad/s", 1.0), ("deg/s", 57.3))
FAMILIES = {
    "cartpole": Family(
        CartPoleEnv,
        500,
        {
            "masscart": (0.5, 2),
            "masspole": (0.5, 4),
            "length": (0.6, 2),
            "force_mag": (0.8, 1.5),
            "gravity": (0.8, 1.2),
        },
        (("position", "x", "place"), ("velocity", "v", "speed"), ("angle", "tilt", "theta"), ("spin", "omega", "turn")),
        (LENGTHS, SPEEDS, ANGLES, RATES),
        (0, 1, 2, 3),
        (("left", "right"), ("minus", "plus"), ("west", "east")),
        0.02,
    ),
    "pendulum": Family(
        PendulumEnv,
        200,
        {"m": (0.7, 1.3), "l": (0.8, 1.25), "g": (0.8, 1.2), "max_torque": (0.9, 1.5)},
        (("cos", "up", "c"), ("sin", "side", "s"), ("rate", "omega", "spin")),
        (PLAIN, PLAIN, RATES),
        (1, 2),
        (("torque",), ("motor",), ("u",)),
        0.05,
        "max_torque",
        (("near_sin", 1), ("near_rate", 2), ("pump", None), ("swing", None)),
    ),
    "car": Family(
        Continuous_MountainCarEnv,
        999,
        {"power": (0.8, 1.5), "goal_position": (0.8, 1.1), "max_action": (0.8, 1.3)},
        (("position", "x", "place"), ("velocity", "v", "speed")),
        ((("m", 1.0), ("cm", 100.0)), (("m/step", 1.0), ("cm/step", 100.0))),
        (0, 1),
        (("force",), ("push",), ("u",)),
        1.0,
        "max_action",
    ),
    "acrobot": Family(
        AcrobotEnv,
        500,
        {"LINK_MASS_1": (0.7, 1.4), "LINK_MASS_2": (0.7, 1.4), "LINK_LENGTH_1": (0.8, 1.25)},
        (("cos1", "c1"), ("sin1", "s1"), ("cos2", "c2"), ("sin2", "s2"), ("rate1", "w1"), ("rate2", "w2")),
        (PLAIN, PLAIN, PLAIN, PLAIN, RATES, RATES),
        (1, 3, 4, 5),
        (("minus", "zero", "plus"), ("left", "none", "right")),
        0.2,
    ),
}
CARD = """# nano: a proposer of small policies

A transformer of 1.3 million parameters (bfloat16) that answers a line about a control task of four known kinds with
equations for it. It knows nothing else. `../nano.md` says what it is worth and how the line is written. It was made
from random weights by `make nano`, on policies that policygen's own search tuned on random variants of Gymnasium's
tasks. License: that of policygen. Its three trainings:
"""
Variant = dict[str, Any]
Matrix = npt.NDArray[np.float64]


def drawn(family: str, number: int, seed: int) -> Variant:
    """Draw a variant: a system in the first four entries, and in the others how it is described."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), number])
    of = FAMILIES[family]
    made: Any = of.env()
    values = {
        name: float(f"{getattr(made, name) * np.exp(rng.uniform(*np.log(bounds))):.3g}")
        for name, bounds in of.ranges.items()
    }
    delay, noise = int(rng.integers(3)), float(rng.choice([0.0, 0.0, 0.01]))
    return {"family": family, "values": values, "delay": delay, "noise": noise, **dressed(family, rng)}


def dressed(family: str, rng: np.random.Generator) -> Variant:
    """Draw names, units and the positive side of a variant."""
    of, side = FAMILIES[family], int(rng.integers(2))
    units = [some[int(rng.integers(len(some)))] for some in of.units]
    return {
        "names": [str(rng.choice(some)) for some in of.names],
        "units": [unit for unit, _ in units],
        "scales": [-scale if side and i in of.sideways else scale for i, (_, scale) in enumerate(units)],
        "side": ("right", "left")[side],
        "outputs": list(of.outputs[int(rng.integers(len(of.outputs)))]),
    }


class Motion(Dynamics):
    """The step of a variant: Gymnasium's, with a delayed action, and with other units and noise in what is read."""

    def __init__(self, variant: Variant) -> None:
        of = FAMILIES[variant["family"]]
        self.inner: Any = of.env()
        for name, value in variant["values"].items():
            setattr(self.inner, name, value)
        if of.env is Continuous_MountainCarEnv:
            self.inner.min_action = -self.inner.max_action
        if of.env is CartPoleEnv:
            self.inner.total_mass = self.inner.masspole + self.inner.masscart
            self.inner.polemass_length = self.inner.masspole * self.inner.length
            self.inner.spec = gym.spec("CartPole-v1")
        if of.env is AcrobotEnv:
            self.inner.LINK_COM_POS_1 = self.inner.LINK_LENGTH_1 / 2
        self.advance_inner = ADVANCES[of.env]
        self.delay, self.deviation = variant["delay"], variant["noise"]
        self.scales = np.array(variant["scales"])
        self.is_choice = not of.limit
        self.rest = len(variant["outputs"]) // 2 if self.is_choice else 0  # the action before the first
        width = len(self.scales)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.noise_width = width if self.deviation else 0

    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Start as Gymnasium does with a seed of its own; no action is on its way."""
        observation = self.inner.reset(seed=int(random.integers(2**31)))[0]
        read = observation + self.deviation * random.standard_normal(len(observation))
        state = np.asarray(self.inner.state, np.float64)
        return np.concatenate([state, np.full(self.delay, self.rest)]), read * self.scales

    def advance(self, state: Array, actions: npt.NDArray[Any], noise: Array) -> StepResult:
        """Compute one step of n copies."""
        late = len(state) - self.delay
        inner, queue = state[:late], [*state[late:], np.asarray(actions, np.float64).reshape(-1)]
        acting = queue[0].astype(np.int64) if self.is_choice else queue[0].astype(np.float32)[:, None]
        after = self.advance_inner(self.inner, inner, acting)
        read = after.observations + self.deviation * noise if self.deviation else after.observations
        moved = np.stack([*after.state, *queue[1:]])
        return StepResult(moved, read * self.scales, after.rewards, after.ended)


class VariantEnv(DynamicsEnv):
    """A single environment of a variant, which is given as JSON."""

    def __init__(self, variant: str, render_mode: str | None = None) -> None:
        self.dynamics = Motion(json.loads(variant))
        self.observation_space, self.render_mode, self.state = self.dynamics.observation_space, render_mode, None
        self.action_space = self.dynamics.inner.action_space
        if not self.dynamics.is_choice:
            limit = getattr(self.dynamics.inner, FAMILIES[json.loads(variant)["family"]].limit)
            self.action_space = gym.spaces.Box(-limit, limit, (1,), np.float32)

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one step."""
        noise = self.np_random.standard_normal((1, self.dynamics.noise_width))
        after = self.dynamics.advance(self.state[:, None], np.asarray(action).reshape(1, -1), noise)
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), bool(after.ended[0]), False, {}


if "Nano-v0" not in gym.registry:
    gym.register("Nano-v0", VariantEnv)


def prompt_of(variant: Variant) -> str:
    """Describe a variant in a line: quantities with units, outputs, limits, delay, noise and the physical constants."""
    of = FAMILIES[variant["family"]]
    quantities = [" ".join(pair).strip() for pair in zip(variant["names"], variant["units"], strict=True)]
    weighed = f": {' '.join(name for name, _ in of.inputs)}" if of.inputs else ""
    limit = f" to {variant['values'][of.limit]:.2g}" if of.limit else ""
    constants = " ".join(f"{name.lower()} {value:.2g}" for name, value in variant["values"].items() if name != of.limit)
    return (
        f"{', '.join(quantities)}{weighed}; + {variant['side']}; {' '.join(variant['outputs'])}{limit}; "
        f"step {of.step:g} delay {variant['delay']} noise {variant['noise']:g}; {constants}"
    )


def task_of(name: str, variant: Variant, solved: float | None = None) -> policygen.Task:
    """Write the task file of a variant beside the others; return the task."""
    of = FAMILIES[variant["family"]]
    names = variant["names"]
    system = {key: variant[key] for key in ("family", "values", "delay", "noise", "scales", "outputs")}
    record: dict[str, Any] = {"name": name, "gym_id": "Nano-v0", "kwargs": {"variant": json.dumps(system)}}
    record |= {"about": prompt_of(variant), "max_steps": of.max_steps, "run": {"policy": "linear"}}
    record |= {"solved": solved} if solved is not None else {}
    record["observations"] = [
        {"name": name, **({"unit": unit} if unit else {})} for name, unit in zip(names, variant["units"], strict=True)
    ]
    labels = {"name": "action", "labels": variant["outputs"]} if not of.limit else {"name": variant["outputs"][0]}
    record["actions"] = [labels]
    if of.inputs:
        cosine, sine, rate = names
        values, turning = variant["values"], f"{1 / variant['scales'][2]:.4g}*{rate}"
        record["inputs"] = [name for name, _ in of.inputs]
        record["features"] = {
            "energy": f"0.5*({turning})^2 + {1.5 * values['g'] / values['l']:.4g}*({cosine} - 1)",
            "near": f"{cosine} > 0.8",
            "near_sin": f"near*{sine}",
            "near_rate": f"near*{rate}",
            "pump": f"(1 - near)*clip(-({turning})*energy, -20, 20)",
            "swing": f"(1 - near)*sign({turning})",
        }
    file = PLACE / "envs" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tomli_w.dumps(record))
    return policygen.load_task(str(file), trust=True)


def factors(variant: Variant) -> list[float]:
    """Return the factors from base units to the variant's, for each quantity of the equations."""
    scales, inputs = variant["scales"], FAMILIES[variant["family"]].inputs
    return [1.0 if i is None else scales[i] for _, i in inputs] if inputs else list(scales)


def quantities_of(variant: Variant) -> list[str]:
    """Return the quantities of the equations by name."""
    return [name for name, _ in FAMILIES[variant["family"]].inputs] or list(variant["names"])


def weights_of(policy: LinearPolicy, variant: Variant) -> Matrix:
    """Return the weights of a policy of `builtin` over quantities in base units, then the bias.

    Of scores of labels only differences matter, and their sizes do not: the first is 0, and the largest weight 10.
    """
    quantities = quantities_of(variant)
    found = np.zeros((len(quantities) + 1, len(policy.equations)))
    found[-1] = policy.bias
    for term, row in zip(policy.terms, policy.weights, strict=True):
        shifted, divisor = dict(policy.lets)[term.name].arguments  # (NAME - mean)/spread
        quantity, mean = shifted.arguments
        found[quantities.index(quantity.name)] = row / divisor.value
        found[-1] += row / divisor.value * (mean.value if shifted.function == "+" else -mean.value)
    found[:-1] *= np.array(factors(variant))[:, None]
    if not FAMILIES[variant["family"]].limit:
        found -= found[:, :1]
        found *= 10 / max(1e-9, np.abs(found[:-1]).max())
    return found


def text_of(weights: Matrix, variant: Variant) -> str:
    """Return equations with weights in the variant's units, of two significant digits."""
    own = weights / np.array([*factors(variant), 1.0])[:, None]
    lines = []
    for output, column in zip(variant["outputs"], own.T, strict=True):
        terms = [f"{w:+.2g}*{q}" for q, w in zip(quantities_of(variant), column, strict=False) if float(f"{w:.2g}")]
        bias = [f"{column[-1]:+.2g}"] if abs(column[-1]) > 5e-3 else []
        lines.append(f"{output} = {' '.join([*terms, *bias]) or '0'}")
    return "\n".join(lines)


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
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def rows_in(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, if it is there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def draw_variants(families: Sequence[str]) -> None:
    """Draw the held-out variants with their thresholds: of the best of several tuned policies, on fresh episodes."""
    known = {row["name"] for row in rows_in(VARIANTS)}
    for number, family in itertools.product(range(HELD_OUT), families):
        if (name := f"nano-{family}-{number}") in known:
            continue
        variant = drawn(family, number, SEED)
        task, began = task_of(name, variant), time.process_time()
        random = random_score(task)
        reference = max(evaluate(one, FRESH).mean for one in tuned_policies(task, SEED, 4, 500))
        threshold = random + SHARE * (reference - random)
        row = {"name": name, **variant, "random": random, "reference": reference, "threshold": threshold}
        append(VARIANTS, {**row, "seconds": round(time.process_time() - began, 1)})


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
        for policy in tuned_policies(task, SEED + number, 2, 300):
            weights = weights_of(policy, variant)
            rounded = policygen.parse(f"```\n{text_of(weights, variant)}\n```", task, "linear")
            scored.append((evaluate(rounded, FRESH).mean, weights.tolist()))
        best = max(score for score, _ in scored)
        threshold = random + SHARE * (best - random)
        kept = [weights for score, weights in scored if score >= threshold]
        row = {"name": name, "variant": variant, "random": random, "best": best, "threshold": threshold}
        append(file, {**row, "policies": kept, "seconds": round(time.process_time() - began, 1)})


def row_of(name: str, variant: Variant, weights: Sequence[Any]) -> dict[str, Any]:
    """Return a row of a dataset as `policygen dataset` writes it."""
    messages = [
        {"role": "system", "content": trainings.SYSTEM},
        {"role": "user", "content": f"{prompt_of(variant)}\n"},
    ]
    text = f"```\n{text_of(np.array(weights), variant)}\n```"
    completion = [{"role": "assistant", "content": text}]
    return {"prompt": messages, "completion": completion, "task": name, "kind": "linear", "incumbent": ""}


def train() -> None:
    """Train by sft on all policies under many names and units, then by rft on the training variants."""
    data = training_rows()
    for row in data:
        task_of(row["name"], row["variant"], row["threshold"])
    own = [row_of(row["name"], row["variant"], row["policies"][0]) for row in data]
    rows, more = described(data, SEED + 2), described(data, SEED + 3)
    texts = [message["content"] for row in rows for message in row["prompt"] + row["completion"]]
    print(f"{len(rows)} rows of {len(data)} variants", flush=True)
    say = functools.partial(print, flush=True)
    longer = dataclasses.replace(SFT, epochs=6)
    for out, base, given, settings in (
        ("sft", "base", rows, SFT),
        ("sft again", "sft", more, longer),
        ("rft", "sft again", own, RFT),
    ):
        if MEASURED.rows("training", out):
            continue
        if out == "sft":
            shutil.rmtree(PLACE / base, ignore_errors=True)
            trainings.make_tiny_model(PLACE / base, context=320, hidden=160, layers=5, texts=texts, seed=SEED)
        if (PLACE / out / "README.md").exists():  # finished before the measurements were forgotten
            shutil.rmtree(PLACE / out)
        began = time.process_time()
        result = finetune(given, own[:: len(own) // 64 + 1], base, out=Path(out), settings=settings, say=say)
        row = {"proposals": len(given), "readable": result.after.readable, "score": result.after.reward}
        row |= {"seconds": f"{time.process_time() - began:.0f}"}
        MEASURED.once(("training", out, SEED), lambda row=row: [row])
    tokenizer, model = load_chat_model("rft")
    model.bfloat16().save_pretrained(NANO)
    tokenizer.save_pretrained(NANO)


def described(data: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return rows of all policies, each as its variant describes the system and under other names and units."""
    rows = []
    for number, row in enumerate(data):
        rng = np.random.default_rng([seed, number])
        for weights in row["policies"]:
            rows.append(row_of(row["name"], row["variant"], weights))
            for _ in range(COPIES):
                other = {**row["variant"], **dressed(row["variant"]["family"], rng)}
                rows.append(row_of(row["name"], other, weights))
    return rows


def training_rows() -> list[dict[str, Any]]:
    """Return the training variants for which policies were found, with their policies."""
    names = {f"train-{family}-{number}" for family in FAMILIES for number in range(TRAINING)}
    data = [row for row in rows_in(PLACE / "data.jsonl") if row["name"] in names]
    return [row for row in data if row["best"] > row["random"] and row["policies"]]


class Copy:
    """A provider that copies a policy of a random training variant of the same family, in this variant's units."""

    spec = model = "copy"
    is_language_model = False

    def __init__(self, variant: Variant, seed: int) -> None:
        own = [row for row in training_rows() if row["variant"]["family"] == variant["family"]]
        self.variant, self.policies = variant, [weights for row in own for weights in row["policies"]]
        self.rng = np.random.default_rng(seed)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer with the next copy."""
        weights = np.array(self.policies[self.rng.integers(len(self.policies))])
        return Reply(f"```\n{text_of(weights, self.variant)}\n```", "copy", 0, 0, 0.0, 0.0, finish_reason="stop")


def llm_of(proposer: str, variant: Variant, seed: int) -> Any:
    """Return the provider of a proposer."""
    if proposer.startswith("nano"):
        return loaded("sft again" if proposer == "nano, sft" else NANO)
    return Copy(variant, seed) if proposer == "copy" else proposer


@functools.cache
def loaded(folder: str) -> LocalModel:
    """Return a trained model, as `--llm local:DIR` loads it."""
    return LocalModel(folder, LLMOptions())


def searched(variant: Variant, proposer: str, seed: int) -> list[dict[str, Any]]:
    """Propose until a policy reaches the threshold; return a row."""
    name, _, method = proposer.partition(" + ")
    found: list[Any] = []
    settings: dict[str, Any] = {"refine": method or "none", "iterations": CAP, "final_episodes": 2, "jobs": 1}
    settings |= {"iterations": 6, "max_episodes": MOST_TUNED} if method else {}
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


def runs_of(family: str, proposer: str) -> dict[str, list[dict[str, Any]]]:
    """Return the measured runs of a proposer by held-out variant; without a family, of all."""
    names = [row["name"] for row in rows_in(VARIANTS) if family in ("all", row["family"])]
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
    for model, other, family in itertools.product(PROPOSERS[3:], PROPOSERS, (*FAMILIES, "all")):
        if other != model and (found := gains(model, other, family)):
            signs = [sum(np.sign(found) == sign) for sign in (-1, 0, 1)]
            cells = [model, other, family, f"{len(found)}", *(f"{n}" for n in signs), spread(found, "+.1f")]
            yield f"| {' | '.join(cells)} |"


def tuned_lines() -> Iterator[str]:
    """Yield the table of episodes until the threshold, with and without tuning."""
    yield "| proposals and tuning | family | runs | reached % | real episodes: median | range |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for proposer, family in itertools.product((*PROPOSERS, *TUNED), (*FAMILIES, "all")):
        rows = list(itertools.chain.from_iterable(runs_of(family, proposer).values()))
        if rows:
            needed = [row["episodes"] if row["reached"] else math.inf for row in rows]
            median, least, most = (
                "not reached" if math.isinf(n) else f"{n:,.0f}"
                for n in (statistics.median(needed), min(needed), max(needed))
            )
            share = f"{100 * statistics.mean(row['reached'] for row in rows):.0f}"
            name = proposer if " + " in proposer else f"{proposer}, no tuning"
            yield f"| {name} | {family} | {len(rows)} | {share} | {median} | {least} to {most} |"


def publish() -> None:
    """Copy the model beside the page, with a card that says how it was made."""
    shutil.copytree(PLACE / NANO, PUBLISHED, dirs_exist_ok=True)
    parts = [f"#{(PLACE / stage / 'README.md').read_text()}" for stage in ("sft", "sft again", "rft")]
    (PUBLISHED / "README.md").write_text("\n".join([CARD, *parts]))


def main() -> None:
    """Carry out what is asked for, and write the page's tables."""
    parser = parser_of(__doc__, SEEDS)
    parser.add_argument("--proposers", nargs="+", choices=[*PROPOSERS, *TUNED], default=[*PROPOSERS, *TUNED])
    asked = MEASURED.asked(parser, FAMILIES, "variants", "data", "train", "compare", "tune", "page")
    (PLACE / "templates").mkdir(parents=True, exist_ok=True)
    (PLACE / "templates" / "system.j2").write_text(trainings.SYSTEM)
    (PLACE / "templates" / "short.j2").write_text("{{ task.about }}\n")
    os.chdir(PLACE)
    if "variants" in asked.what:
        draw_variants(asked.tasks)
    if "data" in asked.what:
        make_data(asked.tasks)
    if "train" in asked.what:
        train()
    held_out = [row for row in rows_in(VARIANTS) if row["family"] in asked.tasks]
    for part, proposers in (("compare", PROPOSERS), ("tune", TUNED)):
        if part in asked.what:
            for seed, variant, proposer in itertools.product(asked.seeds, held_out, proposers):
                if proposer not in asked.proposers:
                    continue
                key = (variant["name"], proposer, seed)
                MEASURED.once(key, functools.partial(searched, variant, proposer, seed))
    if "page" in asked.what:
        for table in (lines(), pair_lines(), tuned_lines()):
            MEASURED.write_table(table)
        found = gains("nano", "builtin", "all")
        if found and statistics.mean(found) + half_interval(found) < 0:
            publish()


if __name__ == "__main__":
    main()
