"""Windows: only `portable` uses what it lacks, and outputs may lack most characters."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import command, environment, the_run

import policygen
from policygen import portable
from policygen.errors import LogbookError
from policygen.files import write_atomically
from policygen.tasks.faults import Watchdog

PACKAGE = Path(policygen.__file__).parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "__pycache__" not in path.parts]
# The type stubs of the standard library, which come with mypy, say what each system has.
STUBS = Path(find_spec("mypy").origin).parent / "typeshed" / "stdlib"


def defined(body: list[ast.stmt], platform: str) -> set[str]:
    """The names that the stub of a module defines for a platform."""
    names: set[str] = set()
    for node in body:
        match node:
            case ast.If(test=test):
                known = type("sys", (), {"platform": platform, "version_info": sys.version_info})
                true = eval(ast.unparse(test), {"sys": known, "TYPE_CHECKING": True})
                names |= defined(node.body if true else node.orelse, platform)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.ImportFrom(names=aliases):
                names |= {alias.name for alias in aliases if alias.asname == alias.name}
    return names


@functools.cache
def lacking(module: str) -> frozenset[str]:
    """Return the names of a standard module that Windows lacks; `*` for the whole module."""
    path = STUBS / module.replace(".", "/")
    stub = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")
    if module.partition(".")[0] not in sys.stdlib_module_names or not stub.exists():
        return frozenset()
    body = ast.parse(stub.read_text(encoding="utf-8")).body
    here, there = defined(body, "linux"), defined(body, "win32")
    return frozenset(here - there | ({"*"} if here and not there else set()))


def posix_only(tree: ast.Module) -> list[str]:
    """The uses of what Windows lacks; `getattr(os, "O_NOFOLLOW", 0)` is none."""
    found, modules = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
            found += [alias.name for alias in node.names if "*" in lacking(alias.name)]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {alias.name for alias in node.names}
            found += [f"{node.module}.{name}" for name in names if {name, "*"} & lacking(node.module)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in lacking(modules.get(ast.unparse(node.value), "")):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg in ("preexec_fn", "pass_fds", "start_new_session"):
            found.append(node.arg)
    return found


def test_one_module_alone_uses_what_windows_lacks() -> None:
    trees = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    used = {name: posix_only(tree) for name, tree in trees.items()}
    assert set(used.pop("portable.py")) == {"os.sched_getaffinity", "signal.pthread_kill"}
    assert {name: uses for name, uses in used.items() if uses} == {}


def test_without_what_windows_lacks_all_cores_are_used_and_no_step_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert portable.usable_cores() == os.cpu_count()
    monkeypatch.setattr("policygen.tasks.faults.ALARM", 0)
    with Watchdog(0.01, lambda: 0) as watchdog:
        assert not watchdog._active


def test_a_file_that_another_program_has_open_is_replaced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace, refusals = tmp_path / "a.json", os.replace, iter([True, True])

    def refused_at_first(source: Path, target: Path) -> None:
        if next(refusals, False):
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refused_at_first)
    with pytest.raises(LogbookError, match=r"cannot write .*Access is denied"):  # elsewhere it is refused for good
        write_atomically(path, "new")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(portable, "_PAUSES", (0, 0))
    write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_an_output_of_few_characters_shows_escapes_for_the_others(tmp_path: Path) -> None:
    def said(*words: object) -> str:
        narrow = environment(PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
        done = subprocess.run(command(*words), cwd=tmp_path, env=narrow, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("cp1252")

    start = tmp_path / "start.txt"
    start.write_text("left = 0  # θ ≤ ½\nright = 10*angle + 2*spin\n", encoding="utf-8")
    quick = ("--iterations", 1, "--episodes", 4, "--set", "final_episodes=4", "--policy", "equations")
    assert r"results: \u03b8/cartpole-" in said("run", "cartpole", "--start", start, *quick, "-o", "θ")
    folder = the_run(tmp_path / "θ")
    assert r"left = 0  # \u03b8 \u2264 ½" in said("show", folder)
    assert not [path for path in (folder, *folder.rglob("*")) if re.search(r'[<>:"\\|?*]|[ .]$', path.name)]
