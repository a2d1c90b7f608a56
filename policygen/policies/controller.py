"""A policy at the wheel: the environment's own observations in, its actions out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policygen.errors import PolicyError
from policygen.tasks.spaces import Layout, flatten

if TYPE_CHECKING:
    from policygen.policies.policy import Policy


@dataclass(frozen=True)
class Controller:
    """Acts on one raw observation after another, such as `env.step` returns them.

        controller = policy.controller()
        observation, _ = env.reset()
        observation, *_ = env.step(controller(observation))

    Needs neither the environment nor Gymnasium: the policy's task knows how observations nest.
    """

    policy: Policy

    def __call__(self, observation: Any) -> Any:
        """The action for one observation.

        Args:
            observation: a number, an array, or a mapping or sequence of these, as the environment gives it.

        Returns:
            An int for Discrete, else an array of shape (m,): int64 for MultiDiscrete, float32 for Box.

        Raises:
            PolicyError: the observation is not built like those of the policy's environment.
        """
        task = self.policy.task
        try:
            row = flatten(task.layout, observation)
        except (TypeError, LookupError, ValueError):
            raise PolicyError(f"an observation of {task.gym_id} is {_words(task.layout)}") from None
        return self.policy.act_one(row)


def _words(layout: Layout | None) -> str:
    if layout is None:
        return "a number or an array of numbers"
    if layout.keys is None:
        return f"a sequence of {len(layout.parts)} parts ({'; '.join(map(_words, layout.parts))})"
    keys = ", ".join(f"{key!r}: {_words(part)}" for key, part in zip(layout.keys, layout.parts, strict=True))
    return f"a mapping with {keys}"
