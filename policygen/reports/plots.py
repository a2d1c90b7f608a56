"""Pictures in files: learning curves of runs, and what a policy does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from policygen.policies.policy import Policy
from policygen.reports.curves import runs_figure
from policygen.reports.portraits import policy_figure
from policygen.reports.style import check_suffix, save


def plot_runs(folders: Sequence[str | Path], path: str | Path, *, x: str = "attempt") -> Path:
    """Draw the learning curves of one or many runs, finished or not, into `path`.

    One run: the score of each attempt, the best so far, and the final score with its 95% interval. Many runs: the mean
    of the best so far over the runs of one provider and policy kind (from three runs on the interquartile mean), with
    a 95% bootstrap band; a panel for each task.

    Args:
        folders: run folders.
        path: a .png, .svg or .pdf file; its folder exists.
        x: what the scores are drawn over: one of `curves.X_AXES`.

    Raises:
        UsageError: no folder is given, the suffix or `x` is not known, or the runs spent nothing of `x`.
        LogbookError: a folder is not a run, is damaged or has no attempts yet, or `path` cannot be written.
    """
    path = Path(path)
    check_suffix(path)
    return save(runs_figure([Path(folder) for folder in folders], x=x), path)


def plot_policy(policy: Policy, path: str | Path) -> Path:
    """Draw what a policy does into `path`: a map of a table's actions, or the weights of a linear policy.

    Raises:
        UsageError: the suffix is not known, or there is no picture of this kind of policy.
        LogbookError: `path` cannot be written.
    """
    path = Path(path)
    check_suffix(path)
    return save(policy_figure(policy), path)
