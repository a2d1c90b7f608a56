"""Each formula of the statistics stands in one place: intervals, standard errors, p-values, resampling."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import policygen
from policygen.episodes.score import half_interval, p_of_higher_mean, standard_error

PACKAGE = Path(policygen.__file__).parent
# Calls of which intervals and p-values are made, and `ddof`, the mark of a spread of a sample.
FORMULAS = {
    *("ddof", "sem", "ppf", "cdf", "sf", "stdtr", "stdtrit", "betaincinv", "betainc", "bootstrap", "multinomial"),
    *("permutation_test", "ttest_1samp", "ttest_ind", "ttest_ind_from_stats", "ttest_rel", "mannwhitneyu", "wilcoxon"),
}
QUANTILES = {1.96, 1.959964, 1.645, 2.576}
ALLOWED = {
    "episodes/score.py": {"ddof", "stdtr", "stdtrit", "ttest_ind"},  # returns of episodes
    "episodes/requirements.py": {"betaincinv"},  # shares of episodes
    "extensions/plots/curves.py": {"bootstrap"},  # scores of runs
    "extensions/compare/comparison.py": {"ddof"},  # the standard deviation that the table shows
}


def formulas(source: str) -> set[str]:
    """The names and numbers in a program from which an interval or a p-value is computed."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
            found |= {keyword.arg or "" for keyword in node.keywords}
        elif isinstance(node, ast.Constant) and node.value in QUANTILES:
            found.add("a normal quantile")
    return found & (FORMULAS | {"a normal quantile"})


def test_formulas_are_recognised() -> None:
    assert formulas("half = 1.96 * x.std(ddof=1) / math.sqrt(n)") == {"a normal quantile", "ddof"}
    assert formulas("p = scipy.stats.ttest_rel(a, b).pvalue; low = t.ppf(0.025, n)") == {"ttest_rel", "ppf"}
    assert formulas("np.quantile(x, 0.5); score.std") == set()


def test_each_formula_stands_in_one_place() -> None:
    paths = {str(path.relative_to(PACKAGE).as_posix()): path for path in PACKAGE.rglob("*.py")}
    found = {name: formulas(path.read_text(encoding="utf-8")) for name, path in paths.items()}
    assert {name: own for name, own in found.items() if own} == ALLOWED


def test_errors_and_intervals_are_students() -> None:
    rng = np.random.default_rng(7)
    ones, others = rng.normal(1, 2, 12), rng.normal(0, 1, 7)
    welch = stats.ttest_ind(ones, others, equal_var=False, alternative="greater")
    assert p_of_higher_mean(ones, others) == pytest.approx(welch.pvalue)
    assert (ones.mean() - others.mean()) / standard_error(ones, others) == pytest.approx(welch.statistic)
    assert p_of_higher_mean([2.0, 2.0], [1.0, 1.0]) == 0.0
    low, high = stats.t.interval(0.95, 11, ones.mean(), ones.std(ddof=1) / math.sqrt(12))
    assert half_interval(ones) == pytest.approx((high - low) / 2)
    low, high = stats.t.interval(0.9, 11, ones.mean(), ones.std(ddof=1) / math.sqrt(12))
    assert half_interval(ones, 0.95) == pytest.approx((high - low) / 2)
    assert half_interval([3.0]) == 0.0
    columns = np.stack([ones, 2 * ones], axis=1)
    assert standard_error(columns) == pytest.approx([stats.sem(ones), stats.sem(2 * ones)])
