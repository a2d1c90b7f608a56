"""The promises: what is compared with what, and the limit of each ratio."""

from __future__ import annotations

import sys
from functools import partial

import gymnasium as gym
import numpy as np

from policygen.portable import usable_cores
from speed_parts import sides
from speed_parts.measure import Promise

DECIDING = (
    ("HalfCheetah, 92 lines", "HalfCheetah-v5", "halfcheetah-240"),
    ("Humanoid, 122 lines", "Humanoid-v5", "humanoid-236"),
    ("Walker2d, 59 lines", "Walker2d-v5", "walker2d"),
    ("pendulum", "pendulum", "pendulum"),
    ("`angle + 0.3*spin`", "cartpole", sides.TILT),
)
HAND, FILE, LOOP = "straight-line Python by hand", "the exported Python file", "a plain loop"

PROMISES = (
    *(Promise(f"decision: {what}", HAND, 1.5, partial(sides.hand_written, *which)) for what, *which in DECIDING),
    *(Promise(f"decision: {what}", FILE, 1.0, partial(sides.exported_python, *which)) for what, *which in DECIDING),
    *(
        Promise(f"decision: {what}", "a MuJoCo step", 0.15, partial(sides.simulator_step, *which))
        for what, *which in DECIDING[:3]
    ),
    Promise("decision with memory", "numbers instead of memory", 1.3, sides.numbers_instead_of_memory),
    Promise("1,000 decisions: pendulum", "numpy by hand", 1.5, partial(sides.numpy_by_hand, "pendulum", "pendulum")),
    Promise("table: one action", "a step of CartPole", 0.12, sides.table_in_cartpole),
    Promise("table: 1,000,000 rows", "`np.digitize` for each column", 8.0, sides.digitized, faster=True),
    Promise("exported C: `angle + 0.3*spin`", "20 ns", 1.0, sides.exported_c),
    *(
        Promise(f"tuning {name}, 12 candidates on 4 seeds", LOOP, 10.0, partial(sides.refinement, name), faster=True)
        for name in sides.PUMPING
    ),
    *(
        Promise(
            f"tuning {name} on all cores",
            f"{LOOP}, decision by hand",
            bar,
            partial(sides.tuning, *DECIDING[place][1:]),
            faster=True,
            repeats=5,
        )
        for name, place, bar in (("HalfCheetah", 0, 1.4), ("Walker2d", 2, 1.2))
    ),
    Promise(
        "CartPole run of 20 iterations: time not spent stepping or proposing",
        "the whole run",
        0.1,
        sides.own_share,
        repeats=5,
    ),
)


def machine() -> str:
    """Describe the measurement, its machine and versions."""
    return (
        f"Made with `make bench` on {usable_cores()} cores, Python {sys.version.split()[0]}, numpy {np.__version__}, "
        f"gymnasium {gym.__version__}.\nTimes are medians; the two sides of a row are timed in turn, in one run. "
        "The ratio is the median over these pairs:\n"
        "ours divided by theirs, or theirs divided by ours where the promise is to be faster."
    )


ABOUT = """\
A *decision* computes the actions for one observation, as every step of an episode does. *By hand* is Python that a
programmer writes for speed: a statement for each feature, constants in the code, no guards against NaN and infinity
(`speed_parts/by_hand.py`). A *plain loop* steps a single environment and, unless the row says otherwise, asks the same
policy for one decision at a time. Both sides of a row do the same work.
"""
