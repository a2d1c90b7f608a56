"""What several test modules need: tasks, written replies, a provider that speaks them, run folders, command lines."""

from __future__ import annotations

import csv
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forks
from forks import Fork

import policygen
from policygen.llm.messages import Prompt, Reply
from policygen.quantities.grid import Dimension, Grid
from policygen.runs.facts import read_record, run_facts
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

CHECKOUT = Path(policygen.__file__).parents[1]
TIMES = {"seconds", "wall_seconds", "llm_seconds"}


def foreign_variables() -> list[str]:
    """Variables of this process that could let a test reach a real service."""
    prefixes = ("OPENAI_", "GEMINI_", "GOOGLE_", "ANTHROPIC_", "OLLAMA_")
    return [name for name in os.environ if name.startswith(prefixes) or name.lower().endswith("_proxy")]


# --- tasks -----------------------------------------------------------------------------------------------------------

# What is known of an environment without a task file is found by playing it: once is enough for all tests that look.
discovered = functools.cache(load_task)

ARM = Task(
    name="arm",
    gym_id="Reacher-v5",
    observations=(Observation("x"), Observation("y")),
    actuators=(Actuator("shoulder", (), -1.0, 1.0, (("left", -1.0), ("off", 0.0))), Actuator("elbow", (), -2.0, 0.5)),
    action_space="box",
    max_steps=50,
    grid=Grid((Dimension("x", (0.0, 0.5)), Dimension("y", (-0.1,)))),
)
PAIR = Task(
    name="pair",
    gym_id="Pair-v0",
    observations=(Observation("x"), Observation("y")),
    actuators=(Actuator("gear", ("low", "high", "reverse")), Actuator("horn", ("0", "1"))),
    action_space="multidiscrete",
    max_steps=50,
    features=(("total", "x + y"),),
    grid=Grid((Dimension("total", (0.0,)), Dimension("y", (1.0, 2.0)))),
)


# --- replies ---------------------------------------------------------------------------------------------------------


def fenced(*lines: str) -> str:
    """A reply as models write it: a sentence, and the policy in a block."""
    return "\n".join(["The walker should keep away from holes.", "```", *lines, "```"])


def lake(*rows: str) -> str:
    """A reply with a table for the frozen lake."""
    return fenced("| row | column | action |", "|---|---|---|", *rows)


ALWAYS_DOWN = lake("| * | * | down |")
ALWAYS_RIGHT = lake("| * | * | right |")
# Left where that cannot slip into a hole, and so on: the best known table.
BEST_LAKE = lake(
    "| 0 | 0 | left |",
    "| 0 | 1-3 | up |",
    "| 1 | * | left |",
    "| 2 | 0 | up |",
    "| 2 | 1 | down |",
    "| 2 | * | left |",
    "| 3 | 1 | right |",
    "| * | * | down |",
)
MALFORMED_LAKE = lake("| 0 | 0 | north |", "| 0 | 7 | left |", "| * | * | down |")
NO_POLICY = "I would rather not say."


def pole(*rows: str) -> str:
    """A reply with a table for the cart and pole."""
    return fenced("| position | velocity | angle | spin | action |", "|---|---|---|---|---|", *rows)


ALWAYS_LEFT = pole("| * | * | * | * | left |")
LEANING = pole("| * | * | 0-2 | * | left |", "| * | * | * | * | right |")
FALLING = pole(
    "| * | * | 0-1 | * | left |",
    "| * | * | 4-5 | * | right |",
    "| * | * | * | 0-2 | left |",
    "| * | * | * | * | right |",
)


class Written:
    """A provider of one's own, as the library accepts it: says `texts` in order, with made-up token counts."""

    spec = "written:by-hand"
    model = "by-hand"
    is_language_model = True

    def __init__(self, texts: Iterable[str], *, tokens_in: int | None = 2000, tokens_out: int | None = 100) -> None:
        self.texts = list(texts)
        self.prompts: list[Prompt] = []
        self.tokens = (tokens_in, tokens_out)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        self.prompts.append(prompt)
        text = self.texts[len(self.prompts) - 1]
        return Reply(text, self.model, *self.tokens)


# --- run folders -----------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a log; none if it was never begun."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def figure(run: Path | Any, name: str) -> Any:
    """The value of a fact of a run as a whole; None if it has none of this name."""
    folder = run if isinstance(run, Path) else run.folder
    return next((one.value for one in run_facts(read_record(folder)) if one.name == name), None)


def transcript_of(folder: Path) -> list[dict[str, Any]]:
    """The exchanges of a run, every message with its content."""
    contents: dict[str, str] = {}
    found = [record for record in lines_of(folder / "transcript.jsonl") if "sent" not in record]
    for record in found:
        for message in record["messages"]:
            if (digest := message.pop("digest", None)) is not None:
                message["content"] = contents.setdefault(digest, message.get("content"))
    return found


def attempts_of(folder: Path) -> list[dict[str, Any]]:
    return lines_of(folder / "attempts.jsonl")


def page_of(folder: Path) -> str:
    """The report page of a run."""
    from policygen.extensions.page.render import write_page  # few tests draw

    with tempfile.TemporaryDirectory() as place:
        return write_page(folder, Path(place) / "page.html").read_text()


def the_run(out: Path) -> Path:
    """The only run folder under `out`."""
    (folder,) = out.iterdir()
    return folder


def timeless(value: Any) -> Any:
    """A JSON value without the durations in it."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return value


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run found and counted, without durations: what does not depend on when it ran or was interrupted."""
    with open(folder / "learning_curve.csv", newline="") as file:
        curve = [timeless(row) for row in csv.DictReader(file)]
    best = folder / "best.json"
    return {
        "attempts": timeless(attempts_of(folder)),
        "best": json.loads(best.read_text()) if best.exists() else None,
        "curve": curve,
        "summary": timeless(summary_of(folder)),
    }


def files_with(folder: Path, text: str) -> list[str]:
    """Names of the files under `folder` that contain `text`."""
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


# --- command lines ---------------------------------------------------------------------------------------------------


def environment(**variables: str) -> dict[str, str]:
    """The environment of a fresh process: nothing that leads to a real service, and this policygen."""
    kept = {name: value for name, value in os.environ.items() if name not in foreign_variables()}
    return {**kept, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "120", **variables}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "policygen", *map(str, arguments)]


def start_process(*arguments: object, cwd: Path, stderr: object = os.devnull, **variables: str) -> Fork:
    """Begin the command line in a process of its own, to be watched or ended."""
    streams = (os.devnull, os.devnull, stderr)
    return Fork(command(*arguments)[1:], cwd, environment(**variables), streams)


def in_a_process(
    *arguments: object, cwd: Path, stdin: str = "", timeout: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return forks.run(command(*arguments)[1:], cwd, environment(**variables), stdin, timeout)


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


Line = Callable[..., Said]


def sentences(text: str) -> Sequence[str]:
    """The lines of standard error that say something."""
    return [line for line in text.splitlines() if line.strip()]
