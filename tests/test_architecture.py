from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import policygen

PACKAGE = Path(policygen.__file__).parent

# From the ground floor to the roof: a module imports only from modules before it.
FLOORS = """
errors messages expressions resources storage grid rules spaces notation facts tasks task_records ablation
discovery policies normalise drafts language rollout pool workers evaluate analysis
buffer config budget example search traces history visits filters prompts
llm.base llm.keys llm.prices llm.faults llm.retry
llm.openai llm.anthropic llm.gemini llm.manual llm.replay llm.builtin llm
propose refine loop logbook maps pictures curves portraits plots compare runner api preview progress ratios bench cli
__main__
""".split()  # noqa: SIM905


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "__pycache__" not in path.parts}


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports anywhere, except for type checkers only."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if is_for_types_only(node):
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


def test_every_module_has_its_floor():
    missing = set(MODULES) - {""} - set(FLOORS)
    assert not missing, f"give {', '.join(sorted(missing))} a place in FLOORS"
    assert len(FLOORS) == len(set(FLOORS))


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_a_module_imports_only_from_floors_below_it(name):
    below = set(FLOORS[: FLOORS.index(name)])
    above = {other for other in imported(MODULES[name]) if other not in below and other != name}
    assert not above, f"{name} imports {', '.join(sorted(above))} from its own floor or above: move the value down"


def test_the_readme_lists_every_module_above_those_that_import_it():
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    table = text.split("| module | what it does |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_/]+)`", row.split("|")[1])]
    expected = [name for name in FLOORS if "." not in name and name not in ("llm", "__main__")]
    assert [name for name in listed if name != "llm/"] == expected
    assert listed.index("prompts") < listed.index("llm/") < listed.index("propose")


def test_the_reader_of_imports_sees_what_it_must(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "import numpy\nimport policygen.grid\n"
        "from policygen.llm import base, connect\nfrom policygen import __version__\n"
        "if TYPE_CHECKING:\n    from policygen.cli import main\n"
        "else:\n    from policygen.tasks import Task\n"
        "def late():\n    from policygen.runner import start\n"
    )
    assert imported(path) == {"grid", "llm", "llm.base", "tasks", "runner"}


@pytest.mark.parametrize("name", list(MODULES))
def test_every_module_says_in_its_first_line_what_it_does(name):
    documentation = ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))
    assert documentation
    assert documentation.splitlines()[0].endswith((".", ":")) or ":" in documentation.splitlines()[0]
