"""Export to LaTeX: definitions and equations in `align*`, tables with intervals as bins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from policygen.extensions.export.program import Program, consecutive, text_lines
from policygen.extensions.export.writing import ATOM, PRODUCT, SIGN, SUM, Writer, comment_text, plain_ascii
from policygen.policies.cells import action_text
from policygen.policies.linear import LinearPolicy
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Equations
from policygen.policies.shaping import REWARD
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number, next_of
from policygen.quantities.tree import Call, Name, Node, Number, Previous, nodes_of, read_by

MOST_ROWS_ON_A_PAGE = 40
_LINE = 100  # characters of LaTeX code, after which a sum continues on a new line
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: f"\\{c}" for c in "{}$&#_%"},
}


def as_latex(program: Program) -> str:
    """Return LaTeX code for `\\input`; it needs `amsmath`, `booktabs` and `longtable`."""
    policy = program.policy
    kind = "table" if isinstance(policy, TablePolicy) else "equations"
    lines = [
        r"% Written by policygen; needs \usepackage{amsmath,booktabs,longtable}.",
        f"% A policy ({kind}) for {_text(policy.task.name)}.",
        # LaTeX has no place for comments among the equations, so each is written here with its line.
        *(f"% {comment_text(line)}" for line in text_lines(program) if policy.written and "#" in line),
        *(_aligned(program.definitions) if program.definitions else ()),
        *(_table(policy) if isinstance(policy, TablePolicy) else _equations(policy)),
    ]
    starts: dict[str, Node] = {}
    for _, node in (*program.definitions, *policy.formulas()):
        for part in reversed(list(nodes_of(node))):  # in the order of the text
            if isinstance(part, Previous):
                starts.setdefault(part.name, part.start)
    if starts:
        texts = [f"${_name(name)}_{{t-1}} = {_write(start)}$" for name, start in starts.items()]
        lines.append(f"At the first step {', '.join(texts)}.")
    return "\n".join([*lines, ""])


def plant_as_latex(equations: Equations) -> str:
    """Return a plant as LaTeX code for `\\input`; it needs `amsmath`. A value after the step has the index t+1."""
    plant, nodes = equations.plant, equations.nodes
    read, features = read_by(nodes.values()), list[tuple[str, Node]]()
    for name, node in reversed(equations.task.parsed_features):
        if read & {name, next_of(name)}:
            features.insert(0, (name, node))
            read |= read_by([node])
    definitions = [(name, nodes[f"let {name}"]) for name, _ in plant.lets]
    motion = [(next_of(name), nodes[f"{NEXT} {name}"]) for name, _ in plant.next]
    outcomes = [(name, nodes[name]) for name in (REWARD, ENDS) if name in nodes]
    lines = [
        r"% Written by policygen; needs \usepackage{amsmath}.",
        f"% A plant of {_text(equations.task.name)}.",
        *_aligned([*features, *definitions, *motion, *outcomes]),
    ]
    for what, words in (
        ("Not observed", [f"${_name(name)}$" for name in plant.hidden]),
        ("At the start", [f"${_name(name)}$ from {_text(text)}" for name, text in plant.starts]),
        ("Standard deviation of the noise", [f"${_name(n)}$ {_text(format_number(size))}" for n, size in plant.noise]),
    ):
        lines += [f"{what}: {', '.join(words)}."] if words else []
    return "\n".join([*lines, ""])


def _equations(policy: LinearPolicy) -> Iterator[str]:
    yield from _aligned(policy.equations)
    limits = [
        f"${_name(a.name)} \\in [{_number(a.low)}, {_number(a.high)}]${', rounded to a whole number' if whole else ''}"
        for a, (_, _, whole) in zip(policy.task.actuators, policy.task.limits.bounds, strict=True)
        if not a.is_choice
    ]
    if limits:
        yield f"Outputs are clipped: {', '.join(limits)}."
    if any(a.is_choice for a in policy.task.actuators):
        yield "The choice with the highest score is taken; ties go to the first."


def _aligned(equations: Sequence[tuple[str, Node]]) -> Iterator[str]:
    """Yield the lines of equations; a long sum continues on further lines."""
    yield from (r"\begingroup\allowdisplaybreaks", r"\begin{align*}")
    for i, (name, node) in enumerate(equations):
        pieces = [""]
        for part in _summands(node):
            if pieces[-1] and len(pieces[-1]) + len(part) > _LINE:
                pieces.append("")
            pieces[-1] += part
        end = r" \\" if i + 1 < len(equations) else ""
        yield f"{_name(name)} &= " + " \\\\\n&\\quad ".join(map(str.strip, pieces)) + end
    yield from (r"\end{align*}", r"\endgroup")


def _summands(node: Node) -> list[str]:
    """Split a sum into parts that may be on separate lines."""
    match node:
        case Call("+" | "-" as sign, (left, right)):
            return [*_summands(left), f" {sign} {_write(right, PRODUCT)}"]
    return [_write(node)]


def _table(policy: TablePolicy) -> Iterator[str]:
    dimensions, actuators = policy.grid.dimensions, policy.task.actuators
    heads = [f"${_name(d.name)}$" for d in dimensions] + [_text(a.name) for a in actuators]
    kind = "tabular" if len(policy.rules) <= MOST_ROWS_ON_A_PAGE else "longtable"
    yield from (f"\\begin{{{kind}}}{{{'l' * len(heads)}}}", r"\toprule", " & ".join(heads) + r" \\")
    yield r"\midrule" + (r" \endhead" if kind == "longtable" else "")
    for rule in policy.rules:
        row = [_bins(d, bins) for d, bins in zip(dimensions, rule.bins, strict=True)]
        row += [_text(action_text(a, v)) for a, v in zip(actuators, rule.action, strict=True)]
        yield " & ".join(row) + r" \\"
    yield from (r"\bottomrule", f"\\end{{{kind}}}", "", "The first matching row decides.")


def _bins(dimension: Dimension, bins: Sequence[int]) -> str:
    """Write the values of some bins: intervals, whole numbers, or `any`."""
    if len(bins) == dimension.bins:
        return "any"
    return ", ".join(f"${_interval(dimension, first, last)}$" for first, last in consecutive(bins))


def _interval(dimension: Dimension, first: int, last: int) -> str:
    if dimension.has_integer_bins:
        return f"{first}" if first == last else f"{first}\\text{{--}}{last}"
    if not first:
        return f"< {_number(dimension.edges[last])}"
    low = _number(dimension.edges[first - 1])
    return f"[{low}, {_number(dimension.edges[last])})" if last < len(dimension.edges) else f"\\ge {low}"


class _Writer(Writer):
    """Writes expressions in LaTeX's mathematics; `names` is not needed."""

    templates: ClassVar[Mapping[str, str]] = {
        **Writer.templates,
        **{
            symbol: f"{{0}} {word} {{1}}"
            for symbol, word in {"<=": r"\le", ">=": r"\ge", "==": "=", "!=": r"\ne"}.items()
        },
        "and": r"{0} \text{{ and }} {1}",
        "or": r"{0} \text{{ or }} {1}",
        "not": r"\text{{not }} ({0})",
        "nonzero": r"{0} \ne 0",
        "number": "[{0}]",
        "where": r"\begin{{cases}} {1} & \text{{if }} {0} \\ {2} & \text{{otherwise}} \end{{cases}}",
        **{name: rf"\{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp")},
        **{name: rf"\operatorname{{{{{name}}}}}({{0}}, {{1}})" for name in ("mod", "atan2")},
        "log": r"\ln({0})",
        "atan": r"\arctan({0})",
        "sign": r"\operatorname{{sgn}}({0})",
        "clip": r"\operatorname{{clip}}({0}, {1}, {2})",
        "abs": "|{0}|",
        "sqrt": r"\sqrt{{{0}}}",
        "floor": r"\lfloor {0} \rfloor",
    }

    def _value(self, node: Node) -> tuple[str, int]:
        """Write an expression; return the text and its precedence."""
        match node:
            case Number(value):
                return _number(value), SIGN if value < 0 else PRODUCT if "cdot" in _number(value) else ATOM
            case Name(name):
                return _name(name), ATOM
            case Previous(name, _):
                return f"{_name(name)}_{{t-1}}", ATOM
            case Call("*", (left, right)):
                times = r"\," if isinstance(left, Number) and not isinstance(right, Number) else r"\cdot"
                return f"{self.write(left, PRODUCT)} {times} {self.write(right, SIGN + 1)}", PRODUCT
            case Call("/", (left, right)):
                return f"\\frac{{{self.write(left)}}}{{{self.write(right)}}}", ATOM
            case Call("neg", (inner,)):
                return f"-{self.write(inner, PRODUCT)}", SIGN
            case Call("^", (base, exponent)):
                return f"{{{self.write(base, ATOM)}}}^{{{self.write(exponent)}}}", ATOM
            case Call("where", _):
                return super()._value(node)[0], SUM
            case Call("min" | "max" as function, arguments):
                return f"\\{function}({', '.join(map(self.write, arguments))})", ATOM
        return super()._value(node)


_write = _Writer().write


def _number(value: float) -> str:
    mantissa, e, exponent = format_number(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if e else mantissa


def _name(name: str) -> str:
    if after := re.fullmatch(r"next\((.+)\)", name):
        return f"{_name(after[1])}_{{t+1}}"
    return f"\\mathrm{{{_text(name)}}}"


def _text(text: str) -> str:
    """Convert `text` to ASCII, with LaTeX's special characters escaped."""
    return escaped(plain_ascii(text))


def escaped(text: str) -> str:
    """Escape LaTeX's special characters in `text`."""
    return re.sub(r"[\\^~<>{}$&#_%]", lambda found: _SPECIAL[found[0]], text)
