"""Export to C99: one file without allocation, no library but `math.h`, the same decisions as numpy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from policygen.extensions.export.c_language import C
from policygen.extensions.export.expressions import Writer, weighted_sum
from policygen.extensions.export.program import (
    MANY_EDGES,
    Cells,
    Program,
    action_words,
    carried_out,
    cells_of,
    observation_rows,
    terms_of,
    text_lines,
    weights_of,
)
from policygen.extensions.export.words import Identifiers, in_columns, remark, wrapped
from policygen.policies.linear import LinearPolicy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of


@dataclass
class _File:
    """A C file under construction."""

    program: Program
    writer: Writer
    identifiers: Identifiers
    data: list[str] = field(default_factory=list)  # arrays
    body: list[str] = field(default_factory=list)  # body of the function that acts


def as_c(program: Program) -> str:
    """Write one C99 file that compiles by itself; its first comment describes its functions."""
    identifiers = Identifiers()
    names = {name: identifiers.new("q", name) for _, name in program.observed}
    names |= {name: identifiers.new("d", name) for name, _ in program.definitions}
    fields = {name: identifiers.new("m", name) for name in program.policy.remembers}
    names |= {slot_of(name): f"memory->{identifier}" for name, identifier in fields.items()}
    file = _File(program, Writer(C, names), identifiers)
    _read(file)
    if isinstance(program.policy, TablePolicy):
        _look_up(file, program.policy)
    else:
        _weigh(file, program.policy)
    _remember(file, fields)
    return "\n".join([*_heading(file), *_declarations(file, fields), *_function(file), ""])


def _function(file: _File) -> Iterator[str]:
    yield f"{_prototype(file.program)}"
    yield "{"
    yield from file.body
    words = Counter(re.findall(r"\w+", "\n".join(file.body)))
    unused = [name for name in file.writer.names.values() if words[name] == 1]  # declared but never read
    yield from (f"    (void){name};" for name in (unused if words["observation"] else ["observation"]))
    if file.program.policy.task.action_space == "discrete":
        yield "    return action;"
    yield "}"


def _prototype(program: Program) -> str:
    task = program.policy.task
    arguments = [f"const double observation[{len(task.observations)}]"]
    if program.policy.remembers:
        arguments.append(f"struct {program.name}_memory *memory")
    if task.action_space == "discrete":
        return f"int {program.name}_act({', '.join(arguments)})"
    kind = "float" if task.has_numbers else "int"
    arguments.append(f"{kind} action[{len(task.actuators)}]")
    return f"void {program.name}_act({', '.join(arguments)})"


def _heading(file: _File) -> Iterator[str]:
    program, task = file.program, file.program.policy.task
    yield "/*"
    words = ["Written by policygen.", "", f"A {program.policy.kind} policy for {task.name} ({task.gym_id}):", ""]
    words += [f"    {_prototype(program)};"]
    if program.policy.remembers:
        words.append(f"    void {program.name}_reset(struct {program.name}_memory *memory);")
    words += ["", "Observation:", *(f"  {line}" for line in in_columns(observation_rows(program)))]
    if task.action_space == "discrete":
        words += ["Action, which is returned:", f"  {action_words(program, 0)}"]
    else:
        rows = [(str(i), a.name, action_words(program, i)) for i, a in enumerate(task.actuators)]
        words += ["Action:", *(f"  {line}" for line in in_columns(rows))]
    if program.policy.remembers:
        words += ["Memory: one for each controlled system; reset it at every start."]
    words += ["", "C99. Do not compile with -ffast-math: NaN must be detectable. The policy itself:"]
    for line in [*words, "", *text_lines(program)]:
        yield f" * {remark(line)}".rstrip()
    yield " */"
    yield "#include <math.h>"
    yield ""


def _declarations(file: _File, fields: dict[str, str]) -> Iterator[str]:
    program = file.program
    for source in file.writer.definitions():
        yield f"{source}\n"
    yield from file.data
    if fields:
        yield f"struct {program.name}_memory {{"
        for name, identifier in fields.items():
            yield f"    double {identifier}; /* {remark(name)} */"
        yield "};\n"
        yield f"void {program.name}_reset(struct {program.name}_memory *memory);"
    yield f"{_prototype(program)};\n"
    if fields:
        yield f"void {program.name}_reset(struct {program.name}_memory *memory)"
        yield "{"
        yield from (f"    memory->{identifier} = NAN;" for identifier in fields.values())
        yield "}\n"


def _read(file: _File) -> None:
    """Write observations and definitions as local variables."""
    program, writer = file.program, file.writer
    for index, name in program.observed:
        o = program.policy.task.observations[index]
        unit = f" /* {remark(o.unit)} */" if o.unit else ""
        file.body.append(f"    const double {writer.names[name]} = observation[{index}];{unit}")
    for name, node in program.definitions:
        value = writer.call("finite", writer.write(node))
        file.body += wrapped(f"const double {writer.names[name]} = {value};", "    ")


def _remember(file: _File, fields: dict[str, str]) -> None:
    task = file.program.policy.task
    for recollection in file.program.recollections:
        what = file.writer.names.get(recollection.name, "")
        if recollection.actuator is not None:
            alone = task.action_space == "discrete"
            part = "action" if alone else f"action[{recollection.actuator}]"
            test = "" if recollection.label is None else f" == {recollection.label}"
            what = f"(double)({part}{test})" if test else f"(double){part}"
        file.body.append(f"    memory->{fields[recollection.name]} = {what};")


# --- equations -------------------------------------------------------------------------------------------------------


def _weigh(file: _File, policy: LinearPolicy) -> None:
    program, writer = file.program, file.writer
    terms, computed = terms_of(program, writer, file.identifiers)
    for name, value in computed:
        file.body += wrapped(f"const double {name} = {value};", "    ")
    box, mixed = policy.task.action_space == "box", policy.task.action_space == "mixed"
    if not box:
        file.body += [f"    double score[{len(policy.equations)}];", "    int i;"]
        file.body += ["    int action = 0;"] if policy.task.action_space == "discrete" else []
        file.body += ["    int choice;"] if mixed else []
    for k, (name, weights, bias) in enumerate(weights_of(policy)):
        total = writer.call("finite", weighted_sum([(weight, terms[i]) for weight, i in weights], bias))
        if box:
            value = carried_out(program, writer, k, total)
            file.body += wrapped(f"action[{k}] = (float){value}; /* {remark(name)} */", "    ")
        else:
            file.body += wrapped(f"score[{k}] = {total}; /* {remark(name)} */", "    ")
    if box:
        return
    for k, (actuator, (first, end)) in enumerate(zip(policy.task.actuators, program.choices, strict=True)):
        if not actuator.is_choice:
            value = carried_out(program, writer, k, f"score[{first}]")
            file.body += wrapped(f"action[{k}] = (float){value};", "    ")
            continue
        action = "action" if policy.task.action_space == "discrete" else "choice" if mixed else f"action[{k}]"
        file.body += [
            *([f"    {action} = 0;"] if action != "action" else []),
            f"    for (i = {first + 1}; i < {end}; ++i) {{",
            f"        if (score[i] > score[{f'{first} + ' if first else ''}{action}])",
            f"            {action} = i{f' - {first}' if first else ''};",
            "    }",
            *([f"    action[{k}] = (float)choice;"] if mixed else []),
        ]


# --- tables ----------------------------------------------------------------------------------------------------------


def _look_up(file: _File, policy: TablePolicy) -> None:
    cells = cells_of(policy)
    bins = [_bin(file, i) for i in range(len(policy.grid.dimensions))]
    if cells.rows is not None:
        _first_row(file, cells, bins)
    else:
        _cell(file, cells, bins, policy.grid.shape)
    if cells.actions is None:
        file.body.append("    const int action = (int)code;")
        return
    kind = "float" if policy.task.has_numbers else "int"
    shown: Callable[[float], str] = _single if kind == "float" else str
    rows = [f"{{{', '.join(map(shown, row))}}}" for row in cells.actions.tolist()]
    many = len(policy.task.actuators)
    file.data += _array(f"static const {kind} pg_actions[{len(rows)}][{many}]", rows)
    file.body += [f"    action[{k}] = pg_actions[code][{k}];" for k in range(many)]


def _bin(file: _File, i: int) -> str:
    """Write the bin of dimension i as an expression; its edges become data."""
    policy = file.program.policy
    assert isinstance(policy, TablePolicy)
    dimension = policy.grid.dimensions[i]
    value = file.writer.names[dimension.name]
    last = len(dimension.edges)
    if not last:
        return "0UL"
    if dimension.counts_integers and last > MANY_EDGES:
        return file.writer.helped(f"pg_whole({value}, {last}UL)")
    name = file.identifiers.new("pg_edges", dimension.name)
    file.data += _array(f"static const float {name}[{last}]", map(_single, dimension.cuts))
    return file.writer.helped(f"pg_bin({value}, {name}, {last}UL)")


def _cell(file: _File, cells: Cells, bins: Sequence[str], shape: Sequence[int]) -> None:
    parts = [
        (f"cell * {size}UL + {text}" if i else text) for i, (text, size) in enumerate(zip(bins, shape, strict=True))
    ]
    file.body.append(f"    unsigned long cell = {parts[0]};")
    file.body += [f"    cell = {part};" for part in parts[1:]]
    if cells.bits >= 8:
        kind = {8: "unsigned char", 16: "unsigned short", 32: "unsigned long"}[cells.bits]
        file.data += _array(f"static const {kind} pg_cells[{len(cells.codes)}]", map(str, cells.codes.tolist()))
        file.body.append("    const unsigned long code = pg_cells[cell];")
        return
    each, packed = 8 // cells.bits, cells.packed
    file.data += _array(f"static const unsigned char pg_cells[{len(packed)}]", map(str, packed))
    shift = f"cell % {each}UL * {cells.bits}UL"
    byte = f"(unsigned long)pg_cells[cell / {each}UL]"
    file.body.append(f"    const unsigned long code = ({byte} >> ({shift})) & {2**cells.bits - 1}UL;")


def _first_row(file: _File, cells: Cells, bins: Sequence[str]) -> None:
    assert cells.rows is not None
    policy = file.program.policy
    assert isinstance(policy, TablePolicy)
    many, widest = len(bins), max(policy.grid.shape)
    kind = "unsigned char" if widest <= 256 else "unsigned short" if widest <= 65_536 else "unsigned long"
    file.data.append("/* First and last bin of each quantity, row by row; the first matching row decides. */")
    rows = [f"{{{', '.join(map(str, row))}}}" for row, _ in cells.rows]
    file.data += _array(f"static const {kind} pg_rows[{len(rows)}][{2 * many}]", rows)
    kind = "unsigned char" if cells.bits <= 8 else "unsigned short" if cells.bits == 16 else "unsigned long"
    file.data += _array(f"static const {kind} pg_codes[{len(rows)}]", (str(code) for _, code in cells.rows))
    file.body += [
        f"    const unsigned long bins[{many}] = {{",
        *(f"        {text}," for text in bins),
        "    };",
        "    unsigned long row, i, code;",
        f"    for (row = 0; row + 1 < {len(rows)}UL; ++row) {{",
        f"        for (i = 0; i < {many}UL; ++i) {{",
        "            if (bins[i] < pg_rows[row][2 * i] || bins[i] > pg_rows[row][2 * i + 1])",
        "                break;",
        "        }",
        f"        if (i == {many}UL)",
        "            break;",
        "    }",
        "    code = pg_codes[row];",
    ]


def _array(head: str, items: Iterable[str]) -> list[str]:
    return [f"{head} = {{", *wrapped(", ".join(items), "    ", ""), "};", ""]


def _single(value: float) -> str:
    """Format a float constant."""
    text = str(np.float32(value))
    if "inf" in text:
        return text.replace("inf", "INFINITY")
    return f"{text}{'' if '.' in text or 'e' in text else '.0'}f"
