"""Measures what stands in prompts.md: a chat model's replies to prompts that lack one of their parts.

python results/benchmarks/prompts.py [--jobs N] [--anew]

No language model is asked: the replies are in prompts_replies.json, with the number of characters of each prompt. Needs
`policygen[mujoco]` and `pip install --no-deps anesthesim==0.1.0`; set OMP_NUM_THREADS=1. Every result is a row of
prompts.csv and is not made again unless `--anew` forgets them all.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed
from measurements import HERE

import policygen
from policygen.llm.messages import Prompt, Reply
from policygen.runs.facts import plus_minus

FILE, PAGE, RECORDED = HERE / "prompts.csv", HERE / "prompts.md", HERE / "prompts_replies.json"
COLUMNS = ("request", "task", "without", "number", "characters", "written", "tuned")
SEED = 400
BETWEEN = "<!-- table -->"
FULL = ""  # `without` of a prompt with all its parts


class Written:
    """A provider that answers every prompt with one recorded reply."""

    spec, model, is_language_model = "recorded:chat", "chat", True

    def __init__(self, reply: str) -> None:
        self.reply = reply

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Return the reply."""
        return Reply(self.reply, self.model)


def measured(one: dict[str, Any], revised: dict[str, str]) -> dict[str, Any]:
    """Return the row of a reply: mean returns over 20 episodes, the same for all replies to a task."""
    is_first = one["request"] == "first"
    settings: dict[str, Any] = {"refine": "cma:600", "repairs": 0, "fragility": False, "jobs": 1, "final_episodes": 2}
    start = {} if is_first else {"start": revised[one["task"]]}
    with tempfile.TemporaryDirectory() as out:
        run = policygen.run(
            one["task"],
            llm=Written(one["reply"]),
            out=out,
            seed=SEED,
            iterations=1 + (not is_first),
            **settings,
            **start,
        )
        attempt = run.attempts[1 if is_first else 2]
    tuned, before = attempt.shared_score, attempt.tuned.proposed_score
    written = before or tuned
    scores = {"written": written.mean if written else None, "tuned": tuned.mean if tuned else None}
    return {**{name: one[name] for name in COLUMNS[:5]}, **scores}


def rows() -> list[dict[str, str]]:
    """Return the rows of prompts.csv."""
    if not FILE.exists():
        return []
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def mean_words(values: Sequence[float]) -> str:
    """Format a mean and, of two and more values, half its 95% interval."""
    if not values:
        return "no policy"
    return plus_minus(values, ",.4g") if len(values) > 1 else f"{values[0]:,.4g}"


def table(found: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield the lines of the page's table."""
    yield "| request | task | part removed | prompt length (characters) | replies | return as written | tuned return |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for request, task, without in dict.fromkeys((one["request"], one["task"], one["without"]) for one in found):
        own = [one for one in found if (one["request"], one["task"], one["without"]) == (request, task, without)]
        written, tuned = ([float(one[name]) for one in own if one[name]] for name in ("written", "tuned"))
        cells = (request, task, without or "none (full prompt)", f"{int(own[0]['characters']):,}", str(len(own)))
        yield f"| {' | '.join((*cells, mean_words(written), mean_words(tuned)))} |"


def main() -> None:
    """Measure the replies that prompts.csv lacks, and write the table into prompts.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--anew", action="store_true", help="forget all measurements made so far")
    asked = parser.parse_args()
    if asked.anew:
        FILE.unlink(missing_ok=True)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    known = {tuple(one[name] for name in COLUMNS[:4]) for one in rows()}
    missing = [one for one in recorded["replies"] if tuple(str(one[name]) for name in COLUMNS[:4]) not in known]
    work = (delayed(measured)(one, recorded["revised"]) for one in missing)
    is_new = not FILE.exists()
    with FILE.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in Parallel(asked.jobs, return_as="generator")(work):
            writer.writerow(row)
            file.flush()
            print(row, flush=True)
    before, _, after = PAGE.read_text(encoding="utf-8").split(BETWEEN)
    lines = [BETWEEN, "", *table(rows()), "", BETWEEN]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
