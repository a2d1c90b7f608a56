"""The verified envelope of a policy: claims for all observations in a box, proved or tested at random points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.errors import UsageError
from policygen.extensions.check.intervals import EMPTY, INTERVALS, Interval, enclosing, hull, result
from policygen.extensions.export.arithmetic import numpy_arithmetic, steps_of
from policygen.extensions.export.program import Program, program_of
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Name, Node, Number, nodes_of

EPISODES = 20  # played to find a range for observations without bounds
STEPS = 20  # consecutive steps with random observations, for a policy that remembers
_UNBOUNDED = 1e30  # larger bounds count as none: environments without bounds often state the largest float
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDING = 1e-6  # an output may exceed its limits by this share of the larger limit
_ROUNDS_BEFORE_WIDENING, _ROUNDS_BEFORE_FAST_WIDENING = 3, 14  # of the bounds of remembered values
_MOST_NARROWINGS = 200  # rounds that compute widened bounds anew, which only tightens them

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a value: `low` <= value <= `high`, and not 0 if `nonzero`."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    nonzero: bool = False

    def proved(self, x: Interval) -> bool:
        """Return whether every number of an interval meets the condition."""
        return self.low <= x.low and x.high <= self.high and not (self.nonzero and 0.0 in x)

    def violated(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the values that violate the condition."""
        violated: npt.NDArray[np.bool_] = (values < self.low) | (values > self.high) | (self.nonzero & (values == 0))
        return violated


_NOT_ZERO = Condition("is not 0", nonzero=True)
_NOT_NEGATIVE = Condition("is at least 0", low=0.0)
_POSITIVE = Condition("is above 0", low=math.ulp(0.0))
_FITS = Condition("does not overflow in single precision", -_LARGEST, _LARGEST)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about the values of an expression; a claim about overflow includes all parts of the expression."""

    expression: str
    need: str  # the condition that is claimed to hold
    low: float  # bounds of the expression's values for all observations in the box
    high: float
    sampled: tuple[float, float] | None  # least and greatest value at the random points; None if all were NaN
    violations: int  # number of sampled values that violate the condition
    verdict: str  # `proved`, `not proved` or `violated`

    def __str__(self) -> str:
        text = f"{self.verdict}: {self.expression} {self.need}; its values: {_number(self.low)} to {_number(self.high)}"
        if self.verdict == "proved" or self.sampled is None:
            return text
        low, high = map(_number, self.sampled)
        return f"{text}, sampled: {low} to {high}, {self.violations:,} violations"


@dataclass(frozen=True)
class Envelope:
    """The claims about a policy."""

    box: Mapping[str, tuple[float, float, str]]  # low, high and source of the range of each value that the policy reads
    claims: Sequence[Claim]
    points: int  # number of random points

    @property
    def exit_code(self) -> int:
        """0 if all claims are proved, 1 if a point violates one, 3 otherwise."""
        verdicts = {claim.verdict for claim in self.claims}
        return 1 if "violated" in verdicts else 3 if "not proved" in verdicts else 0

    def __str__(self) -> str:
        lines = [
            f"{name}: {_number(low)} to {_number(high)}, {origin}" for name, (low, high, origin) in self.box.items()
        ]
        lines += [""] + [str(c) for v in ("violated", "not proved", "proved") for c in self.claims if c.verdict == v]
        if not self.claims:
            return "\n".join([*lines, "", "Nothing to prove: no output has limits, and no operation can fail."])
        proved = sum(claim.verdict == "proved" for claim in self.claims)
        rest = f"; the others were only sampled, at {self.points:,} random points" if proved < len(self.claims) else ""
        return "\n".join([*lines, f"{proved} of {len(self.claims)} claims are proved for all of these ranges{rest}."])

    def to_record(self) -> dict[str, Any]:
        """Return the envelope as a record for JSON, with the exit code; numbers too large for float32 are texts."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: plain(item) for key, item in value.items()}
            if isinstance(value, list | tuple):
                return list(map(plain, value))
            return _number(value) if isinstance(value, float) and not abs(value) <= _LARGEST else value

        return {**plain(asdict(self)), "exit_code": self.exit_code}


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) <= _LARGEST else "-inf" if value < 0 else "inf"


def envelope(policy: Policy, stated: Ranges, points: int = 10_000, seed: int = 0) -> Envelope:
    """Check that outputs stay within their limits, that operations are defined, and that nothing overflows.

    Args:
        stated: ranges of some observations. The range of any other is its bounds in the task or, if it has none, the
            range that episodes of the policy visit, extended by half of its width on both sides.
        points: number of random points.
        seed: seed of the random points.

    Raises:
        UsageError: a range is stated for an observation that the policy does not read.
        PolicyError: this kind of policy cannot be checked.
    """
    program = program_of(policy)
    box = _box(program, stated)
    known = {name: enclosing([low, high]) for name, (low, high, _) in box.items()}
    remembered_values = _remembered_values(program, known)
    computed = {slot: (x.low, x.high, "as computed") for slot, x in remembered_values.items()}
    known |= remembered_values
    known = INTERVALS.assigned(program, known)
    steps = [values for values, _ in steps_of(program, _samples(program, box, points, seed))]
    claims = []
    for expression, condition, node in _expressions_to_check(program, known):
        bound = INTERVALS.value(node, known)
        with np.errstate(all="ignore"):
            values = np.concatenate([np.ravel(numpy_arithmetic().value(node, step)) for step in steps])
        values = values[~np.isnan(values)]  # the operation that returned NaN has a claim of its own
        violations = int(condition.violated(values).sum())
        verdict = "proved" if condition.proved(bound) else "violated" if violations else "not proved"
        sampled = (float(values.min()), float(values.max())) if len(values) else None
        claims.append(Claim(expression, condition.text, bound.low, bound.high, sampled, violations, verdict))
    return Envelope({**box, **computed}, claims, points)


def _box(program: Program, stated: Ranges) -> dict[str, tuple[float, float, str]]:
    """Return (low, high, source) of the range of each observation that a policy reads."""
    names = [name for _, name in program.observed]
    if unread := sorted(stated.keys() - set(names)):
        raise UsageError(f"--box {unread[0]}: the policy reads {', '.join(names)}; name one of these")
    box: dict[str, tuple[float, float, str]] = {}
    visited: npt.NDArray[Any] | None = None
    for i, name in program.observed:
        observation = program.policy.task.observations[i]
        low, high = stated.get(name, (observation.low, observation.high))
        if name in stated or max(-low, high) < _UNBOUNDED:
            box[name] = (low, high, "stated" if name in stated else "bounds of the task")
            continue
        if visited is None:
            with Players(program.policy.task) as players:
                played = players.play(program.policy, episode_seeds(0, "evaluation", EPISODES))
            visited = np.concatenate([episode.observations for episode in played])
        least, most = float(visited[:, i].min()), float(visited[:, i].max())
        more = (most - least) / 2 or 1.0
        source = f"{least:.4g} to {most:.4g} in {EPISODES} episodes, extended by half at both ends; no bounds are known"
        box[name] = (max(low, least - more), min(high, most + more), source)
    return box


def _remembered_values(program: Program, observed: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return bounds of the remembered values after any number of steps, by abstract interpretation; may be infinite."""
    values = {slot_of(name): EMPTY for name in program.policy.remembers}
    for rounds in itertools.count():
        after = _after_step(program, {**observed, **values})
        if all(values[slot].low <= x.low and x.high <= values[slot].high for slot, x in after.items()):
            break
        grown = {slot: hull(values[slot], x) for slot, x in after.items()}
        factor = 2.0 if rounds < _ROUNDS_BEFORE_FAST_WIDENING else 2.0**rounds
        values = {s: _widen(values[s], x, factor) if rounds >= _ROUNDS_BEFORE_WIDENING else x for s, x in grown.items()}
    for _ in range(_MOST_NARROWINGS):  # bounds after a step are bounds before the next
        before, values = values, _after_step(program, {**observed, **values})
        if values == before:
            break
    return values


def _widen(before: Interval, x: Interval, factor: float) -> Interval:
    """Move each bound of `x` that differs from `before` outward: to 0, to `factor` times it, or to infinity."""
    low = x.low if x.low == before.low else min(factor * x.low, 0.0)
    high = x.high if x.high == before.high else max(factor * x.high, 0.0)
    return Interval(low if low > -_LARGEST else -math.inf, high if high < _LARGEST else math.inf)


def _after_step(program: Program, known: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return bounds of the remembered values after a step with these observations and remembered values."""
    values, actuators = INTERVALS.assigned(program, known), program.policy.task.actuators
    after = {}
    for one in program.remembered_values:
        if one.actuator is None:
            after[slot_of(one.name)] = values[one.name]
            continue
        low, high, whole = program.policy.task.limits.bounds[one.actuator]
        decided = enclosing([low, high] if one.label is None else [0.0, 1.0])
        output = values.get(f"output {actuators[one.actuator].name}")
        if output is not None and one.label is None and not whole:
            decided = result("clip", output, enclosing([low]), enclosing([high]))
        after[slot_of(one.name)] = decided
    return after


def _samples(program: Program, box: Mapping[str, Any], points: int, seed: int) -> Iterator[npt.NDArray[Any]]:
    """Yield random observations for each step of episodes side by side: 30% are a limit or 0, the others uniform."""
    rng, steps = np.random.default_rng(seed), STEPS if program.policy.remembers else 1
    count = -(-points // steps)
    for _ in range(steps):
        rows = np.zeros((count, len(program.policy.task.observations)))
        for i, name in program.observed:
            low, high, _ = box[name]
            special = rng.choice([low, high, min(max(0.0, low), high)], count)
            rows[:, i] = np.where(rng.random(count) < 0.3, special, rng.uniform(low, high, count))
            if program.policy.task.observations[i].integer:
                rows[:, i] = np.rint(rows[:, i])
        yield rows


def _expressions_to_check(program: Program, known: Mapping[str, Interval]) -> Iterator[tuple[str, Condition, Node]]:
    """Yield what to claim: an expression as text, the condition, and the expression."""
    for name, node in program.assignments:
        kind, _, rest = name.rpartition(" ")
        shown = to_text(node) if kind == "term" else rest
        for part, condition in _domain_conditions(node, known):
            yield f"{to_text(part)} (in {shown})", condition, part
        large = [part for part in nodes_of(node) if not _FITS.proved(INTERVALS.value(part, known))]
        if large and large[-1] is not node and kind != "output":  # the innermost one comes last
            yield f"{to_text(large[-1])} (in {shown})", _FITS, large[-1]
        elif not isinstance(node, Name):
            yield shown, _FITS, node
    for actuator in program.policy.task.actuators:
        if actuator.is_choice or isinstance(program.policy, TablePolicy):  # a table's actions were checked on reading
            continue
        node, margin = Name(f"output {actuator.name}"), _ROUNDING * max(abs(actuator.low), abs(actuator.high))
        beyond = max(actuator.low - known[node.name].low, known[node.name].high - actuator.high)
        text = f"stays within {actuator.low:.6g} to {actuator.high:.6g} before it is clipped"
        text += f" (or passes them by at most {beyond:.6g})" if beyond > margin else ""
        yield actuator.name, Condition(text, actuator.low - margin, actuator.high + margin), node


def _domain_conditions(root: Node, known: Mapping[str, Interval]) -> Iterator[tuple[Node, Condition]]:
    """Yield the arguments of operations that are not defined for all numbers, each with its condition."""
    for node in nodes_of(root):
        match node:
            case Call("/" | "mod", (_, divisor)) if not isinstance(divisor, Number) or not divisor.value:
                yield divisor, _NOT_ZERO
            case Call("sqrt", (inner,)):
                yield inner, _NOT_NEGATIVE
            case Call("log", (inner,)):
                yield inner, _POSITIVE
            case Call("^", (base, power)):
                x = INTERVALS.value(power, known)
                if x.low != x.high or x.low % 1:
                    yield base, _POSITIVE if x.low < 0 else _NOT_NEGATIVE
                elif x.low < 0:
                    yield base, _NOT_ZERO
