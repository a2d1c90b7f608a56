"""The limits of tuning, as the search keeps them and prompts state them."""

from __future__ import annotations

import policygen
from policygen.runs.config import effective_config
from policygen.runs.tuning import LEAST_SHARE, constants_for, episodes_of_tuning, method_for, tuning_limits


def test_what_is_left_is_divided_over_the_proposals_to_come() -> None:
    task = policygen.load_task("mountaincar")
    config = effective_config(
        task, "mountaincar", options={"refine": "auto", "iterations": 4, "max_episodes": 3_000, "episodes": 10}
    )
    assert episodes_of_tuning(1, config, 3_000) == 3_000 // 5 - 40
    assert episodes_of_tuning(4, config, 3_000) == 3_000 // 2 - 40
    assert episodes_of_tuning(4, config, LEAST_SHARE) == 0
    tuning = tuning_limits(1, task, config.model_copy(update={"policy": "linear"}), 0)
    assert (tuning.method, tuning.left, tuning.episodes) == ("cma", 3_000, (3_000 - 10) // 5 - 40)
    assert constants_for(500) == 25


def test_each_kind_of_policy_has_its_method() -> None:
    task = policygen.load_task("cartpole")
    config = effective_config(task, "cartpole", options={"refine": "auto:500"})
    table, linear = (
        tuning_limits(1, task, config.model_copy(update={"policy": kind}), 0) for kind in ("table", "linear")
    )
    assert (table.method, linear.method) == ("coordinate", "cma")
    assert method_for("cma", choices=True) == "cma"
    coordinate = effective_config(task, "cartpole", options={"refine": "coordinate"})
    assert tuning_limits(1, task, coordinate.model_copy(update={"policy": "linear"}), 0) is None
    assert tuning_limits(1, task, effective_config(task, "cartpole").model_copy(update={"policy": "table"}), 0) is None
    for name in ("q", "policy-iteration"):
        learning = effective_config(task, "cartpole", options={"refine": name})
        assert tuning_limits(1, task, learning.model_copy(update={"policy": "table"}), 0).method == name
        assert tuning_limits(1, task, learning.model_copy(update={"policy": "linear"}), 0) is None
