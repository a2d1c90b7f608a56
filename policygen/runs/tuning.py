"""The limits of tuning, and of comparisons with the best policy: the search obeys them, and prompts state them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from policygen.episodes.score import FAULTLESS
from policygen.runs.budget import episodes_within
from policygen.runs.config import RunConfig
from policygen.runs.methods import METHODS
from policygen.tasks.task import Task

FIRST_STEP = 0.2  # size of a constant's first changes, as a share of the constant
# The same for a policy that works already: a gait does not survive larger steps of all constants at once, but a policy
# that still falls needs them (results/benchmarks/first_steps.md).
CAREFUL_STEP = FIRST_STEP / 2
POPULATION = 12  # candidates of a generation, all on the same seeds
SEEDS_PER_GENERATION = 4  # at most; fewer if they are enough to rank the candidates
# The search overfits to its few seeds. So this share of the budget chooses the policy among those of its generations,
# by successive halving on new episodes.
VALIDATION_SHARE = 0.2
# Near the optimum of a quadratic function, without noise, an evolution strategy over n constants takes at least 4 n
# candidates to come closer by a factor of e (Arnold, "Weighted multirecombination evolution strategies", Theoretical
# Computer Science 361, 2006: a progress of at most 0.25/n per candidate).
CANDIDATES_PER_CONSTANT = 4

EPISODES_OF_TUNING = 500  # per proposal, by default
LEAST_SHARE = 200  # least episodes per proposal; with fewer, tuning does more harm than good
WARM_UP_SHARE = 0.05  # share of `max_steps` for random actions
SCORES_OF_PROPOSAL = 4  # before and after tuning, for a close comparison, and to validate a new best

SIGNIFICANCE = 0.1  # largest one-sided p-value of the paired test at which a challenger counts as better
LAST_SIGNIFICANCE = 0.2  # the same after the last prolongation, because both policies are then nearly equally good
PROLONGATIONS = (2, 4)  # multiples of the episodes of a score that a close comparison plays


def most_compared(episodes: int) -> int:
    """Return the most episodes of a comparison or validation, from the usual number of a score."""
    return max(PROLONGATIONS[-1] * episodes, FAULTLESS)


@dataclass(frozen=True, slots=True)
class TuningLimits:
    """The limits of tuning a proposal.

    Attributes:
        method: a name in `METHODS`.
        episodes: most episodes for tuning; 0 if too few are left.
        left, steps_left: episodes and steps of the environment left to the run; None without a limit.
        constants: about how many constants the episodes suffice for.
        first_step: size of a constant's first changes, as a share of the constant.
    """

    method: str
    episodes: int
    left: int | None
    steps_left: int | None
    constants: int
    first_step: float = FIRST_STEP


def tuning_limits(
    number: int,
    task: Task,
    config: RunConfig,
    played: int,
    *,
    steps: int = 0,
    length: int = 0,
    exact: bool = False,
) -> TuningLimits | None:
    """Return the limits of tuning attempt `number`; None if nothing is tuned.

    Args:
        played, steps: episodes and steps of the environment that the run has played.
        length: measured steps of an episode; 0: unknown, each counts at full length.
        exact: whether the task is a known MDP.
    """
    if config.refine.method is None:
        return None
    choices = all(actuator.is_choice for actuator in task.actuators)
    method = method_for(config.refine.method, choices=config.policy == "table" and choices, exact=exact)
    entry = METHODS[method]
    if entry.for_tables and not (config.policy == "table" and choices):
        return None
    steps_left = max(0, config.max_steps - steps) if config.max_steps is not None else None
    limits = [config.max_episodes - played] if config.max_episodes is not None else []
    limits += [episodes_within(steps_left, task.most_steps, length)] if steps_left is not None else []
    left = min(limits, default=None)
    # The proposal is scored before it is tuned.
    episodes = max(0, episodes_of_tuning(number, config, left - config.episodes if left is not None else None))
    if entry.most_episodes is not None:
        episodes = min(episodes, entry.most_episodes)
    elif episodes < POPULATION * SEEDS_PER_GENERATION:
        episodes = 0
    return TuningLimits(method, episodes, left, steps_left, constants_for(episodes))


def method_for(method: str, *, choices: bool, exact: bool = False) -> str:
    """Return the method to use: another one for `auto`, and for `model` if a table of choices is tuned.

    Args:
        choices: whether a table of choices is tuned.
        exact: whether the task is a known MDP.
    """
    if method != "auto" and not (METHODS[method].most_episodes is not None and choices):
        return method
    if choices:
        return "policy-iteration" if exact else "coordinate"
    return "cma"


def episodes_of_tuning(number: int, config: RunConfig, left: int | None) -> int:
    """Return the number of episodes for tuning attempt `number`, out of `left` (None: no limit).

    If the settings state no number, the remaining episodes are divided among the remaining proposals and the tuning at
    the end of the run. If they are too few for all, only the next proposals are tuned, as many as possible.
    """
    episodes = config.refine.episodes
    if config.refine.most_episodes is not None:  # a method that needs few episodes
        return max(0, min(episodes or EPISODES_OF_TUNING, left if left is not None else EPISODES_OF_TUNING))
    if left is None:
        return episodes if episodes is not None else EPISODES_OF_TUNING
    if episodes is None:
        episodes = shares(left, turns_from(number, config), config.episodes)[1]
    # Enough must remain to score and to validate the tuned policy.
    return min(episodes, left - 2 * config.episodes)


def shares(left: int, turns: int, episodes: int) -> tuple[int, int]:
    """Return how many turns can be tuned with `left` episodes, and the episodes for tuning each; 0, 0 if none.

    Turns that are not tuned are only scored and compared.

    Args:
        turns: the number of remaining proposals, plus 1 for the tuning at the end of the run.
        episodes: episodes of a score.
    """
    scores = SCORES_OF_PROPOSAL * episodes
    share = left // turns - scores
    if share >= LEAST_SHARE:
        return turns, share
    plain = scores // 2
    tuned = max(0, left - turns * plain) // (LEAST_SHARE + scores - plain)
    share = (left - (turns - tuned) * plain) // tuned - scores if tuned else 0
    return (tuned, share) if share >= LEAST_SHARE else (0, 0)


def turns_from(number: int, config: RunConfig) -> int:
    """Return how many turns share the budget left at attempt `number`: the proposals to come, and the last tuning.

    With limited steps only the next `patience` proposals count, because the run may end after these.
    """
    proposals = config.iterations - number + 1
    if config.max_steps is not None and config.patience is not None:
        proposals = min(proposals, config.patience)
    return max(2, proposals + 1)


def allowance(task: Task, config: RunConfig) -> str:
    """Describe what the limits of episodes and steps allow a new run; empty without such a limit."""
    by = list[tuple[int, str, str]]()
    if config.max_episodes is not None:
        left = max(0, config.max_episodes - config.warmup_episodes)
        by.append((left, "--max-episodes", f"{config.max_episodes:,} episodes"))
    if config.max_steps is not None:
        steps = int(config.max_steps * (1 - WARM_UP_SHARE)) - task.steps_taken
        at = f"{task.usual_steps:,} steps, as random ones take" if task.usual_steps else f"{task.most_steps:,} steps"
        count = episodes_within(steps, task.most_steps, task.usual_steps or 0)
        by.append((count, "--max-steps", f"{config.max_steps:,} steps, about {count:,} episodes of {at},"))
    if not by:
        return ""
    left, option, words = min(by)
    turns, each = turns_from(1, config), 2 * config.episodes  # a score, and another to compare or validate
    scored = left // config.episodes
    proposals = f"{config.iterations}" if scored >= config.iterations else f"about {scored}"
    words += f" allow {proposals} proposals with {config.episodes} episodes a score"
    if scored < config.iterations or config.refine.method is None or config.refine.most_episodes is not None:
        return words
    if config.refine.episodes is not None:
        share = config.refine.episodes
        tuned = left // (share + each)
        least = share + each
    else:
        tuned, share = shares(left, turns, config.episodes)
        least = turns * each + LEAST_SHARE + each
    if tuned >= min(config.iterations, turns - 1):
        return f"{words}, each tuned with about {share:,} more"
    if tuned:
        return f"{words}; {tuned} can be tuned, with about {share:,} more{' each' * (tuned > 1)}"
    if option == "--max-steps":
        needed = least * (task.usual_steps or task.most_steps) + task.most_steps + task.steps_taken
        least = math.ceil(needed / (1 - WARM_UP_SHARE))
    else:
        least += config.warmup_episodes
    fewer = ", or fewer --iterations" if config.refine.episodes is None else ""
    return f"{words}, none of them tuned: for that, allow {option} {least}{fewer}"


def constants_for(episodes: int) -> int:
    """Return for how many constants `episodes` are enough to come closer to the optimum by a factor of e."""
    candidates = episodes * (1 - VALIDATION_SHARE) / SEEDS_PER_GENERATION
    return round(candidates / CANDIDATES_PER_CONSTANT)
