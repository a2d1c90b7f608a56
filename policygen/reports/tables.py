"""Finished runs side by side, as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from policygen.episodes.score import score_of_returns
from policygen.errors import LogbookError
from policygen.runs.config import provider_label, special_settings
from policygen.runs.logbook import Logbook

Group = tuple[str, str, str]  # task, proposals, policy

_HEADER = (
    "task",
    "proposals",
    "policy",
    "seed",
    "attempts",
    "LLM calls",
    "search episodes",
    "final score",
    "95% interval",
    "final episodes",
)


def comparison(folders: Sequence[Path]) -> str:
    """One row per run, then one for each task, provider, kind of policy and special settings with several runs.

    A run's interval is that of its final score over episodes; a group's is Student's t over its runs.

    Raises:
        LogbookError: none of the folders is a finished run.
    """
    found = [(folder, Logbook(folder).summary()) for folder in folders]
    unfinished = [folder for folder, summary in found if summary is None]
    finished = [(folder, summary) for folder, summary in found if summary is not None]
    if not finished:
        raise LogbookError(f"{folders[0]} is not a finished run; finish it with: policygen resume {folders[0]}")
    groups: dict[Group, list[dict[str, Any]]] = {}
    configs = {folder: Logbook(folder).config() for folder, _ in finished}
    for folder, summary in finished:
        others = [configs[other] for other, of_other in finished if of_other["task"] == summary["task"]]
        special = special_settings(configs[folder], others)
        group = summary["task"], provider_label(summary["llm"]), summary["policy_kind"] + special
        groups.setdefault(group, []).append(summary)
    rows = [_HEADER, tuple("---" for _ in _HEADER)]
    for group, members in sorted(groups.items()):
        rows += [_row(group, summary) for summary in sorted(members, key=lambda s: int(s["seed"]))]
    rows += [_group_row(group, members) for group, members in sorted(groups.items()) if len(members) > 1]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
    if unfinished:
        table += f"\nLeft out, because unfinished: {', '.join(folder.name for folder in unfinished)}.\n"
    return table


def repeated_runs(folders: Sequence[Path]) -> list[Path]:
    """The runs whose settings and seed are those of an earlier one in the list: they say nothing new."""
    seen: set[str] = set()
    repeated = []
    for folder in folders:
        key = Logbook(folder).config().model_dump_json()
        if key in seen:
            repeated.append(folder)
        seen.add(key)
    return repeated


def _row(group: Group, summary: dict[str, Any]) -> tuple[str, ...]:
    final = summary["final"]
    if final is None:
        score, interval, episodes = "no policy", "", ""
    elif final["exact"]:
        score, interval, episodes = f"{final['mean']:.4f}", "exact", "-"
    else:
        score, episodes = f"{final['mean']:.1f}", str(final["episodes"])
        interval = "{:.1f} to {:.1f}".format(*final["ci95"])
    return (
        *group,
        str(summary["seed"]),
        str(summary["attempts"]),
        str(summary["llm_calls"]),
        str(summary["episodes"]),
        score,
        interval,
        episodes,
    )


def _group_row(group: Group, members: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    finals = np.array([m["final"]["mean"] for m in members if m["final"] is not None])
    score = score_of_returns(finals, (), "runs") if len(finals) else None
    digits = 4 if members[0]["final"] and members[0]["final"]["exact"] else 1
    return (
        f"**{group[0]}**",
        *group[1:],
        f"mean of {len(finals)} runs",
        f"{np.mean([m['attempts'] for m in members]):.1f}",
        f"{np.mean([m['llm_calls'] for m in members]):.1f}",
        f"{np.mean([m['episodes'] for m in members]):.0f}",
        f"**{score.mean:.{digits}f}**" if score else "no policy",
        f"{score.ci95[0]:.{digits}f} to {score.ci95[1]:.{digits}f} over runs" if score and score.ci95 else "",
        "",
    )
