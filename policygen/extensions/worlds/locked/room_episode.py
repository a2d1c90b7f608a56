"""An episode in a locked room, led by plans: what a planner is told, and what speaks for asking it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policygen.extensions.worlds.locked.options import Executor, Plan
from policygen.extensions.worlds.locked.planner import Report, reported
from policygen.extensions.worlds.locked.view import COLOURED, View

if TYPE_CHECKING:  # minigrid is an extra
    from policygen.extensions.worlds.locked.doors import LockedRoomEnv


class Signs(NamedTuple):
    """What speaks for asking.

    Attributes:
        new: things that were seen first since the last question.
        ended: 1 where the plan is over, else 0.
        since: steps since the last question.
    """

    new: int
    ended: int
    since: int


class RoomEpisode:
    """One episode: the plan is followed until another one takes its place.

    Args:
        room: `SimpleDoorKey`, `KeyInBox`, `RandomBoxKey` or `ColoredDoorKey`, which `env` is.
        seed: of the episode; None goes on with the generator of `env`.

    Attributes:
        steps, questions: so far.
        returned: the sum of rewards so far.
        opened: whether the door is open.
        over: whether the episode is.
    """

    def __init__(self, env: LockedRoomEnv, room: str, seed: int | None = None) -> None:
        self._env, self._colours = env, room == COLOURED
        observation, _ = env.reset(seed=seed)
        self._view = View(observation["image"])
        self._executor = Executor(env.np_random)
        self._told: set[tuple[str, str]] = set()
        self._ended, self._since = True, 0
        self.steps = self.questions = 0
        self.returned = 0.0
        self.opened = self.over = False

    @property
    def report(self) -> Report:
        """What a planner is told now."""
        return reported(self._view, colours=self._colours)

    @property
    def signs(self) -> Signs:
        """What speaks for asking now."""
        return Signs(len(self._known() - self._told), int(self._ended), self._since)

    def follow(self, plan: Plan) -> None:
        """Take up the answer to a question."""
        self.questions += 1
        self._told, self._since = self._told | self._known(), 0
        self._executor.follow(plan, self._view)

    def act(self) -> float:
        """One step of the plan: its reward. Where the plan is over, nothing is done for a step."""
        action = self._executor.act(self._view)
        observation, reward, self.opened, truncated, _ = self._env.step(action)
        self._view = View(observation["image"])
        self._ended = self._executor.is_over(self._view)
        self.over = self.opened or truncated
        self.steps += 1
        self._since += 1
        self.returned += reward
        return reward

    def _known(self) -> set[tuple[str, str]]:
        known = {(thing.kind, thing.colour) for thing in self._view.things()}
        return known | {self._view.carried} if self._view.carried is not None else known
