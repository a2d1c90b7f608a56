"""Export to LaTeX: definitions and equations in `align*`, tables with intervals as bins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from policygen.extensions.export.expressions import PRODUCT, SIGN, SUM, WHOLE
from policygen.extensions.export.program import Program, text_lines
from policygen.extensions.export.words import plain_ascii, remark
from policygen.policies.cells import action_text
from policygen.policies.linear import LinearPolicy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number
from policygen.quantities.tree import Call, Name, Node, Number, Previous

MOST_ROWS_ON_A_PAGE = 40
_LINE = 100  # most source characters per line of an equation, if its sums can be split
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: f"\\{c}" for c in "{}$&#_%"},
}
_COMPARED = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne"}
_FUNCTIONS = {"sin": r"\sin", "cos": r"\cos", "tan": r"\tan", "tanh": r"\tanh", "exp": r"\exp", "log": r"\ln"}
_FUNCTIONS |= {"atan": r"\arctan", "min": r"\min", "max": r"\max", "sign": r"\operatorname{sgn}"}


def as_latex(program: Program) -> str:
    """Write LaTeX code to `\\input`; it needs `amsmath`, `booktabs` and `longtable`."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    policy = program.policy
    yield r"% Written by policygen; needs \usepackage{amsmath,booktabs,longtable}."
    yield f"% A {policy.kind} policy for {_text(policy.task.name)}."
    # LaTeX has no place for them among the equations: they stand with the lines that they were written on.
    yield from (f"% {remark(line)}" for line in text_lines(program) if policy.written and "#" in line)
    if program.definitions:
        yield from _aligned([(_name(name), node) for name, node in program.definitions])
    if isinstance(policy, TablePolicy):
        yield from _table(policy)
    else:
        yield from _equations(policy)
    starts = _starts([node for _, node in (*program.definitions, *policy.formulas())])
    if starts:
        told = [f"${_name(name)}_{{t-1}} = {_write(start)}$" for name, start in starts.items()]
        yield f"At the first step {', '.join(told)}."


def _equations(policy: LinearPolicy) -> Iterator[str]:
    yield from _aligned([(_name(name), node) for name, node in policy.equations])
    limits = [
        f"${_name(a.name)} \\in [{_number(a.low)}, {_number(a.high)}]${', rounded to a whole number' if whole else ''}"
        for a, (_, _, whole) in zip(policy.task.actuators, policy.task.limits.each, strict=True)
        if not a.is_choice
    ]
    if limits:
        yield f"Outputs are clipped: {', '.join(limits)}."
    if any(a.is_choice for a in policy.task.actuators):
        yield "The choice with the highest score is taken; ties go to the first."


def _aligned(equations: Sequence[tuple[str, Node]]) -> Iterator[str]:
    yield r"\begingroup\allowdisplaybreaks"
    yield r"\begin{align*}"
    for i, (name, node) in enumerate(equations):
        pieces, line = [], ""
        for part in _summands(node):
            if line and len(line) + len(part) > _LINE:
                pieces.append(line)
                line = ""
            line += part
        pieces.append(line)
        end = r" \\" if i + 1 < len(equations) else ""
        yield f"{name} &= " + " \\\\\n&\\quad ".join(map(str.strip, pieces)) + end
    yield r"\end{align*}"
    yield r"\endgroup"


def _summands(node: Node) -> list[str]:
    """Split a sum into parts that can stand on separate lines."""
    match node:
        case Call("+" | "-" as sign, (left, right)):
            return [*_summands(left), f" {sign} {_write(right, PRODUCT)}"]
    return [_write(node)]


def _table(policy: TablePolicy) -> Iterator[str]:
    dimensions, actuators = policy.grid.dimensions, policy.task.actuators
    heads = [f"${_name(d.name)}$" for d in dimensions] + [_text(a.name) for a in actuators]
    kind = "tabular" if len(policy.rules) <= MOST_ROWS_ON_A_PAGE else "longtable"
    yield f"\\begin{{{kind}}}{{{'l' * len(heads)}}}"
    yield r"\toprule"
    yield " & ".join(heads) + r" \\"
    yield r"\midrule" + (r" \endhead" if kind == "longtable" else "")
    for rule in policy.rules:
        row = [_bins(d, bins) for d, bins in zip(dimensions, rule.bins, strict=True)]
        row += [_text(action_text(a, v)) for a, v in zip(actuators, rule.action, strict=True)]
        yield " & ".join(row) + r" \\"
    yield r"\bottomrule"
    yield f"\\end{{{kind}}}"
    yield ""
    yield "The first matching row decides."


def _bins(dimension: Dimension, bins: Sequence[int]) -> str:
    """Write the values of some bins: intervals, or whole numbers."""
    if len(bins) == dimension.bins:
        return "any"
    runs: list[list[int]] = []
    for index in bins:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"${_interval(dimension, first, last)}$" for first, last in runs)


def _interval(dimension: Dimension, first: int, last: int) -> str:
    if dimension.counts_integers:
        return f"{first}" if first == last else f"{first}\\text{{--}}{last}"
    low = _number(dimension.edges[first - 1]) if first else None
    high = _number(dimension.edges[last]) if last < len(dimension.edges) else None
    if low is None:
        return f"< {high}"
    return f"\\ge {low}" if high is None else f"[{low}, {high})"


def _starts(nodes: Sequence[Node]) -> dict[str, Node]:
    """Return the remembered quantities and their values at the first step."""
    found: dict[str, Node] = {}
    for node in nodes:
        match node:
            case Previous(name, start):
                found.setdefault(name, start)
                found |= {**_starts([start]), **found}
            case Call(_, arguments):
                found |= {**_starts(arguments), **found}
    return found


# --- expressions -----------------------------------------------------------------------------------------------------


def _write(node: Node, at_least: int = SUM) -> str:
    text, level = _value(node)
    return text if level >= at_least else f"({text})"


def _value(node: Node) -> tuple[str, int]:
    match node:
        case Number(value):
            return _number(value), SIGN if value < 0 else PRODUCT if "cdot" in _number(value) else WHOLE
        case Name(name):
            return _name(name), WHOLE
        case Previous(name, _):
            return f"{_name(name)}_{{t-1}}", WHOLE
        case Call("fixed", (inner,)):
            return _value(inner)
        case Call("+" | "-" as sign, (left, right)):
            return f"{_write(left)} {sign} {_write(right, PRODUCT)}", SUM
        case Call("*", (left, right)):
            times = r"\," if isinstance(left, Number) and not isinstance(right, Number) else r"\cdot"
            return f"{_write(left, PRODUCT)} {times} {_write(right, SIGN + 1)}", PRODUCT
        case Call("/", (left, right)):
            return f"\\frac{{{_write(left)}}}{{{_write(right)}}}", WHOLE
        case Call("neg", (inner,)):
            return f"-{_write(inner, PRODUCT)}", SIGN
        case Call("^", (base, exponent)):
            return f"{{{_write(base, WHOLE)}}}^{{{_write(exponent)}}}", WHOLE
        case Call("where", (test, yes, no)):
            rows = f"{_write(yes)} & \\text{{if }} {_test(test)} \\\\ {_write(no)} & \\text{{otherwise}}"
            return f"\\begin{{cases}} {rows} \\end{{cases}}", SUM
        case Call(function, (one,)) if function in ("abs", "sqrt", "floor"):
            form = {"abs": "|{0}|", "sqrt": "\\sqrt{{{0}}}", "floor": "\\lfloor {0} \\rfloor"}[function]
            return form.format(_write(one)), WHOLE
        case Call(function, _) if function in _COMPARED or function in ("and", "or", "not"):
            return f"[{_test(node)}]", WHOLE
        case Call(function, arguments):
            word = _FUNCTIONS.get(function, f"\\operatorname{{{function}}}")
            return f"{word}({', '.join(map(_write, arguments))})", WHOLE
    raise AssertionError(node)


def _test(node: Node) -> str:
    match node:
        case Call("and" | "or" as function, (left, right)):
            return f"{_inner(left)} \\text{{ {function} }} {_inner(right)}"
        case Call("not", (inner,)):
            return f"\\text{{not }} {_inner(inner)}"
        case Call(function, (left, right)) if function in _COMPARED:
            return f"{_write(left)} {_COMPARED[function]} {_write(right)}"
    return f"{_write(node)} \\ne 0"


def _inner(node: Node) -> str:
    joined = isinstance(node, Call) and node.function in ("and", "or")
    return f"({_test(node)})" if joined else _test(node)


def _number(value: float) -> str:
    mantissa, e, exponent = format_number(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if e else mantissa


def _name(name: str) -> str:
    return f"\\mathrm{{{_text(name)}}}"


def _text(text: str) -> str:
    """Convert `text` to ASCII, with LaTeX's special characters escaped."""
    return escaped(plain_ascii(text))


def escaped(text: str) -> str:
    """Escape LaTeX's special characters in `text`."""
    return re.sub(r"[\\^~<>{}$&#_%]", lambda found: _SPECIAL[found[0]], text)
