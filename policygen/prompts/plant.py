"""The plant of a run that tunes by `model`, as a template sees it: its lines, and how well it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policygen.plants.account import PlantAccount, PredictionError, UncertainNumber, WorstPrediction
from policygen.plants.fit import AHEAD
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Plant
from policygen.policies.shaping import REWARD
from policygen.runs.state import Context, revised


@dataclass(frozen=True, slots=True)
class PlantView:
    """The plant so far: the one fitted last, or the one of the replies if a reply has written one since.

    Attributes:
        lines: the plant in the policy language.
        steps: number of steps it was fitted to; 0: its numbers are as written.
        regressed: left-hand sides of its lines that no reply and no task file has stated.
        errors: the observations, worst predicted first.
        largest: the largest of all these errors; 0 without any.
        ahead: number of steps that `PredictionError.ahead` looks ahead.
    """

    lines: tuple[str, ...]
    steps: int
    regressed: tuple[str, ...]
    errors: tuple[PredictionError, ...]
    largest: float
    ahead: int
    uncertain: tuple[UncertainNumber, ...]
    worst: WorstPrediction | None


def plant_view(context: Context) -> PlantView | None:
    """Return the view of the plant so far; None if the run does not tune in a plant."""
    if context.tuning is None or context.tuning.method != "model":
        return None
    stated = revised(context.task, context.attempts)
    account = _last_account(context)
    if account is None:
        return PlantView(stated.lines, 0, (), (), 0.0, AHEAD, (), None)
    lines = tuple(account.text.splitlines())
    errors = sorted(account.errors, key=lambda error: -error.larger)
    return PlantView(
        lines,
        account.steps,
        _regressed(lines, stated),
        tuple(errors),
        errors[0].larger if errors else 0.0,
        AHEAD,
        account.uncertain,
        account.worst,
    )


def _last_account(context: Context) -> PlantAccount | None:
    """Return the plant fitted last; None if there is none, or a reply after it has written another one."""
    for attempt in reversed(context.attempts):
        if attempt.tuned.fitted_plant is not None or attempt.plant is not None:
            return attempt.tuned.fitted_plant
    return None


def _regressed(lines: Sequence[str], stated: Plant) -> tuple[str, ...]:
    """Return the left-hand sides of the equations of motion, the reward and the end that `stated` does not have."""
    own = {f"{NEXT} {name}" for name, _ in stated.next}
    own |= {name for name, text in ((REWARD, stated.reward), (ENDS, stated.ends)) if text}
    sides = [line.partition(" = ")[0] for line in lines]
    moving = (side for side in sides if side.startswith(f"{NEXT} ") or side in (REWARD, ENDS))
    return tuple(side for side in moving if side not in own)
