"""Measures what stands in few_constants.md: first replies of a chat model, tuned within 1,000 and 2,000 episodes.

python results/benchmarks/few_constants.py [tune] [page] [--tasks CASE ...] [--seeds SEED ...] [--anew]

No language model is asked: the replies are those of results/transcripts. Set OMP_NUM_THREADS=1. Needs
`policygen[mujoco,box2d,envpool]`. Every result is a row of few_constants.csv and is not made again unless `--anew`
forgets them all; `page` writes the table.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cma
import numpy as np
from first_steps import FIRST_REPLIES, FRESH, recorded, trials_of
from measurements import Measurements, parser_of

from policygen.episodes.score import episode_seeds
from policygen.policies.policy import Policy
from policygen.runs.tuning import FIRST_STEP, POPULATION, VALIDATION_SHARE
from policygen.search.refine.cma import best_by_halving, cma_es
from policygen.search.refine.tunable import Trials, Tunable

MEASURED = Measurements("few_constants", ("case", "search", "seed", "constants", "as written", "tuned", "episodes"))
BUDGETS = (1_000, 2_000)
IN_BLOCKS = "1,000 in blocks"
SEARCHES = (*(f"{budget:,} episodes" for budget in BUDGETS), IN_BLOCKS)
LARGEST_BLOCK = 10  # constants; those of one line stay together, even if they are more
TURN = 4  # generations of one block before the next one has its turn
SEEDS = 2  # episodes of a candidate
COMPARED = 4  # centres of the search that are compared at the end


def in_blocks(tunable: Tunable, trials: Trials, seed: int) -> tuple[Policy, int]:
    """Tune one block of constants at a time, each by a CMA-ES of its own; return the policy and the episodes."""
    blocks: list[list[int]] = [[]]
    for _, line in itertools.groupby(range(tunable.size), lambda i: tunable.places[i]):
        constants = list(line)
        if len(blocks[-1]) + len(constants) > LARGEST_BLOCK and blocks[-1]:
            blocks.append([])
        blocks[-1] += constants
    options = {"popsize": POPULATION, "verbose": -9, "verb_log": 0, "CMA_diagonal": False}
    searches = [
        cma.CMAEvolutionStrategy(np.zeros(max(2, len(block))), FIRST_STEP, {**options, "seed": seed + 1 + k})
        for k, block in enumerate(blocks)
    ]
    centre, centres, spent = np.zeros(tunable.size), [np.zeros(tunable.size)], 0
    validation = int(trials.episodes * VALIDATION_SHARE)
    for turn in itertools.count():
        block, search = blocks[turn // TURN % len(blocks)], searches[turn // TURN % len(blocks)]
        if spent + POPULATION * SEEDS > trials.episodes - validation:
            break
        samples = search.ask()
        moved = np.tile(centre, (len(samples), 1))
        moved[:, block] = np.array(samples)[:, : len(block)]
        scores = trials.returns([tunable.at(z) for z in moved], trials.seeds(SEEDS * turn, SEEDS))
        search.tell(samples, (-scores).tolist())
        centre = centre.copy()
        centre[block] = search.result.xfavorite[: len(block)]
        centres.append(centre)
        spent += POPULATION * SEEDS
    chosen = [tunable.at(centres[i]) for i in np.linspace(len(centres) - 1, 0, COMPARED).astype(int)]
    place, validated = best_by_halving(chosen, replace(trials, episodes=validation), SEEDS * len(centres))
    return chosen[place], spent + validated


def tuned(case: str, search: str, seed: int) -> list[dict[str, Any]]:
    """Tune a recorded first reply once; return its scores on fresh episodes before and after."""
    task, policy, _, _ = recorded(case)
    tunable = Tunable(policy)
    with trials_of(task, seed, int(search.split()[0].replace(",", ""))) as trials:
        if search == IN_BLOCKS:
            result, episodes = in_blocks(tunable, trials, seed)
        else:
            refined = cma_es(tunable, trials, seed)
            assert refined is not None
            result, episodes = refined.policy, refined.episodes
        before, after = trials.returns([policy, result], episode_seeds(seed, "evaluation", FRESH)).tolist()
    row = {"constants": tunable.size, "as written": round(before, 1), "tuned": round(after, 1)}
    return [{**row, "episodes": episodes}]


def lines() -> Iterator[str]:
    """Yield the table of few_constants.md."""
    yield f"| first reply | constants | as written | {' | '.join(SEARCHES)} |"
    yield f"| --- | ---: | ---: |{' --- |' * len(SEARCHES)}"
    for case in FIRST_REPLIES:
        found = {search: MEASURED.rows(case, search) for search in SEARCHES}
        measured = [row for rows in found.values() for row in rows]
        if not measured:
            continue
        written = statistics.median(row["as written"] for row in measured)
        cells = [", ".join(f"{row['tuned']:,.0f}" for row in rows) for rows in found.values()]
        yield f"| {case} | {measured[0]['constants']:.0f} | {written:,.0f} | {' | '.join(cells)} |"


def main() -> None:
    """Measure what is asked for, the smallest budgets first, and write the page's table."""
    asked = MEASURED.asked(parser_of(__doc__, range(255, 258)), FIRST_REPLIES, "tune", "page")
    if "tune" in asked.what:
        order = (SEARCHES[0], IN_BLOCKS, *SEARCHES[1 : len(BUDGETS)])
        for search, case, seed in itertools.product(order, asked.tasks, asked.seeds):
            MEASURED.once((case, search, seed), functools.partial(tuned, case, search, seed))
    if "page" in asked.what:
        MEASURED.write_table(lines())


if __name__ == "__main__":
    main()
