"""The limits of tuning a proposal: its method, its episodes, and about how many constants these suffice for.

The search for the numbers keeps to them, and prompts state them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policygen.runs.config import FOR_TABLES, RefineMethod, RunConfig
from policygen.tasks.task import PolicyKind, Task

Method = Literal["cma", "ars", "coordinate", "q", "sarsa", "policy-iteration", "model"]

FIRST_STEP = 0.2  # a constant's first changes are about 20% of its size
POPULATION = 12  # candidates of a generation, all on the same seeds
SEEDS_PER_GENERATION = 4  # at most: fewer where these tell the candidates apart as well
# The search drifts along what its few seeds reward, towards cliffs they do not show: of its own history the policy is
# chosen on episodes it has not seen, by successive halving, for this share of the budget.
VALIDATION_SHARE = 0.2
MOST_FOR_CMA = 100  # constants; `auto` takes another method for more
# Near the optimum of a bowl an evolution strategy over n constants takes at least 4 n candidates, each judged without
# noise, to come closer by a factor of e (Arnold, "Weighted multirecombination evolution strategies", Theoretical
# Computer Science 361, 2006: a progress of at most 0.25/n a candidate).
CANDIDATES_PER_CONSTANT = 4

EPISODES_OF_TUNING = 500  # a proposal, where nothing says how many
LEAST_SHARE = 200  # with fewer episodes, tuning does more harm than good
SCORES_OF_PROPOSAL = 4  # before and after tuning, a close comparison, and what validates a new best


@dataclass(frozen=True, slots=True)
class Tuning:
    """The limits of the search for a proposal's numbers.

    Attributes:
        method: `cma`, `ars`, or for the entries of a table one of `FOR_TABLES`; `cma` may turn out as `ars` for
            more than `most_for_cma` constants.
        episodes: that it may play; too few for it where 0.
        left, limit: episodes left to the whole run, and those it has in all; None without a limit.
        first_step: first changes of a constant, as a share of its size.
        generation, seeds: candidates of a generation, and the most episodes of each.
        constants: about how many of them the episodes carry.
    """

    method: Method
    episodes: int
    left: int | None
    limit: int | None
    first_step: float
    generation: int
    seeds: int
    constants: int


def tuning_of(
    number: int, task: Task, kind: PolicyKind, config: RunConfig, played: int, *, exact: bool = False
) -> Tuning | None:
    """Return the limits of tuning attempt `number`, after `played` episodes of the run; None where nothing is tuned.

    Args:
        exact: the MDP of the task is known.
    """
    if config.refine.method is None:
        return None
    choices = all(actuator.is_choice for actuator in task.actuators)
    method = method_for(config.refine.method, choices=kind == "table" and choices, exact=exact)
    if method in FOR_TABLES and not (kind == "table" and choices):
        return None
    left = config.max_episodes - played if config.max_episodes is not None else None
    # It is scored before it is tuned.
    episodes = max(0, episodes_of_tuning(number, config, left - config.episodes if left is not None else None))
    if method != "model" and episodes < POPULATION * SEEDS_PER_GENERATION:
        episodes = 0
    return Tuning(
        method,
        episodes,
        left,
        config.max_episodes,
        FIRST_STEP,
        POPULATION,
        SEEDS_PER_GENERATION,
        constants_for(episodes),
    )


def method_for(method: RefineMethod, *, choices: bool, exact: bool = False, constants: int = 0) -> Method:
    """Return `method`, or the method that `auto` stands for.

    Args:
        choices: the entries of a table are to be tuned, and are choices.
        exact: the MDP is known.
        constants: how many are to be tuned otherwise: by CMA-ES while that can be done.
    """
    if method != "auto" and not (method == "model" and choices):
        return method
    if choices:
        return "policy-iteration" if exact else "coordinate"
    return "cma" if constants <= MOST_FOR_CMA else "ars"


def episodes_of_tuning(number: int, config: RunConfig, left: int | None) -> int:
    """The episodes for tuning the scored proposal of attempt `number`, of those left to the run (None: no limit).

    Where the setting does not say how many, what is left is divided over the proposals to come. One more share is for
    the best policy in the end, which also gets what no proposal could use.
    """
    episodes = config.refine.episodes
    if config.refine.method == "model":  # takes few, and leaves the others
        return max(0, min(episodes or EPISODES_OF_TUNING, left if left is not None else EPISODES_OF_TUNING))
    if left is None:
        return episodes if episodes is not None else EPISODES_OF_TUNING
    if episodes is None:
        proposals = config.iterations * config.candidates - number + 1
        share = left // (proposals + 1) - SCORES_OF_PROPOSAL * config.episodes
        episodes = share if share >= LEAST_SHARE else 0
    # Scoring and validating the tuned policy, and scoring the rest of its round, must still be possible.
    return min(episodes, left - (2 + rest_of_round(number, config)) * config.episodes)


def rest_of_round(number: int, config: RunConfig) -> int:
    """Return the number of proposals that come after attempt `number` in its round."""
    return -number % config.candidates


def constants_for(episodes: int) -> int:
    """About how many constants so many episodes of tuning carry: those that they bring closer by a factor of e."""
    candidates = episodes * (1 - VALIDATION_SHARE) / SEEDS_PER_GENERATION
    return round(candidates / CANDIDATES_PER_CONSTANT)
