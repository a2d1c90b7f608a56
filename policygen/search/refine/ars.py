"""`ars`: augmented random search (Mania, Guy and Recht, arXiv 1803.07055), for hundreds of constants."""

from __future__ import annotations

import numpy as np

from policygen.search.refine.tunable import Refined, Trials, Tunable


def ars(tunable: Tunable, trials: Trials, rng_seed: int) -> Refined | None:
    """Tune by augmented random search; None if the budget is too small for one step."""
    directions, best, step, noise = 16, 8, 0.15, 0.1
    per_step = 2 * directions * 2
    steps = trials.episodes // per_step
    if steps < 1:
        return None
    rng = np.random.default_rng(rng_seed)
    z = np.zeros(tunable.size)
    for number in range(steps):
        deltas = rng.normal(size=(directions, tunable.size))
        pairs = [tunable.at(z + sign * noise * delta) for delta in deltas for sign in (1, -1)]
        scores = trials.climbed(pairs, trials.seeds(2 * number, 2)).reshape(directions, 2)
        order = np.argsort(-scores.max(axis=1))[:best]
        spread = float(scores[order].std()) or 1.0
        z = z + step / (best * spread) * (scores[order, 0] - scores[order, 1]) @ deltas[order]
    return Refined(tunable.at(z), steps * per_step, "ars", tunable.size)
