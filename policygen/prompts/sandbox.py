"""The sandbox of the templates: they read plain data, change nothing, and end soon.

Templates reach only data attributes, and the methods, filters and functions listed here. All operations that make a
value, and all loops, are limited by `allowance`: operators and calls through Jinja's hooks, the rest when compiled.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from policygen.prompts.allowance import (
    CALL,
    TEMPLATE,
    Turns,
    check_call,
    check_format,
    check_operation,
    concatenated,
    made,
    rendering,
    spend,
)

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

# The variables of the present rendering, for the error that names them.
variables_given: ContextVar[Mapping[str, Any] | None] = ContextVar("variables of the rendering", default=None)
_MOST_NAMES = 100  # names that an error lists


class _Unknown(jinja2.StrictUndefined):
    """A missing variable or attribute: its error names the nearest one and lists the others."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        message, name, known = super()._undefined_message, str(self._undefined_name)[:100], self._known()
        if self._undefined_hint or not known:
            return message
        close = difflib.get_close_matches(name, known, n=1)
        if close:
            known.remove(close[0])
        others = ", ".join(known)
        nearest = f"nearest is `{close[0]}`{', the others are ' if others else ''}" if close else "there are "
        return f"{message}: {nearest}{others}"

    def _known(self) -> list[str]:
        record = self._undefined_obj
        if record is jinja2.utils.missing:
            return sorted(variables_given.get() or ())
        if isinstance(record, Mapping):
            return [str(key) for key in record if str(key).isprintable()][:_MOST_NAMES]
        if not type(record).__module__.startswith("policygen."):
            return []
        return [name for name in dir(record) if name[0] != "_" and not callable(getattr(type(record), name, None))]


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter: its result is estimated before and counted afterwards."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        spend(CALL)
        check_call(name, args[first:], kwargs)
        return made(function(*args, **kwargs))

    return bounded


class _Guard(NodeTransformer):
    """A compiler step that limits a template's loops, and the values that it makes without filter or call."""

    def _guarded(self, node: nodes.Node, guard: str) -> nodes.Filter:
        return nodes.Filter(node, guard, [], [], None, None, lineno=node.lineno)

    def visit_List(self, node: nodes.Node) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(node, "(made)")

    visit_Dict = visit_Compare = visit_Test = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self.visit_List(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        return self.visit_List(node) if isinstance(node.arg, nodes.Slice) else self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._guarded(nodes.List(node.nodes, lineno=node.lineno), "(concatenated)")

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = self._guarded(node.iter, "(turns)")
        return node


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with the further limits of this module."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])
    concat = staticmethod(concatenated)

    def __init__(self, loader: jinja2.BaseLoader, filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            loader=loader,
            undefined=_Unknown,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            optimized=False,  # constant expressions must be limited, too
        )
        offered = {**{name: JINJA_FILTERS[name] for name in _FILTERS}, **filters}
        self.filters = {name: _bounded(name, function) for name, function in offered.items()}
        self.filters |= {"(made)": made, "(concatenated)": concatenated, "(turns)": Turns}
        self.globals = {name: self.globals[name] for name in _GLOBALS}

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        guarded = _Guard().visit(source)
        guarded.set_environment(self)
        return super()._generate(guarded, *args, **kwargs)

    def _load_template(self, *args: Any) -> jinja2.Template:
        """Load a template like Jinja; each use in a rendering counts."""
        if rendering():
            spend(TEMPLATE)
        return super()._load_template(*args)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether an attribute is data, or a listed method of plain data."""
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if type(obj).__module__.startswith("jinja2."):
            return True  # `loop`, macros, `self`: theirs
        if callable(value):
            return attr in _METHODS.get(type(obj), ())
        return type(obj).__module__.startswith("policygen.") or isinstance(obj, jinja2.Undefined)

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a function is a listed method of plain data, offered to templates, or made by Jinja itself."""
        if isinstance(obj, BuiltinMethodType):
            return obj.__name__ in _METHODS.get(type(obj.__self__), ())
        if isinstance(obj, MethodType):
            return type(obj.__self__).__module__.startswith("jinja2.") and super().is_safe_callable(obj)
        if isinstance(obj, jinja2.Undefined):
            return True  # the call fails with its own sentence
        if type(obj).__module__.startswith("jinja2.") or (
            isinstance(obj, FunctionType) and "guarded_format" in vars(obj)
        ):
            return True
        return any(obj is function for function in self.globals.values())

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Guard `"...".format` like Jinja, and estimate its length before."""
        guarded = super().wrap_str_format(value)
        if guarded is None:
            return None

        @functools.wraps(guarded)
        def bounded(*args: Any, **kwargs: Any) -> str:
            check_format(value.__self__, args, kwargs)
            return guarded(*args, **kwargs)

        bounded.__dict__["guarded_format"] = True
        return bounded

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function of a template; estimate the size of the result before and count it afterwards."""
        spend(CALL)
        if isinstance(obj, BuiltinMethodType):
            check_call(obj.__name__, (obj.__self__, *args), kwargs)
        return made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator of a template; estimate the size of the result before and count it afterwards."""
        check_operation(operator, left, right)
        return made(super().call_binop(context, operator, left, right))
