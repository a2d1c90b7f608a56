"""Measures what stands in finetune.md: a small transformer trained on searches by sft, rft, dpo and grpo.

python results/benchmarks/finetune.py [train] [runs] [page] [--seeds SEED ...] [--anew]

Needs `pip install "policygen[finetune]"`, and Linux for the memory of each training. Set OMP_NUM_THREADS=1. Every
training has a row of finetune.csv for each task that its model is asked for, and is not made again unless `--anew`
forgets them all. `runs` lets the models take part in runs (finetune_runs.csv). `page` writes the tables of finetune.md.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import re
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from measurements import HERE, Measurements, parser_of

import policygen
from policygen.extensions.training.dataset import Row, make_dataset
from policygen.extensions.training.finetune import FORMS, TrainingSettings, finetune, sample_replies
from policygen.extensions.training.reward import reward
from policygen.runs.attempt import text_digest
from policygen.runs.facts import plus_minus

sys.path.append(str(HERE.parent.parent / "tests"))
from tiny_model import make_tiny_model  # beside the tests, which train it, too

TASKS = ("cartpole", "pendulum")
COLUMNS = (
    *("task", "method", "seed", "on", "readable", "mean", "solved", "distinct", "replies"),
    *("seconds", "memory", "ended"),
)
MEASURED = Measurements("finetune", COLUMNS)
PLAYED = Measurements("finetune_runs", ("task", "model", "seed", "score", "attempts", "readable", "seconds"))
TRAINED = range(200, 205)  # seeds of the trainings
PAIRED = range(200, 210)  # seeds of the runs; each model takes part in two
PROPOSERS = ("builtin", "sft on both", "rft on it", "rft on the other")
PLACE = HERE.parent.parent / "build" / "finetune"
SEARCHES = 10  # of plain search, for each task and seed
REPLIES = 100  # of a model, for each row
EPISODES = 20  # that score each of these replies; no training plays them
COMMON = {"max_tokens": 72, "episodes": 10, "batch": 16}
SFT = TrainingSettings("sft", epochs=6, learning_rate=2e-3, **COMMON)
GRPO = TrainingSettings("grpo", epochs=60, samples=32, learning_rate=5e-4, **COMMON)
METHODS = {
    "rft": TrainingSettings("rft", epochs=4, rounds=8, samples=128, learning_rate=1e-3, **COMMON),
    "dpo": TrainingSettings("dpo", epochs=2, learning_rate=2e-4, beta=0.1, **COMMON),
    "grpo, beta 0": dataclasses.replace(GRPO, beta=0.0),
    "grpo, beta 0.03": dataclasses.replace(GRPO, beta=0.03),
    "grpo, beta 0, rate 2e-3": dataclasses.replace(GRPO, beta=0.0, learning_rate=2e-3),
    "grpo, beta 0.03, rate 2e-3": dataclasses.replace(GRPO, beta=0.03, learning_rate=2e-3),
}
FAST = [method for method in METHODS if "rate" in method]  # on the first task only
SYSTEM = "Write a policy.\n"
REQUEST = "{{ task.name }}: {% for o in task.observed %}{{ o.name }}, {% endfor %}to {{ outputs | join(', ') }}.\n"


def searches(task: str, seed: int) -> list[Path]:
    """Return runs of plain search with the short prompt, which are made if they are missing."""
    found = []
    for number in range(SEARCHES):
        folder = PLACE / f"{seed}" / "searches" / f"{task}-{number}"
        if not list(folder.glob("*/summary.json")):
            shutil.rmtree(folder, ignore_errors=True)
            policygen.run(
                task,
                llm="builtin",
                policy="linear",
                template="short",
                seed=1000 * seed + number,
                iterations=32,
                refine="none",
                episodes=10,
                final_episodes=2,
                fragility=False,
                jobs=1,
                out=folder,
            )
        found += folder.iterdir()
    return found


def shortened(text: str) -> str:
    """Return a reply of plain search with its weights over standardised quantities as weights of the quantities.

    Weights have two significant digits.
    """
    lets = re.findall(r"let (n_\w+) = \((\w+) ([+-]) (\S+)\)/(\S+)", text)
    scales = {name: (of, float(sign + shift), float(spread)) for name, of, sign, shift, spread in lets}
    lines = []
    for output, terms in re.findall(r"^(?!let )(\w+) = (.*)$", text, flags=re.MULTILINE):
        weights, bias = {}, 0.0
        for sign, number, name in re.findall(r"([+-]?) ?([\d.e-]+\d|\d)(?:\*(\w+))?", terms):
            of, shift, spread = scales[name] if name else ("", 1.0, 1.0)
            weight = float(sign + number) / spread
            bias += weight * shift
            if name:
                weights[of] = weight
        equation = " ".join(f"{weight:+.2g}*{of}" for of, weight in weights.items() if weight)
        lines.append(f"{output} = {equation} {bias:+.2g}" if equation else f"{output} = 0")
    return "\n".join(["```", *lines, "```"])


def rows_of(method: str, tasks: Sequence[str], seed: int) -> list[Row]:
    """Return the rows of a dataset for a method, with shortened replies."""
    folders = [folder for task in tasks for folder in searches(task, seed)]
    rows = make_dataset(folders, FORMS[method], top=1.0 if method == "sft" else None)[0]
    for row in rows:
        row["incumbent"] = ""  # the short prompt does not show it
        for name in {"completion", "chosen", "rejected"} & row.keys():
            row[name] = [{**message, "content": shortened(message["content"])} for message in row[name]]
    # Prompts are all the same, but the incumbents that a dataset tells apart are not.
    return list({json.dumps(row["prompt"]): row for row in rows}.values()) if FORMS[method] == "grpo" else rows


def answers(model: Path, task: str, seed: int) -> dict[str, Any]:
    """Ask a model for policies for a task, and score them on episodes that no training plays."""
    (row,) = rows_of("rft", [task], seed)
    texts = sample_replies(str(model), [row] * REPLIES, dataclasses.replace(SFT, seed=seed))
    scored = reward(task, EPISODES, seed=seed + 1, jobs=1).scored(texts, kind=["linear"] * REPLIES)
    scores = [one.score for one in scored if one.score is not None]
    policies = {text_digest(one.policy) for one in scored if one.policy}
    solved = policygen.load_task(task).solved
    assert solved is not None
    return {
        "readable": len(scores) / REPLIES,
        "mean": f"{statistics.mean(one.mean for one in scores):.6g}" if scores else "",
        "solved": sum(one.mean >= solved for one in scores) / REPLIES,
        "distinct": len(policies),
        "replies": REPLIES,
    }


def trained(on: str, method: str, seed: int) -> list[dict[str, Any]]:
    """Train a model and return a row for each task; `on` is a task, or for sft both."""
    place = PLACE / f"{seed}"
    tasks = TASKS if on == "both" else (on,)
    rows = rows_of(method.split(",")[0], tasks, seed)
    settings = dataclasses.replace(SFT if method == "sft" else METHODS[method], seed=seed)
    model = folder_of(on, method, seed)
    shutil.rmtree(model, ignore_errors=True)
    base = place / ("base" if method == "sft" else "both-sft")
    if method == "sft":
        texts = [message["content"] for row in rows for message in row["prompt"] + row["completion"]]
        make_tiny_model(base, context=256, hidden=128, layers=4, texts=texts, seed=seed)

    def train() -> dict[str, Any]:
        result = finetune(rows, [], str(base), out=model, settings=settings, say=functools.partial(print, flush=True))
        return {"ended": result.ended}

    cost = apart(train)
    return [{"on": task, **answers(model, task, seed), **cost} for task in TASKS]


def apart(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `work` does in a process of its own, with its CPU seconds and its peak memory in MiB."""

    def target() -> None:
        found, usage = work(), resource.getrusage(resource.RUSAGE_SELF)
        found |= {"seconds": f"{usage.ru_utime + usage.ru_stime:.1f}", "memory": f"{usage.ru_maxrss / 1024:.0f}"}
        sender.send(found)

    # Forked, so that imports count neither as time nor, beyond what they need, as memory.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        raise RuntimeError("the training failed, see above") from None
    process.join()
    return dict(found)


def untrained(seed: int) -> list[dict[str, Any]]:
    """Return a row for each task of the model before all training."""
    return [{"on": task, **answers(PLACE / f"{seed}" / "base", task, seed)} for task in TASKS]


def folder_of(task: str, method: str, seed: int) -> Path:
    """Return the folder of a trained model."""
    return PLACE / f"{seed}" / f"{task}-{method.replace(', ', '-').replace(' ', '')}"


def played(task: str, model: str, seed: int) -> list[dict[str, Any]]:
    """Carry out a run with a model of another seed or with plain search; return its row.

    A run without any policy counts with the score of its random actions.
    """
    llm = "builtin"
    if model != "builtin":
        method, _, on = model.partition(" on ")
        where = {"both": "both", "it": task, "the other": TASKS[1 - TASKS.index(task)]}[on]
        llm = f"local:{folder_of(where, method, TRAINED[seed % len(TRAINED)])}"
    began = time.process_time()
    result = policygen.run(
        task,
        llm=llm,
        policy="linear",
        template="short",
        seed=seed,
        iterations=10,
        repairs=0,
        refine="none",
        episodes=20,
        final_episodes=100,
        max_output_tokens=COMMON["max_tokens"],
        fragility=False,
        jobs=1,
        out=PLACE / "runs",
    )
    random, *attempts = result.attempts
    score = result.final or random.score
    assert score is not None
    return [
        {
            "score": f"{score.mean:.6g}",
            "attempts": len(attempts),
            "readable": sum(one.policy is not None for one in attempts),
            "seconds": f"{time.process_time() - began:.1f}",
        }
    ]


def spread(values: Sequence[float], form: str) -> str:
    """Return the mean with half of Student's 95% interval; fewer than five values themselves."""
    if len(values) < 5:
        return " / ".join(f"{value:{form}}" for value in values)
    return plus_minus(values, form, form.removeprefix("+"))


def quality(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells about replies: readable, mean return, solved, different policies."""
    return [
        spread([100 * row["readable"] for row in rows], ".0f"),
        spread([row["mean"] for row in rows if row["readable"]], ".0f"),
        spread([100 * row["solved"] for row in rows], ".0f"),
        spread([row["distinct"] for row in rows], ".0f"),
    ]


def lines() -> Iterator[str]:
    """Yield the table of the trainings, each judged on its own task."""
    yield "| task | training | seeds | readable % | mean return | solved % | different | CPU s | MiB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for task in TASKS:
        for method in ("untrained", "sft", *METHODS):
            of = "both" if method in ("untrained", "sft") else task
            if rows := [row for row in MEASURED.rows(of, method) if row["on"] == task]:
                known = [[row[name] for row in rows if row[name]] for name in ("seconds", "memory")]
                costs = [f"{statistics.mean(some):.0f}" if some else "" for some in known]
                cells = [task, method if of == "both" else f"sft, then {method}", f"{len(rows)}"]
                yield f"| {' | '.join([*cells, *quality(rows), *costs])} |"


def transfer_lines() -> Iterator[str]:
    """Yield the table of models asked for the task that they were not trained on last."""
    yield "| asked for | last trained on | training | seeds | readable % | mean return | solved % | different |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for other, task in zip(TASKS, reversed(TASKS), strict=True):
        before = [row for row in MEASURED.rows("both", "sft") if row["on"] == task]
        yield f"| {task} | both | sft | {len(before)} | {' | '.join(quality(before))} |"
        for method in METHODS:
            if rows := [row for row in MEASURED.rows(other, method) if row["on"] == task]:
                yield f"| {task} | {other} | sft, then {method} | {len(rows)} | {' | '.join(quality(rows))} |"


def run_lines() -> Iterator[str]:
    """Yield the table of runs, paired with those of plain search with the same seed."""
    yield "| run on | proposals from | seeds | readable % | final score | minus builtin, paired | minus sft, paired |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for task, model in itertools.product(TASKS, PROPOSERS):
        rows = {row["seed"]: row for row in PLAYED.rows(task, model)}
        gains = []
        for other in ("builtin", "sft on both"):
            scores = {row["seed"]: row["score"] for row in PLAYED.rows(task, other)}
            pairs = [row["score"] - scores[seed] for seed, row in rows.items() if seed in scores]
            gains.append(spread(pairs, "+.0f") if other != model else "")
        readable = [100 * row["readable"] / row["attempts"] for row in rows.values()]
        name = model if model == "builtin" else f"`local:`, {model}"
        cells = [task, name, f"{len(rows)}", spread(readable, ".0f")]
        yield f"| {' | '.join([*cells, spread([row['score'] for row in rows.values()], '.0f'), *gains])} |"


def prepare() -> None:
    """Change to the folder of the models, with the templates of the short prompt."""
    (PLACE / "templates").mkdir(parents=True, exist_ok=True)
    (PLACE / "templates" / "system.j2").write_text(SYSTEM)
    (PLACE / "templates" / "short.j2").write_text(REQUEST)
    os.chdir(PLACE)


def main() -> None:
    """Measure what is asked for, seed by seed, and write the page's tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    asked = MEASURED.asked(parser, TASKS, "train", "runs", "page")
    prepare()
    if "train" in asked.what:
        for seed in asked.seeds or TRAINED:
            MEASURED.once(("both", "sft", seed), functools.partial(trained, "both", "sft", seed))
            MEASURED.once(("both", "untrained", seed), functools.partial(untrained, seed))
        for method, seed, task in itertools.product(asked.methods, asked.seeds or TRAINED, asked.tasks):
            if method not in FAST or task == TASKS[0]:
                MEASURED.once((task, method, seed), functools.partial(trained, task, method, seed))
    if "runs" in asked.what:
        for seed, task, model in itertools.product(asked.seeds or PAIRED, asked.tasks, PROPOSERS):
            PLAYED.once((task, model, seed), functools.partial(played, task, model, seed))
    if "page" in asked.what:
        for table in (lines(), transfer_lines(), run_lines()):
            MEASURED.write_table(table)


if __name__ == "__main__":
    main()
