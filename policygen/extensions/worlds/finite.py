"""An environment with finitely many states that publishes its transitions, like Gymnasium's toy-text environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

# (probability, next state, reward, whether the episode ends) of each outcome of an action
Outcomes = list[tuple[float, int, float, bool]]


class FiniteEnv(gym.Env[Any, Any]):
    """Plays the transitions in `P` from `start`; with `P`, returns can be computed without sampling.

    Attributes:
        P: `P[state][action]` lists the outcomes of an action.
        initial_state_distrib: initial probability of each state, shape (states,).
    """

    def __init__(self, transitions: dict[int, dict[int, Outcomes]], start: int, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = ", ".join(self.metadata["render_modes"])
            raise gym.error.UnsupportedMode(f"there is no render mode {render_mode!r}; choose one of {modes}")
        self.P = transitions
        self.start = start
        self.initial_state_distrib: npt.NDArray[np.float64] = np.eye(len(transitions))[start]
        self.observation_space = gym.spaces.Discrete(len(transitions))
        self.actions = len(transitions[start])
        self.action_space = gym.spaces.Discrete(self.actions)
        self.render_mode = render_mode
        self.state = start
        self._ended = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode in a random first state."""
        super().reset(seed=seed)
        self.state, self._ended = self.start, False
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one of the outcomes in `P` by its probability.

        Raises:
            gymnasium.error.ResetNeeded: the episode has ended.
            gymnasium.error.InvalidAction: there is no such action.
        """
        if self._ended:
            raise gym.error.ResetNeeded("the episode has ended: call reset() before step()")
        outcomes = self.P[self.state].get(int(action))
        if outcomes is None:
            raise gym.error.InvalidAction(f"there is no action {action}; there are 0 to {self.actions - 1}")
        chosen = 0
        if len(outcomes) > 1:  # a certain outcome needs no random draw
            chosen = int(self.np_random.choice(len(outcomes), p=[outcome[0] for outcome in outcomes]))
        probability, self.state, reward, self._ended = outcomes[chosen]
        return self.state, reward, self._ended, False, {"prob": probability}
