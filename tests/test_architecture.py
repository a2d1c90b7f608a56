"""The rooms of the package: which there are, and in which direction they import."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import policygen

PACKAGE = Path(policygen.__file__).parent

# From the ground up: a room imports only from rooms before it. The kernel ends before `extensions`, whose rooms have an
# order of their own; `api` and `cli` hand out both, and import extensions only when one is asked for.
KERNEL = [
    *("errors", "outgoing", "files", "quantities", "llm", "tasks", "policies", "episodes"),
    *("runs", "prompts", "proposers", "search", "progress"),
]
EXTENSIONS = [
    *("worlds", "trackers", "export", "simplify", "sweeps", "cluster"),
    *("plots", "film", "compare", "seats", "page", "live"),
]
ROOMS = [*KERNEL, "extensions", "api", "cli", "__main__"]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "__pycache__" not in path.parts}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(path: Path, *, types: bool = False) -> set[str]:
    """The modules of the package that a file imports anywhere; with `types`, also those for type checkers only."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if is_for_types_only(node) and not types:
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; write the whole name"
            module = node.module or ""
            names = [
                f"{module}.{alias.name}" if f"{module}.{alias.name}".removeprefix("policygen.") in MODULES else module
                for alias in node.names
            ]
        else:
            continue
        found |= {name.removeprefix("policygen.") for name in names if name.startswith("policygen.")}
    return found


def test_every_module_stands_in_a_room():
    strange = {room_of(name) for name in MODULES} - {""} - set(ROOMS)
    strange |= {extension_of(name) for name in MODULES} - {"", *EXTENSIONS}
    assert not strange, f"give {', '.join(sorted(strange))} a place in ROOMS or EXTENSIONS"
    assert len(ROOMS) == len(set(ROOMS))


def test_nothing_goes_round_the_rooms_by_the_name_of_the_package():
    round_it = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import) and any(alias.name == "policygen" for alias in node.names)
    }
    assert {name for name in round_it if room_of(name) not in ("api", "cli", "__main__", "")} == set()


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_a_room_imports_only_from_rooms_below_it(name):
    below = set(ROOMS[: ROOMS.index(room_of(name)) + 1])
    above = {other for other in imported(MODULES[name]) if room_of(other) not in below}
    assert not above, f"{name} imports {', '.join(sorted(above))} from a room above its own: move the value down"


def extension_of(module: str) -> str:
    room, _, rest = module.partition(".")
    return rest.partition(".")[0] if room == "extensions" else ""


@pytest.mark.parametrize("name", [name for name in MODULES if extension_of(name)])
def test_an_extension_imports_only_from_extensions_before_it(name):
    before = {"", *EXTENSIONS[: EXTENSIONS.index(extension_of(name)) + 1]}
    above = {other for other in imported(MODULES[name]) if extension_of(other) not in before}
    assert not above, f"{name} imports {', '.join(sorted(above))}"


def test_the_library_and_the_commands_import_extensions_only_when_one_is_asked_for():
    early = {}
    for name in MODULES:
        if room_of(name) in ("", "api", "cli"):
            tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
            top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
            early[name] = [node.module for node in top if (node.module or "").startswith("policygen.extensions")]
    assert {name: modules for name, modules in early.items() if modules} == {}


def test_the_kernel_searches_scores_and_resumes_without_any_extension(tmp_path):
    kernel = tmp_path / "kernel"
    shutil.copytree(PACKAGE, kernel / "policygen", ignore=shutil.ignore_patterns("extensions", "__pycache__"))
    for folder in ("envs", "templates"):
        shutil.copytree(PACKAGE.parent / folder, kernel / folder)
    path = os.pathsep.join([str(kernel), *filter(None, sys.path[1:])])

    def python(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    modules = ", ".join(f"policygen.{name}" for name in MODULES if room_of(name) in (*KERNEL, "api", "cli"))
    whereabouts = python("-c", f"import {modules}; print(policygen.__file__)")
    assert whereabouts.startswith(str(kernel))
    assert "sweep" not in python("-m", "policygen", "--help")
    said = python("-m", "policygen", "run", "cartpole", "--iterations", "2", "--out", "runs")
    assert "final score" in said
    (run,) = (tmp_path / "runs").iterdir()
    assert not (run / "learning_curve.png").exists()
    python("-m", "policygen", "resume", str(run), "--iterations", "3")
    for words in (["show", str(run)], ["eval", str(run)], ["prompt", str(run)], ["tasks"], ["tasks", "cartpole"]):
        assert python("-m", "policygen", *words)


def too_many_parameters(path: Path) -> list[str]:
    """Functions that take more than seven parameters, or more than five by position, not counting `self`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    methods = {
        id(item)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if not any(ast.unparse(decorator) == "staticmethod" for decorator in getattr(item, "decorator_list", ()))
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            positional = len(node.args.posonlyargs) + len(node.args.args) - (id(node) in methods)
            if positional > 5 or positional + len(node.args.kwonlyargs) > 7:
                found.append(f"{path.name}:{node.lineno} {node.name}")
    return found


@pytest.mark.parametrize("name", list(MODULES))
def test_no_function_takes_more_than_seven_parameters_or_five_by_position(name):
    assert too_many_parameters(MODULES[name]) == [], "what belongs together is handed on as a record"


def borrowed(path: Path) -> set[str]:
    """Private names that a file takes from another module of the package, or from an object that is not its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own, found = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="os" | "sys")):
                pass
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.ImportFrom(module=str(module)) if module.startswith("policygen"):
                found |= {alias.name for alias in node.names}
    return {name for name in found - own if name.startswith("_") and not name.startswith("__")}


def test_what_is_private_stays_in_its_module():
    foreign = {"_max_episode_steps", "_get_obs"}  # which other packages tell in no other way
    taken = {name: borrowed(path) - foreign for name, path in MODULES.items()}
    assert {name: names for name, names in taken.items() if names} == {}


def test_the_counter_of_parameters_sees_what_it_must(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "def fine(a, b, c, d, e, *, f, g): ...\ndef positional(a, b, c, d, e, f): ...\n"
        "def named(a, *, b, c, d, e, f, g, h): ...\n"
        "class C:\n    def method(self, a, b, c, d, e): ...\n"
        "    @staticmethod\n    def alone(a, b, c, d, e, f): ...\n    def long(self, a, b, c, d, e, f): ...\n"
    )
    assert [found.split()[1] for found in too_many_parameters(path)] == ["positional", "named", "alone", "long"]


@pytest.mark.parametrize("types", [False, True])
def test_no_modules_import_each_other_in_a_circle(types):
    # A room's own face (`__init__`) may import its modules, which import each other by their whole names.
    arrows = {
        name: {other for other in imported(path, types=types) if other in MODULES} for name, path in MODULES.items()
    }
    tuple(TopologicalSorter(arrows).static_order())


def test_the_readme_has_one_row_a_room():
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    table = text.split("| room | what it does |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z]+)/?`", row.split("|")[1])]
    assert listed == [room for room in ROOMS if room != "__main__"]


def test_the_reader_of_imports_sees_what_it_must(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "import numpy\nimport policygen.quantities.grid\n"
        "from policygen.llm import base, connect\nfrom policygen import __version__\n"
        "if TYPE_CHECKING:\n    from policygen.cli import main\n"
        "else:\n    from policygen.tasks.task import Task\n"
        "def late():\n    from policygen.search.run import start\n"
    )
    assert imported(path) == {"quantities.grid", "llm", "llm.base", "tasks.task", "search.run"}
    assert imported(path, types=True) == {*imported(path), "cli"}


@pytest.mark.parametrize("name", list(MODULES))
def test_every_module_says_in_its_first_line_what_it_does(name):
    documentation = ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))
    assert documentation
    assert documentation.splitlines()[0].endswith((".", ":")) or ":" in documentation.splitlines()[0]
