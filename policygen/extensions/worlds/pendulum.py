"""Gymnasium's pendulum under a constant hidden torque; controlling it needs integral action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from policygen.episodes.vector import ADVANCES, advance_pendulum

_FAR = 10.0  # the observation space exceeds the limits by this many standard deviations of the noise


class PendulumTorqueEnv(PendulumEnv):
    """A pendulum to swing up and hold upright against an unknown constant torque.

    It differs from `Pendulum-v1` in two things. First, a load is added to the motor's torque: drawn for each episode,
    constant within it, and not observed. Second, readings are noisy, like those of any sensor. Without noise, a very
    high gain hides the load; with noise, the gain must be low, and the larger the load, the more the rod leans. To keep
    the rod upright, the motor must cancel the load. Only memory reveals it: the integral of the error, or the effect of
    earlier torques. Load or noise alone does little harm: a tuned policy without memory scores -246.3 on 400 held-out
    episodes (standard error 8.0), but -145.0 with `most_load=0` and -147.3 with `noise=0`, each tuned (more briefly)
    for its own case. `results/README.md` compares published policies with and without memory.

    Actions: `Box(-2, 2, (1,), float32)`, the torque of the motor in N m.
    Observation: `Box` of three float32 numbers: cosine and sine of the angle from upright, and the rate of the angle
        in rad/s. Without noise the bounds would be 1, 1 and 8; they are wider by ten standard deviations of the noise.
    Reward: -(angle^2 + 0.1 * rate^2 + 0.001 * torque^2), with the true angle, between -pi and pi, and the motor's
        torque.
    Start: the angle is uniform between -pi and pi, the rate between -1 and 1, the load between -`most_load` and
        `most_load`. For a seed, angle and rate are those of `Pendulum-v1` with that seed; its `options` are accepted,
        too.
    End: none. The registered environment truncates episodes after 200 steps.

    Args:
        g: the acceleration of gravity.
        most_load: maximum load in N m. The motor's maximum is 2, so with 1.5 a quarter of its torque is left to lift
            the rod.
        noise: standard deviation of each reading.
    """

    state: Any  # angle, rate and load, float64 of shape (3,)

    def __init__(
        self, render_mode: str | None = None, g: float = 10.0, most_load: float = 1.5, noise: float = 0.05
    ) -> None:
        super().__init__(render_mode, g)
        self.most_load, self.noise = most_load, noise
        space: Any = self.observation_space
        high = space.high + np.float32(_FAR * noise)
        self.observation_space = gym.spaces.Box(-high, high)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start an episode; return its first observation."""
        super().reset(seed=seed, options=options)
        self.state = np.append(self.state, self.np_random.uniform(-self.most_load, self.most_load))
        return self._read(), {}

    def step(self, u: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Apply the torque `u`, shape (1,), for one step."""
        self.last_u = np.clip(u, -self.max_torque, self.max_torque)[0]  # for `render`
        after = advance_pendulum(self, self.state[:, np.newaxis], np.asarray(u)[np.newaxis])
        self.state = after.state[:, 0]
        if self.render_mode == "human":
            self.render()  # type: ignore[no-untyped-call]
        return self._read(), float(after.rewards[0]), False, False, {}

    def _read(self) -> npt.NDArray[np.float32]:
        angle, rate, _ = self.state
        exact = np.array([np.cos(angle), np.sin(angle), rate])
        return (exact + self.noise * self.np_random.standard_normal(3)).astype(np.float32)


ADVANCES[PendulumTorqueEnv] = advance_pendulum  # the state's third number is the load
