"""Complete the task and settings of a new run: the optimum if it can be computed, and the episodes per score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policygen.episodes.exact import best_return, finite_mdp
from policygen.episodes.score import ROUNDING, episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import EnvironmentFault, UsageError
from policygen.policies.linear import constant_policy
from policygen.runs.config import RunConfig
from policygen.runs.methods import METHODS
from policygen.runs.tuning import SCORES_OF_PROPOSAL
from policygen.tasks.environments import limit_of, opened, steps_taken
from policygen.tasks.perturbed_env import SPREAD_STEPS, spread_of
from policygen.tasks.task import DEFAULT_MAX_STEPS, OF_SPREAD, Optimum, Task, without_knowledge
from policygen.tasks.warmup import SURVIVAL

DEFAULT_EPISODES: int = RunConfig.model_fields["episodes"].default
LONG_EPISODE = 50  # steps; if episodes are at least this long, a score has the default number of them
# With 400 episodes, a gain of a fifth of the return's standard deviation is found at p <= 0.1 with a power of 94%,
# even if shared seeds do not help.
MAX_EPISODES = 400
CONSTANT_EPISODES = 3  # episodes of each constant action, to see whether episodes can be long
PATIENCE = 3  # attempts without a new best after which a run with limited steps ends
MIN_EPISODES = 4  # episodes of maximum length that a limit of steps must allow


def prepared(task: Task, config: RunConfig) -> tuple[Task, RunConfig]:
    """Return the completed task and settings of a new run."""
    task = without_knowledge(task) if config.ablate == "knowledge" else with_optimum(task)
    config = with_step_limit(task, config)
    task = with_spread(task, config.step_timeout)
    if config.refine.entry is not None:
        config.refine.entry.check(task)
    return with_sample_size(task, config)


def with_step_limit(task: Task, config: RunConfig) -> RunConfig:
    """Adapt the settings of a run with `max_steps`, unless a file, option or program sets them.

    A score takes a tenth of the steps, but 2 to 20 episodes, which are assumed to be as long as those of the warm-up
    or, if these were not measured, of full length. The run ends after 3 attempts without a new best. For equations,
    `--refine auto` means a method that needs few episodes, if one suits the task.

    Raises UsageError if the steps do not suffice for random actions, one episode of tuning, and a score.
    """
    if config.max_steps is None:
        return config
    longest, usual = task.most_steps, task.usual_steps or task.max_steps
    episodes = max(2, min(DEFAULT_EPISODES, config.max_steps // (10 * usual)))
    chosen: dict[str, object] = {"episodes": episodes, "patience": PATIENCE}
    if config.refine.method == "auto" and config.policy == "linear":
        suiting = (name for name, method in METHODS.items() if method.suits(task))
        chosen["refine"] = replace(config.refine, method=next(suiting, "auto"))
    before = task.steps_taken + SPREAD_STEPS * task.needs_spread
    steps_needed = before + MIN_EPISODES * longest
    if config.max_steps < steps_needed:
        besides = f", besides {before:,} steps before them" if before else ""
        raise UsageError(
            f"--max-steps {config.max_steps:,} is too few for {task.name}, whose episodes take up to "
            f"{longest:,} steps: use at least {steps_needed}, enough for {MIN_EPISODES} episodes{besides}"
        )
    kept = {name for name in config.model_fields_set if name != "refine"}
    return config.model_copy(update={name: value for name, value in chosen.items() if name not in kept})


def with_spread(task: Task, step_timeout: float) -> Task:
    """Return the task with the spread of its observations, if its perturbations are stated relative to it.

    The spread is measured here, so that neither other processes nor a resumed run measure it again.
    """
    if not task.needs_spread:
        return task
    before = steps_taken()
    with opened(replace(task, perturb=())) as env:
        spread = tuple(spread_of(env, step_timeout).tolist())
    known = tuple(replace(one, spread=spread) if one.name in OF_SPREAD else one for one in task.perturb)
    return replace(task, perturb=known, steps_taken=task.steps_taken + steps_taken() - before)


def with_optimum(task: Task) -> Task:
    """Return the task with its optimum, if it states none and its MDP is known.

    A threshold `solved` above what any policy can score is removed, with a sentence in `assumed`.
    """
    mdp = finite_mdp(task) if task.optimum is None else None
    if mdp is None:
        return task
    best, by_table, _ = best_return(mdp, task.max_steps)
    source = f"exact, by backward induction over {task.max_steps} steps"
    if by_table < best - ROUNDING:
        source = f"the best table found; a policy that counts steps could reach {best:.6g}"
    known = replace(task, optimum=Optimum(by_table, source))
    if task.solved is None or task.solved <= best + ROUNDING:
        return known
    sentence = f"{task.solved:g} counts as solved, says the task, but no policy scores more than {best:.6g}"
    return replace(known, solved=None, assumed=(*task.assumed, sentence))


def with_sample_size(task: Task, config: RunConfig) -> tuple[Task, RunConfig]:
    """Choose the number of episodes per score, unless a file, option or program sets it.

    The usual number is 20. Short episodes get more: with L the task's step limit or, if it has none, the mean length of
    20 episodes of random actions, a score has n = min(400, 20 * 50 / L) episodes. The usual number remains if

    - L is at least 50, or an episode of random or of constant actions is that long;
    - scores are exact, or all random episodes have the same return;
    - the task has no step limit, and longer episodes return more: a good policy may play for ever;
    - the steps of the run are limited, because its environment may be costly: no random episode is played.

    `max_episodes` limits n, because a proposal may need four scores: to a quarter of what tuning leaves of an equal
    share of these episodes, but to no less than 20. The number depends only on the task and the settings of a new run,
    so all runs choose the same. The returned task counts the steps played to choose it.
    """
    if "episodes" in config.model_fields_set or config.max_steps is not None:
        return task, config
    limit: int | None = task.max_steps
    if task.max_steps == DEFAULT_MAX_STEPS:  # the environment may have a limit
        with opened(task, cut=False) as env:
            limit = limit_of(env)
    if (limit is not None and limit >= LONG_EPISODE) or finite_mdp(task) is not None:
        return task, config
    with Simulator(replace(task, max_steps=LONG_EPISODE), config.step_timeout) as simulator:
        try:
            found = _episodes_if_short(task, simulator, limit)
        except EnvironmentFault:  # the run will report it
            found = None
    task = replace(task, steps_taken=task.steps_taken + simulator.steps)
    return task, config if found is None else config.model_copy(update={"episodes": _affordable(found, config)})


def _episodes_if_short(task: Task, simulator: Simulator, limit: int | None) -> int | None:
    """Return the number of episodes per score if episodes are short and their returns vary, else None."""
    lengths, returns, actor = [], [], RandomActor(task, 0)
    for seed in episode_seeds(0, "sample size", DEFAULT_EPISODES):
        played = simulator.play(actor, (seed,))[0]
        if played.length >= LONG_EPISODE:
            return None
        lengths.append(played.length)
        returns.append(played.episode_return)
    # Episodes of a good policy may be much longer than those of random actions; some constant actions show it.
    seeds = episode_seeds(0, "sample size", CONSTANT_EPISODES)
    for share in (0.0, 0.5, 1.0):
        constant = constant_policy(task, [a.low + share * (a.high - a.low) for a in task.actuators])
        if any(one.length >= LONG_EPISODE for one in simulator.play(constant, seeds)):
            return None
    if np.ptp(returns) == 0:
        return None
    if limit is None and np.ptp(lengths) > 0 and np.corrcoef(lengths, returns)[0, 1] > SURVIVAL:
        return None
    return min(MAX_EPISODES, int(DEFAULT_EPISODES * LONG_EPISODE / (limit or np.mean(lengths))))


def _affordable(episodes: int, config: RunConfig) -> int:
    if config.max_episodes is None:
        return episodes
    share = (config.max_episodes - config.warmup_episodes) // (config.iterations + 1)
    if config.refine.episodes is not None:
        share -= config.refine.episodes
    elif config.refine.method is not None:  # tuning gets the rest, which should be the larger part
        share //= SCORES_OF_PROPOSAL
    return max(DEFAULT_EPISODES, min(episodes, share // SCORES_OF_PROPOSAL))
