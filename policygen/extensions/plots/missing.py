"""Files that a run lacks if it was killed at its very end; they are made from the run folder."""

from __future__ import annotations

from pathlib import Path

from policygen.extensions.plots.curves import draw_within
from policygen.files import remove_parts
from policygen.runs.logbook import Logbook


def make_missing(folder: Path) -> list[str]:
    """Make the missing files of a finished run; return their names, none for a complete or unfinished run.

    Raises:
        LogbookError: it is not a run folder, it is damaged, or another process works in it.
    """
    logbook = Logbook(folder)
    logbook.config()
    if logbook.summary() is None:
        return []
    logbook.hold()
    try:
        remove_parts(folder)
        attempts = logbook.attempts()
        best = next((attempt for attempt in reversed(attempts) if attempt.accepted), None)
        made = []
        if best is not None and not (folder / "best.json").exists():
            logbook.save_best(best)
            made.append("best.json")
        if not (folder / "learning_curve.csv").exists():
            logbook.write_curve(attempts)
            made.append("learning_curve.csv")
        if attempts and not (folder / "learning_curve.png").exists():
            draw_within(folder)
            made.append("learning_curve.png")
        return made
    finally:
        logbook.release()
