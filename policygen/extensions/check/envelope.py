"""The verified envelope of a policy: claims that hold everywhere in a box of observations, or that points violate."""

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
from policygen.extensions.check.intervals import EMPTY, Interval, Intervals, enclosing, joined, result
from policygen.extensions.export.arithmetic import Points
from policygen.extensions.export.program import Program, program_of
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Name, Node, Number, nodes_of

EPISODES = 20  # played to find a range for observations without bounds
STEPS = 20  # of random observations in a row, for a policy that remembers
_UNBOUNDED = 1e30  # environments often state the largest float where there is no bound
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDING = 1e-6  # share of its range by which an output may pass its limits
_PLAIN_ROUNDS, _PATIENT_ROUNDS = 3, 14  # before bounds of remembered values are doubled, and move faster and faster
_NARROWED = 200  # times that widened bounds are computed anew

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement on a value: to lie between two numbers, and perhaps not to be 0."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    nonzero: bool = False

    def proved(self, x: Interval) -> bool:
        """Whether every number of an interval meets it."""
        return self.low <= x.low and x.high <= self.high and not (self.nonzero and 0.0 in x)

    def violated(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the values that do not meet it."""
        violated: npt.NDArray[np.bool_] = (values < self.low) | (values > self.high) | (self.nonzero & (values == 0))
        return violated


_NOT_ZERO = Need("is not 0", nonzero=True)
_NOT_NEGATIVE = Need("is at least 0", low=0.0)
_POSITIVE = Need("is above 0", low=math.ulp(0.0))
_FITS = Need("does not overflow in single precision", -_LARGEST, _LARGEST)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on the values of an expression; a claim on overflow holds for all its parts, too.

    Attributes:
        need: what is claimed.
        low, high: bounds of all values in the box.
        sampled: the least and greatest value at the random points; None if all were NaN.
        violations: number of sampled values that violate it.
        verdict: `proved`, `not proved` or `violated`.
    """

    expression: str
    need: str
    low: float
    high: float
    sampled: tuple[float, float] | None
    violations: int
    verdict: str

    def __str__(self) -> str:
        text = f"{self.verdict}: {self.expression} {self.need}; its values: {_number(self.low)} to {_number(self.high)}"
        if self.verdict == "proved" or self.sampled is None:
            return text
        low, high = map(_number, self.sampled)
        return f"{text}, sampled: {low} to {high}, {self.violations:,} violations"


@dataclass(frozen=True)
class Envelope:
    """The claims on a policy.

    Attributes:
        box: range of each observation and remembered value that the policy reads, and its source.
        points: number of random points.
    """

    box: Mapping[str, tuple[float, float, str]]
    claims: Sequence[Claim]
    points: int

    @property
    def exit_code(self) -> int:
        """0 if all is proved, 1 if a point violates a claim, 3 if neither."""
        verdicts = {claim.verdict for claim in self.claims}
        return 1 if "violated" in verdicts else 3 if "not proved" in verdicts else 0

    def __str__(self) -> str:
        lines = [
            f"{name}: {_number(low)} to {_number(high)}, {source}" for name, (low, high, source) in self.box.items()
        ]
        lines += [""] + [str(c) for v in ("violated", "not proved", "proved") for c in self.claims if c.verdict == v]
        proved = sum(claim.verdict == "proved" for claim in self.claims)
        lines.append(f"{proved} of {len(self.claims)} claims are proved for all of these ranges;")
        return "\n".join([*lines, f"the others were only sampled, at {self.points:,} random points."])

    def to_record(self) -> dict[str, Any]:
        """Return the envelope as a record for JSON, with the exit code; a number beyond single precision is a text."""

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
    """Prove or sample that outputs stay in their limits, that all operations are defined, and that none overflows.

    Args:
        stated: ranges of observations. Others have the task's bounds or, where it has none, the range that episodes of
            the policy visit, and half of it more to both sides.

    Raises:
        UsageError: a range is stated for something that the policy does not observe.
        PolicyError: this kind of policy cannot be checked.
    """
    program = program_of(policy)
    box = _box(program, stated)
    known = {name: enclosing([low, high]) for name, (low, high, _) in box.items()}
    known |= _remembered(program, known)
    slots = [slot_of(name) for name in policy.remembers]
    remembered = {slot: (known[slot].low, known[slot].high, "as computed") for slot in slots}
    known = Intervals().assigned(program, known)
    steps = list(_sampled(program, box, points, seed))
    claims = []
    for expression, need, node in _claimed(program, known):
        bound = Intervals().value(node, known)
        with np.errstate(all="ignore"):
            values = np.concatenate([np.ravel(Points().value(node, step)) for step in steps])
        values = values[~np.isnan(values)]  # the operation that gave NaN has a claim of its own
        violations = int(need.violated(values).sum())
        verdict = "proved" if need.proved(bound) else "violated" if violations else "not proved"
        sampled = (float(values.min()), float(values.max())) if len(values) else None
        claims.append(Claim(expression, need.text, bound.low, bound.high, sampled, violations, verdict))
    return Envelope({**box, **remembered}, claims, points)


def _box(program: Program, stated: Ranges) -> dict[str, tuple[float, float, str]]:
    """Return low, high and source of each observation that a policy reads."""
    names = [name for _, name in program.observed]
    if strange := sorted(stated.keys() - set(names)):
        raise UsageError(f"--box {strange[0]}: the policy reads {', '.join(names)} and no such observation")
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
        source = (
            f"{least:.4g} to {most:.4g} in {EPISODES} episodes, and half of it more to both sides; no bounds are known"
        )
        box[name] = (max(low, least - more), min(high, most + more), source)
    return box


def _remembered(program: Program, observed: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return bounds of the remembered values after any number of steps; infinite ones where none were found."""
    slots = {slot_of(name): EMPTY for name in program.policy.remembers}
    for turn in itertools.count():
        after = _after(program, {**observed, **slots})
        if all(slots[slot].low <= x.low and x.high <= slots[slot].high for slot, x in after.items()):
            break
        grown = {slot: joined(slots[slot], x) for slot, x in after.items()}
        factor = 2.0 if turn < _PATIENT_ROUNDS else 2.0**turn
        slots = {s: _widened(slots[s], x, factor) if turn >= _PLAIN_ROUNDS else x for s, x in grown.items()}
    for _ in range(_NARROWED):  # bounds that hold after a step hold for the next
        before, slots = slots, _after(program, {**observed, **slots})
        if slots == before:
            break
    return slots


def _widened(before: Interval, x: Interval, factor: float) -> Interval:
    """Move the bounds that have moved to a multiple of their value, to 0, or beyond single precision."""
    low = x.low if x.low == before.low else min(factor * x.low, 0.0)
    high = x.high if x.high == before.high else max(factor * x.high, 0.0)
    return Interval(low if low > -_LARGEST else -math.inf, high if high < _LARGEST else math.inf)


def _after(program: Program, known: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return the remembered values after a step."""
    values, actuators = Intervals().assigned(program, known), program.policy.task.actuators
    after = {}
    for one in program.recollections:
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


def _sampled(program: Program, box: Mapping[str, Any], points: int, seed: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield all values of steps with random observations: three in ten are 0 or at a limit, the others uniform."""
    rng, memory = np.random.default_rng(seed), list[npt.NDArray[Any]]()
    steps = STEPS if program.policy.remembers else 1
    count = -(-points // steps)
    for _ in range(steps):
        rows = np.zeros((count, len(program.policy.task.observations)))
        for i, name in program.observed:
            low, high, _ = box[name]
            special = rng.choice([low, high, min(max(0.0, low), high)], count)
            rows[:, i] = np.where(rng.random(count) < 0.3, special, rng.uniform(low, high, count))
            if program.policy.task.observations[i].integer:
                rows[:, i] = np.rint(rows[:, i])
        values = Points().read(program, rows, memory)
        memory = Points().remembered(program, values, Points().decided(program, values, count))
        yield values


def _claimed(program: Program, known: Mapping[str, Interval]) -> Iterator[tuple[str, Need, Node]]:
    """Yield each claim: the expression in words, what it needs, and the expression."""
    for name, node in program.assignments:
        kind, _, rest = name.rpartition(" ")
        shown = to_text(node) if kind == "term" else rest
        for part, need in _needs(node, known):
            yield f"{to_text(part)} (in {shown})", need, part
        large = [part for part in nodes_of(node) if not _FITS.proved(Intervals().value(part, known))]
        if large and large[-1] is not node and kind != "output":  # a part comes after the whole
            yield f"{to_text(large[-1])} (in {shown})", _FITS, large[-1]
        elif not isinstance(node, Name):
            yield shown, _FITS, node
    for actuator in program.policy.task.actuators:
        if actuator.is_choice or isinstance(program.policy, TablePolicy):  # the actions of a table were checked before
            continue
        node, margin = Name(f"output {actuator.name}"), _ROUNDING * max(abs(actuator.low), abs(actuator.high))
        beyond = max(actuator.low - known[node.name].low, known[node.name].high - actuator.high)
        text = f"stays within {actuator.low:.6g} to {actuator.high:.6g} before it is clipped"
        text += f" (or passes them by at most {beyond:.6g})" if beyond > margin else ""
        yield actuator.name, Need(text, actuator.low - margin, actuator.high + margin), node


def _needs(root: Node, known: Mapping[str, Interval]) -> Iterator[tuple[Node, Need]]:
    """Yield the parts of an expression that an operation needs to be in its domain."""
    for node in nodes_of(root):
        match node:
            case Call("/" | "mod", (_, divisor)) if not isinstance(divisor, Number) or not divisor.value:
                yield divisor, _NOT_ZERO
            case Call("sqrt", (inner,)):
                yield inner, _NOT_NEGATIVE
            case Call("log", (inner,)):
                yield inner, _POSITIVE
            case Call("^", (base, power)):
                x = Intervals().value(power, known)
                if x.low != x.high or x.low % 1:
                    yield base, _POSITIVE if x.low < 0 else _NOT_NEGATIVE
                elif x.low < 0:
                    yield base, _NOT_ZERO
