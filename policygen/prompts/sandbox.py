"""The sandbox of the templates: they see plain data, change nothing, and end soon however they are written.

Three rules hold together. Only attributes that are data, and the methods and functions listed here, can be reached. No
value that a template makes is larger than `LARGEST`: what could be larger is measured before it is made, so that
neither one expression nor one that builds on another fills the memory. All that a rendering makes, and every turn of a
loop, counts towards `MOST`, which does not depend on the machine; `SECONDS` of the processor end what counting misses.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from string import Formatter
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LARGEST = 2_000_000  # characters or items of one value, items of items included
MOST = 5_000_000  # characters, items and turns of loops of one rendering
SECONDS = 3.0  # of the processor, for one rendering
MOST_BITS = 65_536  # of a whole number
CALL = 50  # what a call or a filter counts, in turns of a loop
TEMPLATE = 500  # what another template counts
WIDEST = 10_000  # of a number or text that a format pads

_FILTERS = (
    *("abs", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "first", "float", "format"),
    *("groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject"),
    *("rejectattr", "replace", "reverse", "round", "select", "selectattr", "slice", "sort", "string", "sum", "title"),
    *("tojson", "trim", "truncate", "unique", "upper", "wordcount", "wordwrap"),
)
_GLOBALS = ("range", "dict", "namespace", "cycler", "joiner")
_TEXT_METHODS = """
    capitalize casefold center count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower
    isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex
    rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill
"""
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS.split()),
    dict: frozenset(["get", "items", "keys", "values"]),
    list: frozenset(["count", "index"]),
    tuple: frozenset(["count", "index"]),
}


class TooMuch(jinja2.TemplateRuntimeError):
    """A template that would run for ever or fill the memory."""


class _Allowance:
    """What a rendering may still do."""

    def __init__(self) -> None:
        self.left = MOST
        self.asked = 0
        self.until = time.thread_time() + SECONDS

    def spend(self, amount: int) -> None:
        """Count something made, or a turn of a loop."""
        self.left -= amount
        if self.left < 0:
            raise TooMuch(f"the template makes more than {MOST:,} characters, items and turns of loops; let it do less")
        self.asked += 1
        if self.asked % 64 == 0 and time.thread_time() > self.until:
            raise TooMuch(f"the template takes more than {SECONDS:g} seconds; let it do less")


_allowance: ContextVar[_Allowance] = ContextVar("allowance of the rendering")


@contextmanager
def limited() -> Iterator[None]:
    """Within it, what templates do is limited; outside of it the environment renders nothing."""
    token = _allowance.set(_Allowance())
    try:
        yield
    finally:
        _allowance.reset(token)


def size(value: Any) -> int:
    """Characters and items of a value, as often as it would be written out; views and numbers count 1.

    Raises:
        TooMuch: there are more than LARGEST.
    """
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        total += 1
        if isinstance(item, str | range):
            total += len(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        if total + len(waiting) > LARGEST:
            _no_larger(total + len(waiting))
    return total


def _no_larger(estimate: float) -> None:
    if estimate > LARGEST:
        raise TooMuch(f"the template makes a value of more than {LARGEST:,} characters or items; let it make less")


def _made(value: Any) -> Any:
    """A value that a template has just made, counted; what is lazy is made now."""
    if isinstance(value, Iterator):
        kept = []
        for item in value:
            _allowance.get().spend(1)
            kept.append(item)
        value = kept
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise TooMuch("the template makes a whole number that is too large")
    _allowance.get().spend(size(value))
    return value


def _concatenated(parts: Iterable[Any]) -> str:
    """`"".join` that stops in time."""
    kept, total = [], 0
    for part in parts:
        text = str(part)
        total += len(text)
        _no_larger(total)
        _allowance.get().spend(1 + len(text))
        kept.append(text)
    return "".join(kept)


class _Turns:
    """What a loop runs over, each turn counted."""

    def __init__(self, items: Any) -> None:
        _allowance.get().spend(1)
        self._items = items if hasattr(items, "__len__") else list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            _allowance.get().spend(1)
            yield item


# --- what may be large, estimated before it is made ------------------------------------------------------------------


def _formatted(value: Any, *args: Any, **kwargs: Any) -> int:
    """The length of `value % args` at most; widths may be numbers of the text only."""
    text = str(value)
    if re.search(r"%[^a-zA-Z%]*\*", text):
        raise TooMuch("a width of `*` in a format is not allowed here; write the number")
    return _padded(text) + len(text) + text.count("%") * size([*args, kwargs])


def _padded(text: str) -> int:
    """The sum of the widths in a format.

    Raises:
        TooMuch: one is more than WIDEST.
    """
    widths = [int(digits) if len(digits) < 10 else WIDEST + 1 for digits in re.findall(r"\d+", text)]
    if widths and max(widths) > WIDEST:
        raise TooMuch(f"a width in a format is at most {WIDEST:,}")
    return sum(widths)


# Their parameters are those of the filters.
def _batched(value: Any, linecount: int, fill_with: Any = None) -> int:
    return len(value) + int(linecount)


def _sliced(value: Any, slices: int, fill_with: Any = None) -> int:
    return int(slices)


def _joined(value: Any, d: Any = "", attribute: Any = None) -> int:
    return size(list(value)) + len(value) * len(str(d))


def _replaced(s: Any, old: Any, new: Any, count: int | None = None) -> int:
    return len(str(s)) + str(s).count(str(old)) * len(str(new))


def _as_wide(value: Any, width: Any = 80, fill: Any = " ") -> int:
    return max(len(str(value)), int(width))


def _indented(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> int:
    return len(str(s)) + (str(s).count("\n") + 1) * (len(width) if isinstance(width, str) else abs(int(width)))


def _wrapped(
    s: Any, width: int = 79, break_long_words: bool = True, wrapstring: Any = None, break_on_hyphens: bool = True
) -> int:
    return len(str(s)) * (1 + len(str(wrapstring or " ")))


def _rounded(value: Any, precision: int = 0, method: str = "common") -> int:
    return 10_000 * abs(int(precision))  # 10 to the power of it is computed


def _listed(rows: Any, names: Sequence[Any], digits: int = 3) -> int:
    return size(list(rows)) * (1 + len(names)) + size(list(names))


def _summed(iterable: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise TooMuch("only numbers can be summed")
    return 0


_ESTIMATES: dict[str, Callable[..., int]] = {
    "batch": _batched,
    "center": _as_wide,
    "format": _formatted,
    "indent": _indented,
    "join": _joined,
    "lines": _listed,
    "replace": _replaced,
    "round": _rounded,
    "slice": _sliced,
    "sum": _summed,
    "table": _listed,
    "wordwrap": _wrapped,
}
_METHOD_ESTIMATES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _as_wide),
    "join": lambda separator, items: _joined(list(items), separator),
    "replace": _replaced,
}


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is estimated before and measured afterwards."""
    estimate = _ESTIMATES.get(name)
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _allowance.get().spend(CALL)
        if estimate is not None:
            _no_larger(estimate(*args[first:], **kwargs))
        return _made(function(*args, **kwargs))

    return bounded


# --- how templates are compiled --------------------------------------------------------------------------------------


class _Guard(NodeTransformer):
    """Puts the limits into a template: where it makes values without a filter or a call, and into its loops."""

    def _guarded(self, node: nodes.Node, guard: str) -> nodes.Filter:
        return nodes.Filter(node, guard, [], [], None, None, lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(nodes.List(node.nodes, lineno=node.lineno), "(concatenated)")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)") if node.ctx == "load" else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)")

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)")

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = self._guarded(node.iter, "(turns)")
        return node


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with the three rules on top."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])
    concat = staticmethod(_concatenated)

    def __init__(self, loader: jinja2.BaseLoader, filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            loader=loader,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            optimized=False,  # what is constant is computed within the limits too
        )
        offered = {**{name: JINJA_FILTERS[name] for name in _FILTERS}, **filters}
        self.filters = {name: _bounded(name, function) for name, function in offered.items()}
        self.filters |= {"(made)": _made, "(concatenated)": _concatenated, "(turns)": _Turns}
        self.globals = {name: self.globals[name] for name in _GLOBALS}

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        guarded = _Guard().visit(source)
        guarded.set_environment(self)
        return super()._generate(guarded, *args, **kwargs)

    def get_template(self, *args: Any, **kwargs: Any) -> jinja2.Template:
        """As Jinja's; each use in a rendering counts."""
        if allowance := _allowance.get(None):
            allowance.spend(TEMPLATE)
        return super().get_template(*args, **kwargs)

    def select_template(self, *args: Any, **kwargs: Any) -> jinja2.Template:
        """As Jinja's; each use in a rendering counts."""
        if allowance := _allowance.get(None):
            allowance.spend(TEMPLATE)
        return super().select_template(*args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Data, and the listed methods of plain data."""
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if type(obj).__module__.startswith("jinja2."):
            return True  # `loop`, macros, `self`: theirs
        if callable(value):
            return attr in _METHODS.get(type(obj), ())
        return type(obj).__module__.startswith("policygen.") or isinstance(obj, jinja2.Undefined)

    def is_safe_callable(self, obj: Any) -> bool:
        """The listed methods of plain data, the functions offered to templates, and what Jinja itself makes."""
        if isinstance(obj, BuiltinMethodType):
            return obj.__name__ in _METHODS.get(type(obj.__self__), ())
        if isinstance(obj, MethodType):
            return type(obj.__self__).__module__.startswith("jinja2.") and super().is_safe_callable(obj)
        if type(obj).__module__.startswith("jinja2.") or (
            isinstance(obj, FunctionType) and "guarded_format" in vars(obj)
        ):
            return True
        return any(obj is function for function in self.globals.values())

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`"...".format` as Jinja guards it, its length estimated before."""
        guarded = super().wrap_str_format(value)
        if guarded is None:
            return None

        @functools.wraps(guarded)
        def bounded(*args: Any, **kwargs: Any) -> str:
            specifications = [specification or "" for _, _, specification, _ in Formatter().parse(value.__self__)]
            if any("{" in specification for specification in specifications):
                raise TooMuch("a format within a format is not allowed here; write the number")
            padded = sum(map(_padded, specifications))
            _no_larger(padded + len(value.__self__) + len(specifications) * size([*args, kwargs]))
            return guarded(*args, **kwargs)

        bounded.__dict__["guarded_format"] = True
        return bounded

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call in a template, estimated before and counted afterwards."""
        _allowance.get().spend(CALL)
        if isinstance(obj, BuiltinMethodType) and obj.__name__ in _METHOD_ESTIMATES:
            _no_larger(_METHOD_ESTIMATES[obj.__name__](obj.__self__, *args, **kwargs))
        return _made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator in a template, its result estimated before and counted afterwards."""
        whole = isinstance(left, int) and isinstance(right, int)
        match operator:
            case "+" if isinstance(left, str | list | tuple):
                _no_larger(size(left) + size(right))
            case "*" if not whole:
                times = [abs(value) for value in (left, right) if isinstance(value, int)]
                _no_larger(max(size(left), size(right)) * max(times, default=1))
            case "**" if whole and left.bit_length() * abs(right) > MOST_BITS:
                raise TooMuch("the template makes a whole number that is too large")
            case "%" if isinstance(left, str):
                _no_larger(_formatted(left, right))
        return _made(super().call_binop(context, operator, left, right))
