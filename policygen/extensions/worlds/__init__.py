"""Environments of policygen, registered with Gymnasium under `policygen/` when this package is imported.

policygen imports it before it creates any environment. Other programs use `import policygen.extensions.worlds`, or the
long form of the id: `gymnasium.make("policygen.extensions.worlds:policygen/Nim-v0")`.
"""

from __future__ import annotations

import gymnasium as gym


def _register(name: str, entry: str, steps: int, threshold: float | None, **arguments: str) -> None:
    if f"policygen/{name}-v0" not in gym.registry:  # registering it again would warn
        gym.register(
            f"policygen/{name}-v0",
            f"{__name__}.{entry}",
            max_episode_steps=steps,
            reward_threshold=threshold,
            kwargs=arguments,
        )


_register("Nim", "finite:NimEnv", 10, 1.0)
_register("Maze", "finite:MazeEnv", 100, 0.96)
_register("Adventure", "adventure:AdventureEnv", 60, 41.0)
_register("Navigation", "navigation:NavigationEnv", 1_000, 4_200.0)
_register("Pong", "pong:PongEnv", 1_000, 3.0)
_register("PendulumTorque", "pendulum:PendulumTorqueEnv", 200, None)
for _name in ("SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey"):
    _register(_name, "rooms:LockedRoomEnv", 100, 0.7, room=_name)
_register("WhenToAsk", "rooms:WhenToAskEnv", 100, 0.7)
