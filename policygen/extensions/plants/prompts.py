"""The plant in prompts."""

from __future__ import annotations

from typing import Any

from policygen.extensions.plants.equations import ENDS, NEXT, REWARD, revised
from policygen.extensions.plants.fit import AHEAD
from policygen.extensions.plants.notes import FITTED_PLANT, PLANT
from policygen.runs.state import Context


def plant_view(context: Context) -> dict[str, Any]:
    """Return the plant so far for templates: the one fitted last, or that of the replies if one was written since."""
    stated = revised(context.task, map(PLANT.of, context.attempts))
    changes = (a for a in reversed(context.attempts) if FITTED_PLANT.of(a) is not None or PLANT.of(a) is not None)
    account = next(map(FITTED_PLANT.of, changes), None)
    lines = account.text.splitlines() if account is not None else stated.to_text().splitlines()
    own = {f"{NEXT} {name}" for name, _ in stated.next}
    own |= {name for name, text in ((REWARD, stated.reward), (ENDS, stated.ends)) if text}
    sides = [line.partition(" = ")[0] for line in lines] if account is not None else []
    regressed = tuple(s for s in sides if (s.startswith(f"{NEXT} ") or s in (REWARD, ENDS)) and s not in own)
    errors = sorted(account.errors, key=lambda error: -error.larger) if account is not None else []
    return {
        "lines": lines,
        "steps": account.steps if account is not None else 0,  # that it was fitted to; 0: its numbers are as written
        "regressed": regressed,  # left-hand sides of lines of a fit that no reply and no task file has stated
        "errors": errors,  # of the observations, worst predicted first
        "largest": errors[0].larger if errors else 0.0,
        "ahead": AHEAD,  # steps that `PredictionError.ahead` looks ahead
    }
