"""The height of feet, from observations alone, against the simulator's own contacts."""

from __future__ import annotations

import numpy as np
import pytest

from policygen.tasks.environments import make_env
from policygen.tasks.feet import foot_heights
from policygen.tasks.load import load_task

mujoco = pytest.importorskip("mujoco")


@pytest.mark.parametrize(
    ("name", "feet"),
    [
        ("halfcheetah", ["bfoot_height", "ffoot_height"]),
        ("walker2d", ["foot_height", "foot_left_height"]),
        ("ant", ["body4_height", "body7_height", "body10_height", "body13_height"]),
    ],
)
def test_a_foot_is_at_the_floor_where_the_simulator_has_a_contact(name: str, feet: list[str]) -> None:
    task = load_task(name)
    heights = foot_heights(task)
    assert heights is not None
    env = make_env(task)
    env.action_space.seed(0)
    base = env.unwrapped
    ids = [next(i for i in range(base.model.nbody) if (base.model.body(i).name or f"body{i}") == f[:-7]) for f in feet]
    observations, distances = [env.reset(seed=0)[0]], []
    while True:
        mujoco.mj_forward(base.model, base.data)  # contacts are otherwise those of the last step's beginning
        nearest = dict.fromkeys(ids, np.inf)
        for contact in base.data.contact:
            for geom in contact.geom:
                if (body := int(base.model.geom_bodyid[geom])) in nearest:
                    nearest[body] = min(nearest[body], contact.dist)
        distances.append(list(nearest.values()))
        observation, _, terminated, *_ = env.step(env.action_space.sample())
        if terminated or len(observations) == 60:
            break
        observations.append(observation)
    env.close()
    found = heights(np.asarray(observations, np.float32))
    assert list(found) == feet
    above, distance = np.stack(list(found.values()), axis=1), np.array(distances)
    met = np.isfinite(distance)
    assert met.any()
    assert above[met] == pytest.approx(distance[met], abs=1e-4)
    assert (above[~met] > 0).all()


@pytest.mark.parametrize("name", ["cartpole", "reacher", "inverted-pendulum", "swimmer"])
def test_what_does_not_walk_has_no_feet(name: str) -> None:
    assert foot_heights(load_task(name)) is None
