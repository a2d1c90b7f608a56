"""Environments that Gymnasium lacks, registered with it under `policygen/` when this package is imported.

policygen imports it before it creates any environment. Other programs use `import policygen.extensions.worlds`, or the
long form of the id: `gymnasium.make("policygen.extensions.worlds:policygen/Nim-v0")`.
"""

from __future__ import annotations

import gymnasium as gym


def _register(name: str, module: str, steps: int, threshold: float | None) -> None:
    """Register an id once; registering it again would warn."""
    home = f"{__name__}.{module}"
    if f"policygen/{name}-v0" not in gym.registry:
        gym.register(
            id=f"policygen/{name}-v0",
            entry_point=f"{home}:{name}Env",
            max_episode_steps=steps,
            reward_threshold=threshold,
        )


_register("Nim", "finite", 10, 1.0)
_register("Maze", "finite", 100, 0.96)
_register("Adventure", "adventure", 60, 41.0)
_register("Navigation", "navigation", 1_000, 4_200.0)
_register("Pong", "pong", 1_000, 3.0)
_register("PendulumTorque", "pendulum", 200, None)
for _name in ("SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey"):
    _register(_name, "locked.doors", 100, 0.7)
_register("WhenToAsk", "locked.doors", 100, 0.7)
