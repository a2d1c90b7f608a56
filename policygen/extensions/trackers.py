"""Trackers: listeners that write score, policy and cost of every attempt for TensorBoard or W&B.

Both write into the run's folder: `tensorboard --logdir results` shows what the first wrote; `wandb sync` uploads what
the second wrote, or WANDB_MODE=online uploads it at once.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from policygen.errors import LogbookError, UsageError
from policygen.files import json_of, read, write_atomically
from policygen.outgoing import redacted
from policygen.runs.attempt import Attempt, Costs, costs_of
from policygen.runs.facts import attempt_facts, record_of, run_facts
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Summary
from policygen.runs.notes import IDEA

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}

# Two functions: one writes named numbers and texts of an attempt, one closes the output.
Output = tuple[Callable[[int, Mapping[str, float | str]], None], Callable[[], None]]


class Tracker(Listener):
    """A listener that writes every attempt of a run once, including those that an interrupted process left out.

    Raises UsageError if the package of the tracker `name` is not installed.
    """

    def __init__(self, name: str) -> None:
        try:
            self._module: Any = importlib.import_module(PACKAGES[name])
        except ImportError:
            raise UsageError(f'--track {name} needs an extra: pip install "policygen[{name}]"') from None
        self.name, self.option = name, ("--track", name)
        self._last, self._costs = 0, Costs()

    def started(self, run: RunView) -> None:
        """Open the output; write the settings, and the attempts that it lacks."""
        self._run = run
        folder, self._state = run.folder / self.name, run.folder / f"track-{self.name}.json"
        if folder.is_symlink():
            raise UsageError(f"{folder} is a link; remove it")
        folder.mkdir(exist_ok=True)
        written, self._known = 0, secrets.token_hex(8)
        with suppress(FileNotFoundError, LogbookError, ValueError, KeyError, TypeError):
            state = read(self._state, json_of, most=2**16)
            if str(state["known"]).isalnum():
                written, self._known = int(state["attempts"]), state["known"]
        self._costs = costs_of(run.search.attempts[:written])
        values = run.config.model_dump(mode="json", exclude_none=True)
        settings = {name: redacted(value) if isinstance(value, str) else value for name, value in values.items()}
        make = _tensorboard if self.name == "tensorboard" else _wandb
        self._log, self._close = make(self._module, folder, self._known, settings)
        for attempt in run.search.attempts[written:]:
            self.attempted(attempt)

    def attempted(self, attempt: Attempt) -> None:
        """Write the attempt, and record that it is written."""
        self._last, self._costs = attempt.number, self._costs.plus(attempt.requests)
        texts = {
            "policy": attempt.policy.to_text(whole=True) if attempt.policy is not None else "",
            "verdict": " ".join(filter(None, (attempt.requests.model, IDEA.of(attempt), f"({attempt.verdict})"))),
        }
        figures = attempt_facts(attempt, self._costs)
        known = {f"attempt/{one.name}": one.amount for one in figures if one.amount is not None}
        self._log(attempt.number, known | {name: redacted(text) for name, text in texts.items() if text})
        write_atomically(self._state, json.dumps({"attempts": attempt.number + 1, "known": self._known}))

    def finished(self, summary: Summary) -> None:
        """Write the figures of the run as a whole."""
        figures = run_facts(record_of(self._run, summary))
        known = {f"{one.section}/{one.name}": one.amount for one in figures if one.amount is not None}
        self._log(self._last, {name.replace(" ", "_"): amount for name, amount in known.items()})

    def ended(self) -> None:
        """Close the output."""
        self._close()


def _tensorboard(module: Any, folder: Path, _: str, settings: Mapping[str, Any]) -> Output:
    # The names of event files state the second; another process may start in the same second.
    writer = module.SummaryWriter(str(folder), filename_suffix=f".{secrets.token_hex(4)}")

    def log(number: int, values: Mapping[str, float | str]) -> None:
        for name, value in values.items():
            if isinstance(value, str):  # quoted, because TensorBoard renders Markdown
                writer.add_text(name, "".join(f"    {line}\n" for line in value.split("\n")), number)
            else:
                writer.add_scalar(name, value, number)
        writer.flush()

    log(0, {"settings": json.dumps(settings, indent=1)})
    return log, writer.close


def _wandb(module: Any, folder: Path, known: str, settings: Mapping[str, Any]) -> Output:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    quiet = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True, "save_code": False}
    run = module.init(
        project=os.environ.get("WANDB_PROJECT", "policygen"),
        name=folder.parent.name,
        id=known,  # W&B shows the parts of a resumed run as one
        resume="allow",
        dir=str(folder.parent),  # W&B writes into its folder `wandb`
        mode=os.environ.get("WANDB_MODE", "offline"),
        config=settings,
        settings=module.Settings(**quiet),
    )
    return lambda number, values: run.log({"attempt": number, **values}), run.finish


def trackers(names: Sequence[str]) -> tuple[Tracker, ...]:
    """Return the trackers with these names, each once; raise UsageError if the package of one is not installed."""
    return tuple(map(Tracker, dict.fromkeys(names)))
