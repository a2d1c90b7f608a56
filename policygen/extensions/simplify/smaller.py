"""Find a smaller policy that is not worse, without superfluous rows, terms and digits."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.race import Course, Race, lengths_up_to, race
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError, PolicygenError
from policygen.files import find_run
from policygen.llm import read_spec
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import Rule, TablePolicy, join_leaves, visible
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import to_digits
from policygen.quantities.tree import Call, Lets, Node, Number, constants, nodes_of, with_constants, with_plain_signs
from policygen.runs.logbook import Logbook
from policygen.runs.state import Search, Successor
from policygen.search.runner import EpisodeRunner

MARGIN = 0.01  # maximum mean loss, relative to the score or its standard deviation, whichever is larger
MAX_EPISODES = 20_000  # episodes after which no further candidate is played, by default
MAX_CELLS = 500_000  # maximum number of cells in all candidates together, at the end of a run
CHECKS = 4  # maximum number of policies that race once more, each on fresh seeds
MAX_LEAVES = 60
CORRECTIONS = 2  # how often a tree is trained again, also on the states that it visited itself
Box = tuple[range, ...]  # bins for each dimension


@dataclass(frozen=True, slots=True)
class Simplified:
    """The result of a simplification."""

    policy: Policy  # the smaller policy, or the original
    original: Policy
    race: Race | None  # of `policy` against the original, on fresh seeds; None if no smaller one was found
    tried: int  # number of candidates

    def __str__(self) -> str:
        if self.race is None:
            return f"no smaller policy was found that is not worse ({self.tried:,} candidates)"
        basis = "on fresh episodes: " if self.race.episodes else ""
        return f"from {size_words(self.original)} to {size_words(self.policy)}; {basis}{self.race}"


def size_words(policy: Policy) -> str:
    """Describe the size of a policy: the rows of a table, and the numbers and names in its text."""
    rows = f"{len(policy.rules)} row{'s' * (len(policy.rules) != 1)}, " if isinstance(policy, TablePolicy) else ""
    return f"{rows}{policy.size} numbers and names"


def simplify(
    policy: Policy,
    course: Callable[[str, int], Course],
    episodes: int,
    *,
    limit: int = MAX_EPISODES,
    candidates: float = math.inf,
    tell: Callable[[str], None] = lambda words: None,
) -> Simplified:
    """Find the smallest policy that is not worse: `Race.is_lost` decides, with a margin of 1%.

    Candidates race against the original, so that losses do not add up. A candidate that acts like the last accepted
    policy in its episodes need not play. The smallest policy may have been lucky, so it races once more on fresh seeds;
    if it loses, larger accepted policies follow.

    Args:
        course: returns a course for a purpose (see `episode_seeds`) and a number of seeds.
        episodes: length of a candidate's race, which begins with a fifth of them; the last race has twice as many.
        limit: number of episodes after which no further candidate is played; the last races come on top.
        candidates: number of candidates after which no further one is tried.
        tell: receives the size of every accepted policy, in words.

    Raises:
        PolicyError: this kind of policy cannot be simplified.
        EnvironmentFault: the environment failed.
    """
    if not isinstance(policy, LinearPolicy | TablePolicy):
        raise PolicyError(f"a policy of kind `{policy.kind}` cannot be simplified; tables and equations can")
    path = _Path(policy, course("simplify", episodes), lengths_up_to(episodes), limit, candidates, tell)
    trees = _trees(path, policy) if isinstance(policy, TablePolicy) else iter(())
    for number in range(CHECKS):
        if path.current is policy:  # at first, and after all smaller ones have lost
            next(trees, None)
            _shrink(path)
        if path.current is policy:
            break
        fresh = course(f"simplified {number}", 2 * episodes)
        checked = race(fresh.scorer(path.current), fresh.scorer(policy), [2 * episodes])
        if not checked.is_lost(MARGIN):
            return Simplified(path.current, policy, checked, path.tried)
        del path.policies[(len(path.policies) + 1) // 2 :]
    return Simplified(policy, policy, None, path.tried)


def simplified_best(search: Search, runner: EpisodeRunner) -> Successor | None:
    """Simplify the best table of a run of `builtin`, or of a replay of one.

    Candidates play at most as many episodes as the search did; if these are too few for one candidate, none is played.
    The larger the grid, the fewer candidates are tried, because each takes time for all of its cells.
    """
    best, usual, spent = search.incumbent, runner.config.episodes, runner.ledger.episodes
    last = 22 * usual  # episodes for a last race of both policies, 10 scores long, and the scores of its winner
    limit = spent if (left := runner.ledger.episodes_left) is None else min(spent, left - last)
    if not isinstance(best, TablePolicy) or limit < 6 * usual or _proposing(runner.config.llm) != "builtin":
        return None
    runner.tell("simplifying the best table")
    found = simplify(best, runner.course, 5 * usual, limit=limit, candidates=MAX_CELLS / best.grid.size)
    return Successor(str(found), found.policy if found.race is not None else None, found.race)


def _proposing(llm: str) -> str:
    """Return the name of the provider of a run or, if it is a replay, of the replayed run."""
    read = read_spec(llm)
    folder = find_run(read.argument).expanduser() if read.name == "replay" else None
    if folder is None or not (folder / "config.toml").is_file():
        return read.name
    return _proposing(Logbook(folder).config().llm)


@dataclass(eq=False)
class _Path:
    """The policies accepted so far, from the original on; none is worse than the original."""

    original: Policy
    course: Course
    lengths: tuple[int, int]  # of the races against the original
    most_episodes: float
    most_candidates: float
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.policies, self.tried = [self.original], 0
        self.latest: list[Trajectory] = []  # the episodes of the latest candidate
        self._known = {self.original.to_text(plain=True)}

    @property
    def current(self) -> Any:
        """The policy accepted last."""
        return self.policies[-1]

    def accept(self, candidate: Policy) -> bool:
        """Accept a new candidate unless it is worse; return whether it was accepted."""
        self.latest, text = [], candidate.to_text(plain=True)
        if self.tried >= self.most_candidates or text in self._known:
            return False
        self._known.add(text)
        self.tried += 1
        played, self.latest = self.course.played(self.current), self.course.played(candidate)
        if played and self.course.mdp is None and all(_same_actions(candidate, t) for t in played):
            self.latest.extend(played)
        elif self.course.count + self.lengths[-1] > self.most_episodes or race(
            self.course.scorer(candidate), self.course.scorer(self.original), self.lengths
        ).is_lost(MARGIN):
            self.course.forget(candidate)
            return False
        self.policies.append(candidate)
        self.tell(size_words(candidate))
        return True


def _same_actions(policy: Policy, episode: Trajectory) -> bool:
    """Whether a policy takes the actions of an episode."""
    observations = episode.observations[:-1]
    if not policy.remembers:
        return np.array_equal(policy.act(observations), episode.actions)
    return np.array_equal(
        policy.act_on_quantities(policy.reader.along((observations, episode.actions))), episode.actions
    )


def _shrink(path: _Path) -> None:
    """Drop rows and their conditions, parts of expressions, and digits."""
    policy = path.current
    if isinstance(policy, TablePolicy):
        _drop_rows(path)
    if policy.lets or isinstance(policy, LinearPolicy) or policy.task.has_numbers:
        tried = set[tuple[str, Node]]()
        while any(map(path.accept, _with_smaller_parts(path.current, tried))):
            pass
        rounded = (with_digits(path.current, digits) for digits in (2, 3, 4))
        any(path.accept(candidate) for candidate in rounded if candidate is not None)


# --- rows ------------------------------------------------------------------------------------------------------------


def _trees(path: _Path, table: TablePolicy) -> Iterator[None]:
    """Accept small decision trees over the visited cells, smallest first; yield after each.

    A tree that is worse adds the states that it visits to the training set of the next one (DAgger).
    """
    weights = _visits(table, path.course.episodes(table, path.lengths[-1]))
    for leaves in (*range(1, 16), *range(16, MAX_LEAVES, 4)):
        for _ in range(1 + CORRECTIONS):
            tree = replace(table, rules=tuple(tree_rules(table, weights, leaves)))
            if len(tree.rules) >= len(table.rules):
                return
            accepted = path.accept(tree)
            weights = weights + _visits(tree, path.latest)
            if accepted:
                yield
                path.course.forget(tree)
            if accepted or not path.latest:
                break


def _drop_rows(path: _Path) -> None:
    shape = path.current.grid.shape
    everything = tuple(tuple(range(size)) for size in shape)

    def accept(rules: Sequence[Rule]) -> bool:
        return path.accept(replace(path.current, rules=visible(rules, shape)))

    def without_a_row() -> Iterator[tuple[Rule, ...]]:
        rules = path.current.rules  # the last row must cover everything
        return (rest for i in range(len(rules)) if (rest := rules[:i] + rules[i + 1 :]) and rest[-1].bins == everything)

    accept(path.current.rules)
    while any(map(accept, without_a_row())):
        pass
    for i, axis in itertools.product(range(len(path.current.rules)), range(len(shape))):
        rules = path.current.rules
        if i < len(rules):
            wider = Rule((*rules[i].bins[:axis], everything[axis], *rules[i].bins[axis + 1 :]), rules[i].action)
            accept((*rules[:i], wider, *rules[i + 1 :]))


def _visits(policy: TablePolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """Count the visits of each cell, shape (cells,)."""
    steps = [(episode.observations[:-1], episode.actions) for episode in episodes if episode.length]
    if not steps:
        return np.zeros(policy.grid.size)
    return np.bincount(policy.reader.cells_along(*steps), minlength=policy.grid.size).astype(np.float64)


def tree_rules(policy: TablePolicy, weights: npt.NDArray[np.float64], leaves: int) -> list[Rule]:
    """Return the rows of a small decision tree, grown best first, that agrees with the policy in important cells.

    `weights`, shape (cells,), is the importance of each cell; cells with weight 0 may get any action. `leaves` is the
    maximum number of leaves.
    """
    kinds, codes = np.unique(policy.dense, axis=0, return_inverse=True)
    everything = tuple(map(range, policy.grid.shape))
    table, mass, count = codes.reshape(policy.grid.shape), weights.reshape(policy.grid.shape), itertools.count()

    def leaf(box: Box) -> tuple[float, int, tuple[int, int], int, Box]:
        inside = tuple(slice(bins.start, bins.stop) for bins in box)
        gain, cut = _best_cut(table[inside], mass[inside], len(kinds))
        # The action with the most visits or, if the box was never visited, the most cells.
        visits = mass[inside].ravel() if mass[inside].any() else None
        action = int(np.argmax(np.bincount(table[inside].ravel(), visits, minlength=len(kinds))))
        return -gain, next(count), cut, action, box

    waiting = [leaf(everything)]
    while len(waiting) < leaves and waiting[0][0] < 0:
        *_, (axis, at), _, box = heapq.heappop(waiting)
        for half in (box[axis][:at], box[axis][at:]):
            heapq.heappush(waiting, leaf((*box[:axis], half, *box[axis + 1 :])))
    if len(waiting) < leaves:
        waiting.sort()  # by age, because none can be cut any further
    merged = join_leaves([(tuple(map(tuple, box)), action) for *_, action, box in waiting])
    # The most frequent action becomes a last row of `*`.
    last = int(np.argmax(np.bincount([code for _, code in merged], minlength=len(kinds))))
    rows = [(box, code) for box, code in merged if code != last] + [(tuple(map(tuple, everything)), last)]
    return [Rule(box, tuple(kinds[code].tolist())) for box, code in rows]


def _best_cut(
    codes: npt.NDArray[np.intp], weights: npt.NDArray[np.float64], kinds: int
) -> tuple[float, tuple[int, int]]:
    """Return the gain in purity of the best cut (0 if there is none), its axis, and the number of bins below it."""
    best = (0.0, (0, 0))
    for axis, size in enumerate(codes.shape):
        if size == 1:
            continue
        lines, heavy = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (codes, weights))
        counts = np.stack([np.bincount(c, w, minlength=kinds) for c, w in zip(lines, heavy, strict=True)])
        low = np.cumsum(counts, axis=0)[:-1]
        gains = _purity(low) + _purity(counts.sum(axis=0) - low) - _purity(counts.sum(axis=0))
        at = int(np.argmax(gains))
        if gains[at] > best[0] + 1e-9:
            best = (float(gains[at]), (axis, at + 1))
    return best


def _purity(counts: npt.NDArray[Any]) -> Any:
    """Return the sum of n_k^2/n over actions k, for n visits: n times one minus the Gini impurity."""
    total = counts.sum(axis=-1)
    return (counts**2).sum(axis=-1) / np.maximum(total, 1e-300)


# --- parts of expressions, and digits --------------------------------------------------------------------------------


def _named(policy: Policy) -> Lets:
    """Return the expressions of a policy: its features and, if it has any, its equations."""
    return (*policy.lets, *policy.formulas())


def _with_nodes(policy: Policy, nodes: Sequence[Node]) -> Policy:
    """Return the policy with other expressions, without the features that it no longer uses."""
    named = tuple((name, node) for (name, _), node in zip(_named(policy), nodes, strict=True))
    count = len(policy.lets)
    changed: Policy = replace(policy, lets=named[:count])
    if isinstance(changed, LinearPolicy):
        changed = replace(changed, equations=named[count:])
    needed = {name for name, _ in changed.reader.needed}
    return replace(changed, lets=tuple((name, node) for name, node in changed.lets if name in needed))


def _with_smaller_parts(policy: Policy, tried: set[tuple[str, Node]]) -> Iterator[Policy]:
    """Yield the policy with one expression replaced by a smaller one that was not `tried`, largest saving first."""
    named = _named(policy)
    options = [(i, less) for i, (_, node) in enumerate(named) for less in smaller(node)]
    for i, less in sorted(options, key=lambda option: _size(option[1]) - _size(named[option[0]][1])):
        if (named[i][0], less) not in tried:
            tried.add((named[i][0], less))
            with suppress(PolicygenError):  # without this quantity the policy is invalid
                yield _with_nodes(policy, [less if k == i else node for k, (_, node) in enumerate(named)])


def _size(node: Node) -> int:
    return sum(1 for _ in nodes_of(node))


def smaller(node: Node) -> Iterator[Node]:
    """Yield smaller expressions, in which one part is replaced by one of its arguments or by 0."""
    if not isinstance(node, Call) or node.function == "fixed":
        if not isinstance(node, Number | Call):
            yield Number(0.0)
        return
    arguments = node.arguments
    yield from (argument for argument in arguments if not isinstance(argument, Number))
    if node.function == "-":
        yield Call("neg", (arguments[1],))
    yield Number(0.0)
    for i, argument in enumerate(arguments):
        for less in smaller(argument):
            if less != Number(0.0):  # a sum without the term is smaller than a sum with 0, and a product with 0 is 0
                yield Call(node.function, (*arguments[:i], less, *arguments[i + 1 :]))


def with_digits(policy: Policy, digits: int) -> Policy | None:
    """Return the policy with its numbers rounded to `digits` significant digits; None if that makes it invalid."""

    def change(value: float) -> float:
        return to_digits(value, digits) if np.isfinite(value) else value

    def rounded(rule: Rule) -> Rule:
        pairs = zip(rule.action, policy.task.actuators, strict=True)
        return Rule(rule.bins, tuple(value if actuator.is_choice else change(value) for value, actuator in pairs))

    try:
        nodes = [with_plain_signs(with_constants(n, map(change, constants(n)))) for _, n in _named(policy)]
        changed = _with_nodes(policy, nodes)
        if not isinstance(changed, TablePolicy):
            return changed
        grid = changed.grid
        if grid != policy.task.grid:
            grid = Grid(tuple(Dimension(d.name, tuple(map(change, d.edges))) for d in grid.dimensions))
        return replace(changed, grid=grid, rules=tuple(map(rounded, changed.rules)))
    except PolicygenError:  # equal edges, or an action out of range
        return None
