"""Export to plain Python: one file, standard library only, the same decisions as numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from policygen.extensions.export.expressions import Language, Writer, number, weighted_sum
from policygen.extensions.export.program import (
    MANY_EDGES,
    Program,
    action_words,
    carried_out,
    cells_of,
    observation_rows,
    terms_of,
    text_lines,
    weights_of,
)
from policygen.extensions.export.words import Identifiers, in_columns, remark
from policygen.policies.linear import LinearPolicy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import INFINITE, slot_of

_HELPERS = {
    "_safe": '''def _safe(function, x, above=math.nan):
    """NaN where a function is undefined, `above` where its result is too large."""
    try:
        return function(x)
    except ValueError:
        return math.nan
    except OverflowError:
        return above''',
    "_log": """def _log(x):
    return math.log(x) if x > 0.0 else -math.inf if x == 0.0 else math.nan""",
    "_floor": """def _floor(x):
    return float(math.floor(x)) if math.isfinite(x) else x""",
    "_divide": """def _divide(a, b):
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a)""",
    "_power": """def _power(a, b):
    try:
        return math.pow(a + 0.0, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.inf if a == 0.0 else math.nan""",
    "_mod": '''def _mod(a, b):
    """The remainder with the divisor's sign."""
    return a % b if b != 0.0 and math.isfinite(a) else math.nan''',
    "_sign": """def _sign(x):
    return x if x != x else float((x > 0) - (x < 0))""",
    "_square": """def _square(x):
    return x * x""",
    "_least": """def _least(*values):
    return math.nan if any(value != value for value in values) else min(values)""",
    "_most": """def _most(*values):
    return math.nan if any(value != value for value in values) else max(values)""",
    "_prev": '''def _prev(before, start):
    """The remembered value, or the start if there is none yet."""
    return start if before != before else before''',
    "_finite": f'''def _finite(x):
    """NaN counts as 0, infinity as a million."""
    return x if math.isfinite(x) else 0.0 if x != x else math.copysign({INFINITE!r}, x)''',
    "_single": '''def _single(x):
    """Round to single precision, as actions are."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)''',
    "_whole": '''def _whole(x, last):
    """The nearest of the whole numbers 0 to last; last if x is NaN."""
    return 0 if x < 0.5 else int(x + 0.5) if x < last - 0.5 else last''',
}

PYTHON = Language(
    both="{0} and {1}",
    either="{0} or {1}",
    no="not ({0})",
    number_of_test="float({0})",
    choice="({1} if {0} else {2})",
    functions={
        "/": "_divide({0}, {1})",
        "^": "_power({0}, {1})",
        "atan2": "math.atan2({0} + 0.0, {1} + 0.0)",
        "mod": "_mod({0}, {1})",
        "sign": "_sign({0})",
        "min": "_least({0}, {1})",
        "max": "_most({0}, {1})",
        "clip": "_least(_most({0}, {1}), {2})",
        "abs": "abs({0})",
        "prev": "_prev({0}, {1})",
        "square": "_square({0})",
        "finite": "_finite({0})",
        "rint": "float(round({0}))",
        "exp": "_safe(math.exp, {0}, math.inf)",
        "log": "_log({0})",
        "floor": "_floor({0})",
        "tanh": "math.tanh({0})",
        "atan": "math.atan({0})",
        **{name: f"_safe(math.{name}, {{0}})" for name in ("sin", "cos", "tan", "sqrt")},
    },
    folded=("min", "max"),
    helpers=_HELPERS,
)


@dataclass
class _File:
    """A Python file under construction."""

    program: Program
    writer: Writer
    identifiers: Identifiers
    data: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)  # body of the function that acts


def as_python(program: Program) -> str:
    """Write one Python file with a function `act`; its first comment says how to call it."""
    identifiers = Identifiers()
    names = {name: identifiers.new("q", name) for _, name in program.observed}
    names |= {name: identifiers.new("d", name) for name, _ in program.definitions}
    names |= {slot_of(name): f"memory[{i}]" for i, name in enumerate(program.policy.remembers)}
    file = _File(program, Writer(PYTHON, names), identifiers)
    _read(file)
    if isinstance(program.policy, TablePolicy):
        _look_up(file, program.policy)
    else:
        _weigh(file, program.policy)
    _remember(file)
    return "\n".join([*_heading(file), *_definitions(file), ""])


def _heading(file: _File) -> Iterator[str]:
    program, task = file.program, file.program.policy.task
    memory = bool(program.policy.remembers)
    # A name in the first two lines could declare an encoding (PEP 263) in which a later comment ends.
    words = ["Written by policygen: plain Python that needs nothing but its standard library.", ""]
    words += [f"A {program.policy.kind} policy for {task.name} ({task.gym_id}):", ""]
    if memory:
        words += ["    memory = start()  # whenever the system starts anew", "    action = act(observation, memory)"]
    else:
        words += ["    action = act(observation)"]
    words += ["", "Observation:", *(f"  {line}" for line in in_columns(observation_rows(program)))]
    if task.action_space == "discrete":
        words += ["Action:", f"  {action_words(program, 0)}"]
    else:
        rows = [(str(i), a.name, action_words(program, i)) for i, a in enumerate(task.actuators)]
        words += ["Action, a tuple:", *(f"  {line}" for line in in_columns(rows))]
    for line in [*words, "", "The policy itself:", "", *text_lines(program)]:
        yield f"# {remark(line)}".rstrip()
    yield ""


def _definitions(file: _File) -> Iterator[str]:
    program, helpers = file.program, file.writer.definitions()
    own = "\n".join([*helpers, *file.body])
    modules = [
        name for name in ("math", "struct") if f"{name}." in own or (name == "math" and program.policy.remembers)
    ]
    yield from (f"import {name}" for name in modules)
    if "bisect_right(" in own:
        yield "from bisect import bisect_right"
    yield from ("", *file.data)
    for source in helpers:
        yield f"\n{source}\n"
    if program.policy.remembers:
        names = ", ".join(program.policy.remembers)
        yield "\ndef start():"
        yield f"    # {remark(names)}"
        yield f"    return [math.nan] * {len(program.policy.remembers)}\n"
    yield f"\ndef act(observation{', memory' if program.policy.remembers else ''}):"
    yield from file.body
    yield "    return action"


def _read(file: _File) -> None:
    program, writer = file.program, file.writer
    for index, name in program.observed:
        o = program.policy.task.observations[index]
        unit = f"  # {remark(o.unit)}" if o.unit else ""
        file.body.append(f"    {writer.names[name]} = float(observation[{index}]){unit}")
    for name, node in program.definitions:
        file.body.append(f"    {writer.names[name]} = {writer.call('finite', writer.write(node))}")


def _remember(file: _File) -> None:
    values = []
    for recollection in file.program.recollections:
        what = file.writer.names.get(recollection.name, "")
        if recollection.actuator is not None:
            alone = file.program.policy.task.action_space == "discrete"
            part = "action" if alone else f"action[{recollection.actuator}]"
            what = f"float({part}{'' if recollection.label is None else f' == {recollection.label}'})"
        values.append(what)
    if values:
        file.body.append(f"    memory[:] = [{', '.join(values)}]")


def _weigh(file: _File, policy: LinearPolicy) -> None:
    program, writer = file.program, file.writer
    terms, computed = terms_of(program, writer, file.identifiers)
    for name, value in computed:
        file.body.append(f"    {name} = {value}")
    box = policy.task.action_space == "box"
    outputs = []
    for k, (name, weights, bias) in enumerate(weights_of(policy)):
        outputs.append(file.identifiers.new("o", name))
        total = writer.call("finite", weighted_sum([(weight, terms[i]) for weight, i in weights], bias))
        if box:
            total = writer.helped(f"_single({carried_out(program, writer, k, total)})")
        file.body.append(f"    {outputs[-1]} = {total}")
    if box:
        file.body.append(f"    action = ({', '.join(outputs)},)")
        return
    choices = []
    for i, (actuator, (first, end)) in enumerate(zip(policy.task.actuators, program.choices, strict=True)):
        if not actuator.is_choice:
            choices.append(writer.helped(f"_single({carried_out(program, writer, i, outputs[first])})"))
            continue
        scores = f"scores{i}"
        file.body.append(f"    {scores} = [{', '.join(outputs[first:end])}]")
        choices.append(f"{scores}.index(max({scores}))")
    alone = policy.task.action_space == "discrete"
    file.body.append(f"    action = {choices[0]}" if alone else f"    action = ({', '.join(choices)},)")


def _look_up(file: _File, policy: TablePolicy) -> None:
    cells = cells_of(policy)
    bins = [_bin(file, policy, i) for i in range(len(policy.grid.dimensions))]
    if cells.rows is not None:
        file.data.append(
            "# First and last bin of each quantity, and the action, row by row; the first matching row decides."
        )
        file.data += _listed("_ROWS", [repr((_pairs(row), code)) for row, code in cells.rows])
        file.body += [f"    bins = ({', '.join(bins)},)", "    for row, code in _ROWS:"]
        file.body += [
            "        if all(first <= at <= last for at, (first, last) in zip(bins, row)):",
            "            break",
        ]
    else:
        cell = bins[0]
        for text, size in zip(bins[1:], policy.grid.shape[1:], strict=True):
            cell = f"({cell}) * {size} + {text}"
        file.body.append(f"    cell = {cell}")
        packed = cells.packed.hex()
        lines = [repr(packed[i : i + 100]) for i in range(0, len(packed), 100)]
        file.data += ["_CELLS = bytes.fromhex(", *(f"    {line}" for line in lines), ")"]
        if cells.bits >= 8:
            wide = cells.bits // 8
            file.body.append(f'    code = int.from_bytes(_CELLS[{wide} * cell : {wide} * cell + {wide}], "little")')
        else:
            each = 8 // cells.bits
            file.body.append(f"    code = _CELLS[cell // {each}] >> cell % {each} * {cells.bits} & {2**cells.bits - 1}")
    if cells.actions is None:
        file.body.append("    action = code")
        return
    file.data += _listed("_ACTIONS", [f"({', '.join(map(_literal, row))},)" for row in cells.actions.tolist()])
    file.body.append("    action = _ACTIONS[code]")


def _literal(value: float) -> str:
    return f"float({str(value)!r})" if value in (float("inf"), float("-inf")) else repr(value)


def _listed(name: str, items: Sequence[str]) -> list[str]:
    return [f"{name} = (", *(f"    {item}," for item in items), ")"]


def _bin(file: _File, policy: TablePolicy, i: int) -> str:
    dimension: Any = policy.grid.dimensions[i]
    value, last = file.writer.names[dimension.name], len(dimension.edges)
    if not last:
        return "0"
    if dimension.counts_integers and last > MANY_EDGES:
        return file.writer.helped(f"_whole({value}, {last})")
    name = file.identifiers.new("_EDGES", dimension.name)
    file.data.append(f"{name} = ({', '.join(map(number, dimension.cuts))},)")
    return f"bisect_right({name}, {value})"


def _pairs(row: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(row[::2], row[1::2], strict=True))
