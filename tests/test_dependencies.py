"""The packages that are imported, compared with those that pyproject.toml declares, and their lowest versions."""

from __future__ import annotations

import ast
import functools
import operator
import os
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from support import CHECKOUT

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
    if name != "dev"
}
INSTALLED = functools.cache(metadata.packages_distributions)
OPTIONAL = {"anthropic", "mcp", "minigrid"}
"""Packages imported at the top of modules that are loaded only when they are asked for."""


def imported(tree: ast.AST) -> set[str]:
    """The top-level names of the packages that a tree imports, less the standard library and this package."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    names = {"google.genai" if name.startswith("google") else name.partition(".")[0] for name in names}
    return names - sys.stdlib_module_names - {"policygen"}


def distributions(name: str) -> set[str]:
    """The distributions that may hold an imported package; a package that is not installed is called as imported."""
    if name == "google.genai":
        return {"google-genai"}
    return {canonicalize_name(found) for found in INSTALLED().get(name, [name])}


def declared(requirements: list[Requirement]) -> set[str]:
    """The distributions that requirements name, with those that the extras in their brackets bring."""
    names: set[str] = {canonicalize_name(requirement.name) for requirement in requirements}
    for requirement in requirements:
        for extra in requirement.extras:
            brought = map(Requirement, metadata.requires(requirement.name) or [])
            names |= {
                canonicalize_name(one.name) for one in brought if one.marker and one.marker.evaluate({"extra": extra})
            }
    return names


@functools.cache
def imports() -> tuple[set[str], set[str]]:
    """The packages that the package imports anywhere, and those that it imports at the top of a module."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((CHECKOUT / "policygen").rglob("*.py"))]
    top = [node for tree in trees for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return set().union(*map(imported, trees)), set().union(*map(imported, top))


def test_every_package_that_is_imported_is_declared() -> None:
    anywhere, at_the_top = imports()
    core, everything = declared(CORE), declared(CORE + [one for extra in EXTRAS.values() for one in extra])
    assert {name for name in anywhere if not distributions(name) & everything} == set()
    assert {name for name in at_the_top - OPTIONAL if not distributions(name) & core} == set()


def test_every_declared_package_is_imported() -> None:
    anywhere, _ = imports()
    assert declared(CORE) - set().union(*map(distributions, anywhere)) == set()


@pytest.mark.parametrize("requirement", [*CORE, *(one for extra in EXTRAS.values() for one in extra)], ids=str)
def test_the_lowest_version_is_the_declared_one(requirement: Requirement) -> None:
    """`make lowest` installs exactly the declared floors; elsewhere nothing is below them."""
    (floor,) = [one.version for one in requirement.specifier if one.operator == ">="]
    try:
        installed = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{requirement.name} is not installed")
    compare = operator.eq if os.environ.get("POLICYGEN_LOWEST") else operator.ge
    assert compare(Version(installed), Version(floor))
