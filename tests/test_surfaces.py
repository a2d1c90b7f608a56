"""Surfaces print facts: none computes an interval, a spread or a number of its own, or names a score by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support import CHECKOUT

import policygen

PACKAGE = Path(policygen.__file__).parent
SURFACES = [
    *(PACKAGE / f"{name}.py" for name in ("progress", "api", "runs/reading")),
    *(PACKAGE / "cli").glob("*.py"),
    *(PACKAGE / "extensions" / f"{name}.py" for name in ("notebook", "trackers", "robust", "film", "mcp_server")),
    *(path for room in ("page", "seats", "sweeps") for path in (PACKAGE / "extensions" / room).glob("*.py")),
    *(PACKAGE / "extensions" / "plots" / f"{name}.py" for name in ("curves", "groups", "style", "traces")),
    *(PACKAGE / "extensions" / "compare" / f"{name}.py" for name in ("comparison", "contenders")),
    *(path for path in (CHECKOUT / "results" / "benchmarks").rglob("*.py") if not path.name.startswith("test_")),
]
# Functions from which an interval of a mean is made; each surface takes the interval from a fact or a statistic.
SPREADS = {"std", "stdev", "var", "sem", "ppf", "bootstrap", "stdtrit", "t_quantile", "interval"}
QUANTILES = {1.96, 1.959964, 1.645}
# A ratio of times has a geometric mean, whose interval is not symmetric; inputs of a model are scaled by their spread;
# means over runs have bootstrap intervals.
OWN_INTERVALS = {"adviser.py": {"half_interval"}, "encode.py": {"std"}}
OWN_INTERVALS |= {"curves.py": {"bootstrap"}, "comparison.py": {"std"}}


def intervals(source: str) -> list[str]:
    """The names and numbers in a program from which an interval is computed."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [name] if name in SPREADS | {"half_interval"} else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            found += [str(node.value)] if node.value in QUANTILES else []
    return found


def test_an_interval_is_recognised() -> None:
    assert intervals("half = 1.96 * np.std(x) / math.sqrt(len(x))") == ["1.96", "std"]
    assert intervals("half = half_interval(x); low, high = t.interval(0.95, 3)") == ["half_interval", "interval"]
    assert intervals("score.ci95; axes.plot(x)") == []


@pytest.mark.parametrize("path", SURFACES, ids=lambda path: str(path.relative_to(path.parents[2])))
def test_no_surface_computes_an_interval(path: Path) -> None:
    found = set(intervals(path.read_text(encoding="utf-8"))) - OWN_INTERVALS.get(path.name, set())
    assert found == set(), f"{path.name}: take the interval from policygen.runs.facts (`plus_minus`) or from a score"


# Calls of which intervals and p-values are made, and `ddof`, the mark of a spread of a sample.
FORMULAS = {
    *("ddof", "sem", "ppf", "cdf", "sf", "stdtr", "stdtrit", "betaincinv", "betainc", "bootstrap", "multinomial"),
    *("permutation_test", "ttest_1samp", "ttest_ind", "ttest_ind_from_stats", "ttest_rel", "mannwhitneyu", "wilcoxon"),
}
PLACES = {
    "episodes/score.py": {"ddof", "stdtr", "stdtrit", "ttest_ind"},  # returns of episodes
    "episodes/requirements.py": {"betaincinv"},  # shares of episodes
    "extensions/plots/curves.py": {"bootstrap"},  # scores of runs
}


def formulas(source: str) -> set[str]:
    """The names and numbers in a program from which an interval or a p-value is computed."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
            found |= {keyword.arg or "" for keyword in node.keywords}
        elif isinstance(node, ast.Constant) and node.value in QUANTILES | {2.576}:
            found.add("a normal quantile")
    return found & (FORMULAS | {"a normal quantile"})


def test_each_formula_stands_in_one_place() -> None:
    assert formulas("half = 1.96 * x.std(ddof=1); p = ttest_rel(a, b)") == {"a normal quantile", "ddof", "ttest_rel"}
    found = {path.relative_to(PACKAGE).as_posix(): formulas(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {name: own for name, own in found.items() if own} == PLACES


def test_only_the_table_of_facts_names_the_final_score() -> None:
    named = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts)
        if any(isinstance(one.value, str) and "final score" in one.value for one in strings):
            named.append(path.relative_to(PACKAGE).as_posix())
    assert named == ["runs/config.py", "runs/facts.py"]  # the first describes a setting


def test_the_terminal_and_the_page_read_figures_from_facts_and_not_from_the_summary() -> None:
    figures = {"final", "perturbed", "seconds", "spent"}
    for name in ("cli/running", "cli/results", "extensions/page/render", "extensions/trackers", "extensions/notebook"):
        tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
        read = [
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("summary")
        ]
        assert not figures & set(read), name
