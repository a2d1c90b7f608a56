"""The rooms of the package: which there are, and in which direction they import."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import policygen
from policygen.extensions import ENTERING

PACKAGE = Path(policygen.__file__).parent

# From the ground up: a room imports only from rooms before it. The kernel ends before `extensions`, whose rooms have an
# order of their own; `api` and `cli` hand out both, and import extensions only when one is asked for.
KERNEL = [
    *("errors", "registry", "portable", "outgoing", "notices", "files", "quantities", "llm", "tasks", "policies"),
    *("episodes", "runs", "prompts", "proposers", "search", "progress"),
]
EXTENSIONS = [
    *("worlds", "plants", "objectives", "learners", "simplify", "trackers", "export", "check", "sweeps"),
    *("plots", "robust", "local", "training", "film", "compare", "seats", "page", "notebook", "mcp_server"),
]
ROOMS = [*KERNEL, "extensions", "api", "cli", "__main__"]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "__pycache__" not in path.parts}


def room_of(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


Import = ast.Import | ast.ImportFrom


@functools.cache
def statements(module: str, *, types: bool = False) -> list[tuple[Import, bool]]:
    """The imports of a module, with `types` also those for type checkers; and whether each is inside a function."""
    found: list[tuple[Import, bool]] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree_of(module), False)]
    while waiting:
        node, inside = waiting.pop(0)
        if isinstance(node, Import):
            found.append((node, inside))
        elif types or not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def names_of(node: Import) -> set[str]:
    """The whole names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    assert node.level == 0, f"line {node.lineno} imports relatively; write the whole name"
    whole = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name.removeprefix("policygen.") in MODULES else str(node.module) for name in whole}


def ours(names: set[str]) -> set[str]:
    """Modules of the package among some names, without its own name."""
    return {name.removeprefix("policygen.") for name in names if name.startswith("policygen.")}


@functools.cache
def imported(module: str, *, types: bool = False) -> set[str]:
    """The modules of the package that a module imports anywhere."""
    return ours({name for node, _ in statements(module, types=types) for name in names_of(node)})


def test_every_module_stands_in_a_room():
    strange = {room_of(name) for name in MODULES} - {""} - set(ROOMS)
    strange |= {extension_of(name) for name in MODULES} - {"", *EXTENSIONS}
    assert not strange, f"give {', '.join(sorted(strange))} a place in ROOMS or EXTENSIONS"
    assert len(ROOMS) == len(set(ROOMS))


def test_nothing_goes_round_the_rooms_by_the_name_of_the_package():
    round_it = {
        name
        for name in MODULES
        for node, _ in statements(name, types=True)
        if isinstance(node, ast.Import) and "policygen" in names_of(node)
    }
    assert {name for name in round_it if room_of(name) not in ("api", "cli", "__main__", "")} == set()


def test_a_room_imports_only_from_rooms_below_it():
    above = {
        f"{name} imports {other} from a room above its own: move the value down"
        for name in MODULES
        for other in imported(name)
        if name and room_of(other) not in ROOMS[: ROOMS.index(room_of(name)) + 1]
    }
    assert above == set()


def extension_of(module: str) -> str:
    room, _, rest = module.partition(".")
    return rest.partition(".")[0] if room == "extensions" else ""


def test_an_extension_imports_only_from_extensions_before_it():
    after = {
        f"{name} imports {other}"
        for name in MODULES
        for other in imported(name)
        if extension_of(name)
        and extension_of(other) not in ("", *EXTENSIONS[: EXTENSIONS.index(extension_of(name)) + 1])
    }
    assert after == set()


# The extensions that an extension cannot do without; any other can be deleted without it.
NEEDS = {
    "compare": {"plots", "sweeps"},
    "film": {"plots"},
    "mcp_server": {"page"},
    "notebook": {"page"},
    "page": {"plots"},
    "plots": {"sweeps"},
    "robust": {"plots"},
    "seats": {"worlds"},
    "training": {"plots", "local"},
}


def test_an_extension_needs_no_other_unless_it_is_stated():
    found: dict[str, set[str]] = {}
    for name in filter(extension_of, MODULES):
        needed = {extension_of(one) for one in ours(early_imports(name))} - {"", extension_of(name)}
        found.setdefault(extension_of(name), set()).update(needed)
    assert {name: needed for name, needed in found.items() if needed} == NEEDS


def test_the_library_and_the_commands_import_extensions_only_when_one_is_asked_for():
    public = [name for name in MODULES if room_of(name) in ("", "api", "cli")]
    early = {name: [one for one in ours(early_imports(name)) if room_of(one) == "extensions"] for name in public}
    assert {name: modules for name, modules in early.items() if modules} == {}


KERNEL_ALONE = """
import contextlib, io, json, pathlib, sys
import {modules}
from policygen.cli import main

def typed(*words):
    sys.argv = ["policygen", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, words
    return out.getvalue()

def refused(*words):
    sys.argv = ["policygen", *words]
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.suppress(SystemExit):
        main()
    return err.getvalue()

said = [typed("--help"), typed("run", "cartpole", "--iterations", "2", "--episodes", "5", "--set", "final_episodes=5")]
(run,) = map(str, pathlib.Path("results").iterdir())
for words in (["resume", run, "--iterations", "3"], ["show", run], ["eval", run], ["prompt", run], ["tasks"]):
    said.append(typed(*words))
said.append(typed("tasks", "cartpole"))
for text in ("next angle = spin", "objective = reward"):
    pathlib.Path("p.txt").write_text("left = 0\\nright = angle\\n" + text)
    said.append(refused("eval", "p.txt", "--task", "cartpole", "--episodes", "2"))
for method in ("model", "q"):
    said.append(refused("run", "cartpole", "--refine", method))
print(json.dumps([sys.modules["policygen"].__file__, *said]))
"""


def test_the_kernel_searches_scores_and_resumes_without_any_extension(tmp_path):
    kernel = tmp_path / "kernel"
    # With what is compiled already: a copy keeps the times of its files.
    shutil.copytree(PACKAGE, kernel / "policygen", ignore=shutil.ignore_patterns("extensions"))
    for folder in ("envs", "templates"):
        shutil.copytree(PACKAGE.parent / folder, kernel / folder)
    modules = ", ".join(f"policygen.{name}" for name in MODULES if room_of(name) in (*KERNEL, "api", "cli"))
    done = subprocess.run(
        [sys.executable, "-c", KERNEL_ALONE.format(modules=modules)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(kernel), *filter(None, sys.path[1:])])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    whereabouts, help_, run, *others = json.loads(done.stdout)
    assert whereabouts.startswith(str(kernel))
    assert "sweep" not in help_
    assert "final score" in run
    assert all(others)
    next_, objective, model, q = others[-4:]
    assert "there is no statement `next NAME = EXPRESSION`; known: let, bins; others need their extension" in next_
    assert "unknown output `objective`; known: left, right" in objective
    for answer in (model, q):
        assert "use none, auto, cma, coordinate, policy-iteration; a number after a colon" in answer
    (folder,) = (tmp_path / "results").iterdir()
    assert not (folder / "learning_curve.png").exists()


WITHOUT_ONE = """
import contextlib, importlib, importlib.abc, io, json, pathlib, sys
hidden = []

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("policygen.extensions.") and name.split(".")[2] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
pathlib.Path("p.txt").write_text("left = -angle\\nright = spin")
said = {}
for one in json.loads(sys.stdin.read()):
    hidden[:] = [one]
    for name in [name for name in sys.modules if name.partition(".")[0] == "policygen"]:
        del sys.modules[name]
    importlib.import_module("policygen.cli")
    sys.argv = ["policygen", "eval", "p.txt", "--task", "cartpole", "--episodes", "2"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        sys.modules["policygen.cli"].main()
    said[one] = out.getvalue()
print(json.dumps(said))
"""


def test_an_extension_that_the_kernel_looks_for_can_be_missing_alone(tmp_path):
    looked_for = [*ENTERING, "worlds", "trackers"]  # what the others import is checked above
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ONE],
        input=json.dumps(looked_for),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said) == looked_for
    assert len(set(said.values())) == 1
    assert "over 2 episodes" in said["plants"]


# Such a comment between the statements of a module gives the reason of all its late imports.
REASON_OF_A_MODULE = "# Imports inside functions"


def early_imports(module: str) -> set[str]:
    """The names of the modules that a module imports outside functions."""
    return {name for node, inside in statements(module) if not inside for name in names_of(node)}


def late_imports(module: str) -> list[Import]:
    """The imports inside functions, in the order of their lines."""
    return sorted((node for node, inside in statements(module) if inside), key=lambda node: node.lineno)


def without_a_reason(module: str) -> list[int]:
    """The lines of late imports with a comment neither beside or above them nor for the whole module."""
    lines = ["", *MODULES[module].read_text(encoding="utf-8").splitlines()]
    if any(line.startswith(REASON_OF_A_MODULE) for line in lines):
        return []
    groups: list[list[int]] = []  # of adjoining imports: the lines of each, and the one above
    for node in late_imports(module):
        own = [*range(node.lineno, (node.end_lineno or node.lineno) + 1)]
        if groups and not "".join(lines[groups[-1][-1] + 1 : node.lineno]).strip():
            groups[-1] += own
        else:
            groups.append([node.lineno - 1, *own])
    explained = [any("# " in line and "# noqa" not in line for line in map(lines.__getitem__, one)) for one in groups]
    return [group[1] for group, reason in zip(groups, explained, strict=True) if not reason]


def test_every_late_import_has_its_reason_in_a_comment():
    found = {name: without_a_reason(name) for name in MODULES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("types", [False, True])
def test_no_modules_import_each_other_in_a_circle(types):
    # A room's own face (`__init__`) may import its modules, which import each other by their whole names.
    arrows = {name: imported(name, types=types) & MODULES.keys() for name in MODULES}
    tuple(TopologicalSorter(arrows).static_order())


def test_the_guide_for_contributors_has_one_row_a_room():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| module | what it does |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z]+)/?`", row.split("|")[1])]
    assert listed == [room for room in ROOMS if room != "__main__"]


def test_every_module_says_in_its_first_line_what_it_does():
    first = {name: (ast.get_docstring(tree_of(name)) or "").partition("\n")[0] for name in MODULES}
    assert {name for name, line in first.items() if not (line.endswith(".") or ":" in line)} == set()


def is_tested_in(module: str, test: Path) -> bool:
    """Whether a test file imports a module of the package, or names it in its docstring."""
    tree = ast.parse(test.read_text(encoding="utf-8"))
    modules = {name for node in ast.walk(tree) if isinstance(node, Import) for name in names_of(node)}
    return f"policygen.{module}".rstrip(".") in modules or f"`{module}`" in (ast.get_docstring(tree) or "")


def test_every_larger_module_has_a_test_file_of_its_name_or_one_that_the_readme_of_the_tests_names():
    tests = Path(__file__).parent
    rows = re.findall(
        r"^\| `([\w/]+)` \| (.+) \| `(\S+)` \|$", (tests / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {}
    for room, names, test in rows:
        inside = PACKAGE / room if room != "policygen" else PACKAGE
        listed |= {name_of(inside / f"{name}.py"): tests / test for name in re.findall(r"`(\w+)`", names)}
    other = {
        name
        for name, path in MODULES.items()
        if not (tests / path.relative_to(PACKAGE).with_name(f"test_{path.name}")).exists()
    }
    assert listed.keys() <= other, "these modules are gone, or have a test file of their name"
    larger = {name for name in other if len(MODULES[name].read_text(encoding="utf-8").splitlines()) > 60}
    assert larger - listed.keys() == set(), "name a test file of these in tests/README.md"
    wrong = {name: test.name for name, test in listed.items() if not (test.exists() and is_tested_in(name, test))}
    assert wrong == {}, "these files neither import the module nor name it in their docstring"
