"""The columns of a trace: what reward and ends depend on, what the policy reads, what varies most, the rest in turn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.prompts.account import reached_its_goal
from policygen.quantities.tree import names_in, remembered_in
from policygen.tasks.task import Task
from policygen.tasks.vocabulary import DERIVED

MOST_COLUMNS = 12  # quantities of a trace before there is a policy
MOST_READ = 20  # quantities of a trace if the best policy consists of equations
IN_TURN = 2  # places of a trace for the quantities that would be left out; each prompt shows others of them
MOST_RELEVANT = 6  # observations that are shown whether or not the policy reads them
RELEVANT = 0.5  # an observation counts as relevant to reward or ends from this relevance on
LEAST_EXPLAINED = 0.02  # share of a variance below which an observation explains nothing
MOST_STEPS = 20_000  # more are thinned out before correlations with the reward are computed
_ABOUT_REWARD = re.compile(
    r"\b(rewards?|pays?|costs?|scores?|terminat\w*|ends?|ended|healthy|unhealthy|falls?|penal\w*)\b", re.IGNORECASE
)
_LONGEST_HEADING = 40
_COMMON = frozenset(
    ["each", "from", "joint", "more", "over", "positive", "negative", "step", "than", "that", "this", "time", "with"]
)


@dataclass(frozen=True, slots=True)
class Relevance:
    """The shares of reward and ends that each observation explains, and its variance, by name."""

    # A parabola over the observation after a step explains a share of the variance of the reward; a second one explains
    # a share of the variance of early ends. Each share is divided by the largest of all observations. The relevance is
    # the larger of the two, plus 1 if the documentation names the observation where it describes reward or ends. It is
    # 0 for observations in `further`.
    relevance: Mapping[str, float]
    variance: Mapping[str, float]  # over all steps
    # observations that follow from positions and velocities, such as the forces on each body, and are shown after them
    further: frozenset[str] = frozenset()
    turn: int = 0  # number of the prompt; it selects which of the remaining quantities are shown

    @property
    def relevant(self) -> list[str]:
        """The observations that reward or ends depend on, the most relevant first."""
        found = [name for name, value in self.relevance.items() if value >= RELEVANT]
        return sorted(found, key=lambda name: -self.relevance[name])


NOTHING_RELEVANT = Relevance({}, {})


def relevance_of(trajectories: Sequence[Trajectory], task: Task) -> Relevance:
    """Return the relevance of each observation in these episodes.

    The reward of the last step before an early end counts only towards the end. The part of the reward that numeric
    actions explain by themselves is subtracted first: random actions cost a lot, which would hide the rest.
    """
    names = task.observation_names
    if not trajectories or not names:
        return NOTHING_RELEVANT
    after = np.concatenate([t.observations[1:, : len(names)] for t in trajectories]).astype(np.float64)
    rewards = np.concatenate([t.rewards for t in trajectories]).astype(np.float64)
    actions = np.concatenate([t.actions.reshape(t.length, -1) for t in trajectories]).astype(np.float64)
    ended = np.zeros(len(rewards))
    last = np.cumsum([t.length for t in trajectories]) - 1
    ended[last] = [t.terminated and not reached_its_goal(t, task.solved) for t in trajectories]
    thinned = slice(None, None, 1 + len(rewards) // MOST_STEPS)
    inside = (ended == 0).nonzero()[0][thinned]
    documented = np.array([float(name in _documented(task)) for name in names])
    with np.errstate(all="ignore"):
        after = np.nan_to_num(after, posinf=0.0, neginf=0.0)
        rest = rewards[inside]
        if task.action_space == "box":
            powers = np.column_stack([np.ones(len(inside)), actions[inside], actions[inside] ** 2])
            rest = rest - powers @ np.linalg.lstsq(powers, rest, rcond=None)[0]
        shares = [_explained(after[inside], rest), _explained(after, ended)]
        relative = [share / share.max() if share.max() >= LEAST_EXPLAINED else 0.0 * share for share in shares]
        further = frozenset(o.name for o in task.observations if DERIVED.match(o.about))
        found = np.where([name in further for name in names], 0.0, documented + np.maximum(*relative))
        varying = after.var(axis=0)
    relevance, variance = (dict(zip(names, values.tolist(), strict=True)) for values in (found, varying))
    return Relevance(relevance, variance, further)


def _explained(columns: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the share of the variance of `values`, shape (n,), that a parabola over each column explains."""
    if len(values) < 3:
        return np.zeros(columns.shape[1])
    line = _standard(columns)
    bend = line**2 - (line**3).mean(axis=0) * line  # uncorrelated with the line
    target = _standard(values[:, None])
    return np.asarray(((line * target).mean(axis=0)) ** 2 + ((_standard(bend) * target).mean(axis=0)) ** 2)


def _standard(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return columns minus their mean, divided by their standard deviation; zeros for a constant one."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf))


def _documented(task: Task) -> set[str]:
    """Return the observations that the task's text names where it speaks of reward or ends.

    An observation is named by its name or by a word of its description that few others have.
    """
    words_read = set[str]()
    in_section = False
    for part in re.split(r"(?<=[.:])\s+|\n\s*\n", f"{task.about}\n\nreward: {task.reward} ends: {task.ends}"):
        relevant = _ABOUT_REWARD.search(part) is not None
        if part.endswith(":") and len(part) <= _LONGEST_HEADING:
            in_section = relevant
        if in_section or relevant:
            words_read |= {*re.findall(r"\w+", part), *_words(part)}
    words = {o.name: _words(f"{o.name} {o.about}") for o in task.observations}
    count = Counter(word for own in words.values() for word in own)
    few = max(3, len(words) // 3)
    return {name for name, own in words.items() if name in words_read or any(count[w] <= few for w in own & words_read)}


def _words(text: str) -> set[str]:
    """Return the longer words of a text in lower case, without the `s` of a plural."""
    found = re.findall(r"[a-z]{4,}", text.replace("_", " ").lower())
    return {word.removesuffix("s") for word in found} - _COMMON


def ranked(names: Sequence[str], best: Policy | None, relevance: Relevance, turn: int) -> list[str]:
    """Return the quantities to show, the most important first; if there are many, the last ones change with `turn`.

    The order is: observations that reward and ends depend on; features of `best` that remember themselves (a clock, a
    latch); the quantities that it reads, alternately an observation and a feature, those of its outputs before those of
    its features; and the rest, by variance.
    """
    lines = [names_in(node) for _, node in best.equations] if isinstance(best, LinearPolicy) else []
    lets = [names_in(node) for _, node in best.lets] if isinstance(best, LinearPolicy) else []
    direct, read = (frozenset().union(*some) for some in (lines, lets))
    states = {name for name, node in best.lets if name in remembered_in(node)} if isinstance(best, LinearPolicy) else ()
    variance = relevance.variance
    order = dict.fromkeys(name for name in relevance.relevant[:MOST_RELEVANT] if name in names)
    order |= dict.fromkeys(name for name in names if name in states)
    observed = [name for name in names if name in variance and name in direct]
    observed += [name for name in names if name in variance and name in read]
    features = [name for name in names if name not in variance and name in direct]
    features += [name for name in reversed(names) if name not in variance and name in read]  # decisive ones come last
    order |= dict.fromkeys(name for pair in zip_longest(observed, features) for name in pair if name is not None)
    order |= dict.fromkeys(sorted(names, key=lambda name: (name in relevance.further, -variance.get(name, 0.0))))
    most = MOST_READ if lines else MOST_COLUMNS
    if len(order) <= most:
        return list(order)
    kept, rest = list(order)[: most - IN_TURN], list(order)[most - IN_TURN :]
    return kept + [rest[(turn * IN_TURN + i) % len(rest)] for i in range(IN_TURN)]
