"""Surfaces print facts: none computes an interval, a spread or a p-value of its own."""

from __future__ import annotations

import ast
from pathlib import Path

from support import CHECKOUT

import policygen

PACKAGE = Path(policygen.__file__).parent
# Calls from which intervals and p-values are made, and `ddof`, the mark of the spread of a sample.
FORMULAS = {
    *("ddof", "sem", "ppf", "cdf", "sf", "stdtr", "stdtrit", "betaincinv", "betainc", "bootstrap", "multinomial"),
    *("permutation_test", "ttest_1samp", "ttest_ind", "ttest_ind_from_stats", "ttest_rel", "mannwhitneyu", "wilcoxon"),
    *("t_quantile", "stdev", "interval", "a normal quantile"),
}
# What prints, moreover takes each interval from a fact or a score.
SPREADS = FORMULAS | {"std", "var", "half_interval"}
SURFACES = (
    *("progress.py", "api.py", "runs/reading.py", "cli/", "benchmarks/"),
    *(
        f"extensions/{name}"
        for name in ("notebook", "trackers", "robust", "film", "mcp_server", "page", "seats", "sweeps")
    ),
    *(f"extensions/plots/{name}" for name in ("curves", "groups", "style", "traces")),
    *("extensions/compare/comparison.py", "extensions/compare/contenders.py"),
)
PLACES = {
    "episodes/score.py": {"ddof", "stdtr", "stdtrit", "ttest_ind"},  # returns of episodes
    "episodes/requirements.py": {"betaincinv"},  # shares of episodes
    "extensions/plots/curves.py": {"bootstrap"},  # scores of runs
    "benchmarks/adviser.py": {"half_interval"},  # a geometric mean, whose interval is not symmetric
    "benchmarks/encode.py": {"std"},  # inputs of a model are scaled by their spread
}


def formulas(source: str) -> set[str]:
    """The names and numbers in a program from which an interval or a p-value is computed."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
            found |= {keyword.arg or "" for keyword in node.keywords}
        elif isinstance(node, ast.Constant) and node.value in {1.96, 1.959964, 1.645, 2.576}:
            found.add("a normal quantile")
    return found & SPREADS


def test_each_formula_stands_in_one_place_and_no_surface_computes_an_interval() -> None:
    assert formulas("half = 1.96 * x.std(ddof=1)") == {"a normal quantile", "ddof", "std"}
    assert formulas("p = ttest_rel(a, b); half_interval(x)") == {"ttest_rel", "half_interval"}
    assert formulas("score.ci95; axes.plot(x)") == set()
    found = {}
    for root, folder in ((PACKAGE, PACKAGE), (CHECKOUT / "results", CHECKOUT / "results" / "benchmarks")):
        for path in folder.rglob("*.py"):
            name = path.relative_to(root).as_posix()
            own = formulas(path.read_text("utf-8")) & (SPREADS if name.startswith(SURFACES) else FORMULAS)
            if own and not path.name.startswith("test_"):
                found[name] = own
    assert found == PLACES, "take the interval from policygen.runs.facts (`plus_minus`) or from a score"


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
