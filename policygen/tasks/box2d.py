"""Facts about a Box2D world: bodies, hinges, scales of observations, effects of actions on motors and bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

_EPISODES, _STEPS = 3, 40  # of random actions
EXACT = 1e-4  # largest error of `observation = factor * value + shift`, as a share of the observation's range
_MOTOR = "the motor of "  # the beginning of phrases about motors
SLIGHT = 0.01  # smaller effects of an action are not reported
ON_THE_SPOT = 0.01  # m; a body whose centre is nearer to its hinge turns on the spot
MOST_PARTS = 10  # of a list of bodies or hinges
_BODY_VALUES: tuple[tuple[str, Callable[[Any], float]], ...] = (
    ("x", lambda body: body.position[0]),
    ("y", lambda body: body.position[1]),
    ("angle", lambda body: body.angle),
    ("x speed", lambda body: body.linearVelocity[0]),
    ("y speed", lambda body: body.linearVelocity[1]),
    ("spin", lambda body: body.angularVelocity),
)
_HINGE_VALUES: tuple[tuple[str, Callable[[Any], float]], ...] = (
    ("angle", lambda joint: joint.angle),
    ("speed", lambda joint: joint.speed),
)


def has_world(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment simulates a Box2D world."""
    return type(getattr(env.unwrapped, "world", None)).__module__.startswith("Box2D")


def world_facts(env: gym.Env[Any, Any], observations: Sequence[str], actions: Sequence[str]) -> list[str]:
    """Describe the world of an environment in m, kg, s and rad, one sentence each; the environment is stepped.

    Args:
        observations: the task's names of the numbers of an observation.
        actions: the task's names of the numbers of an action, or of the choices.
    """
    env.reset(seed=0)
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    named = _named(env)
    bodies = [f"{name} {body.mass:.3g} kg" for name, body in named if _is_moving_body(body)]
    if not bodies:
        return []
    lines = [f"Bodies: {', '.join(bodies)}; gravity ({world.gravity[0]:.3g}, {world.gravity[1]:.3g}) m/s^2."]
    hinges = [
        f"{name} between {_name_of(joint.bodyA, named)} and {(turned := _name_of(joint.bodyB, named))}"
        + (f", {joint.lowerLimit:.3g} to {joint.upperLimit:.3g} rad" if joint.limitEnabled else "")
        + (f", a positive angle moves {turned} towards {way}" if (way := _direction(joint)) else "")
        for name, joint in named
        if _is_hinge(joint)
    ]
    lines += [f"Hinges: {'; '.join(hinges)}."] * bool(hinges)
    if matches := _scales(env, observations):
        lines.append(f"Observations in values of the simulator (m, s, rad): {', '.join(matches)}.")
    return [*lines, *_effects(env, actions), *_reward(env)]


def _is_moving_body(thing: Any) -> bool:
    return hasattr(thing, "linearVelocity") and thing.mass > 0


def _is_hinge(thing: Any) -> bool:
    return hasattr(thing, "GetMaxMotorTorque") and hasattr(thing, "angle")


def _direction(joint: Any) -> str:
    """Return the direction in which the second body moves when the angle grows; empty if it turns on the spot."""
    x, y = joint.bodyB.worldCenter - joint.anchorB
    if max(abs(x), abs(y)) < ON_THE_SPOT:
        return ""
    return f"{'+' if -y > 0 else '-'}x" if abs(y) > abs(x) else f"{'+' if x > 0 else '-'}y"


def _named(env: gym.Env[Any, Any]) -> list[tuple[str, Any]]:
    """Return (name, thing) of the moving bodies and hinges in the environment's attributes, and one level deeper."""
    found: list[tuple[str, Any]] = []
    waiting = [*_attributes("", env.unwrapped)]
    waiting += [part for name, thing in waiting for part in _attributes(f"{name}.", thing)]
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    # Bodies and joints that the world no longer holds must not be read: their memory may be freed.
    held = [thing for thing in (*world.bodies, *world.joints) if _is_moving_body(thing) or _is_hinge(thing)]
    for name, part in waiting:
        is_held = any(isinstance(part, type(thing)) and part == thing for thing in held)
        if is_held and not any(isinstance(part, type(other)) and part == other for _, other in found):
            found.append((name, part))
    return found


def _attributes(prefix: str, whole: Any) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(whole, "__dict__", {}).items():
        if isinstance(value, list):
            yield from ((f"{prefix}{name}[{i}]", part) for i, part in enumerate(value[:MOST_PARTS]))
        elif not name.startswith("_"):
            yield f"{prefix}{name}", value


def _name_of(thing: Any, named: Sequence[tuple[str, Any]]) -> str:
    return next((name for name, other in named if isinstance(other, type(thing)) and other == thing), "the ground")


def random_play(env: gym.Env[Any, Any]) -> Iterator[tuple[Any, Any, Any, bool]]:
    """Play random actions on fixed seeds; yield observation, action, reward, and whether the episode ended.

    The reset of each episode is yielded, too, with None as its action.
    """
    env.action_space.seed(0)
    for episode in range(_EPISODES):
        yield env.reset(seed=episode)[0], None, 0.0, False
        for _ in range(_STEPS):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            yield observation, action, reward, terminated or truncated
            if terminated or truncated:
                break


def _scales(env: gym.Env[Any, Any], observations: Sequence[str]) -> list[str]:
    """Describe the observations that are a value of the world, scaled and shifted: `vx = 0.2 lander x speed`."""
    if env.observation_space.shape != (len(observations),):
        return []
    rows: list[npt.NDArray[Any]] = []
    seen: list[dict[str, float]] = []  # positions, angles and speeds of the bodies and hinges, by name
    for row, *_ in random_play(env):
        rows.append(np.asarray(row, np.float64))
        seen.append(
            {
                f"{name} {word}": float(read(thing))
                for name, thing in _named(env)
                for word, read in (_BODY_VALUES if _is_moving_body(thing) else _HINGE_VALUES)
            }
        )
    names = [name for name in seen[0] if all(name in one for one in seen)]
    values = np.array([[one[name] for name in names] for one in seen])
    matches: dict[str, list[str]] = {}  # by value
    for observation, column in zip(observations, np.stack(rows).T, strict=True):
        for name, value in zip(names, values.T, strict=True):
            slope, shift = np.polyfit(value, column, 1) if np.ptp(value) > EXACT else (0.0, 0.0)
            if slope and np.abs(slope * value + shift - column).max() < EXACT * np.ptp(column):
                factor = f"{slope:.3g} " if abs(slope - 1) > EXACT else ""
                moved = f" {'+' if shift > 0 else '-'} {abs(shift):.3g}" if abs(shift) > 10 * EXACT else ""
                matches.setdefault(name, []).append(f"{observation} = {factor}{name}{moved}")
                break
    # A value that several observations match is left out: rays, for example, are equal only over flat ground.
    return [some[0] for some in matches.values() if len(some) == 1]


def _effects(env: gym.Env[Any, Any], actions: Sequence[str]) -> list[str]:
    """Describe the effect of each action in the first step: on motors, else on the velocity of the heaviest body.

    A motor is described by its new setting, a velocity by the difference from a step with a zero action or the first
    choice.
    """
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete) and int(space.n) == len(actions):
        nothing: Any = int(space.start)
        tries = [(name, [int(space.start) + i]) for i, name in enumerate(actions)]
    elif isinstance(space, gym.spaces.Box) and space.shape == (len(actions),):
        nothing = np.zeros(space.shape, space.dtype)
        unit = np.eye(len(actions), dtype=space.dtype)
        tries = []
        for i, (name, low, high) in enumerate(zip(actions, space.low.tolist(), space.high.tolist(), strict=True)):
            levels = [high, high / 2, low]
            tries.append((f"{name} = {', '.join(f'{one:.3g}' for one in levels)}", [one * unit[i] for one in levels]))
    else:
        return []
    baseline, lines = _after(env, nothing), list[str]()
    for words, some in tries:
        after = [_after(env, action) for action in some]
        changed = [key for key in baseline if any(abs(one[key] - baseline[key]) > SLIGHT for one in after)]
        motors = [key for key in changed if key.startswith(_MOTOR)]
        changes = []
        for key in motors or changed:
            values = [one[key] - (0.0 if motors else baseline[key]) for one in after]
            changes.append(key.format(", ".join(f"{value + 0.0:.2g}" for value in values)))
        if changes:
            lines.append(f"{words} {'sets' if motors else 'changes in a step'} {', '.join(changes)}.")
    return lines


def _reward(env: gym.Env[Any, Any]) -> list[str]:
    """Describe the reward if it is a weighted sum of the heaviest body's movement and the action's size.

    The weights are found by least squares on random steps, without those that end an episode.
    """
    rows, rewards, name, before = list[list[float]](), list[float](), "", np.zeros(3)
    for _, action, reward, ended in random_play(env):
        if ended:
            continue
        name, body = _heaviest(_named(env))
        after = np.array([read(body) for _, read in _BODY_VALUES[:3]], np.float64)  # x, y, angle
        if action is not None:
            size = np.abs(action).sum() if isinstance(env.action_space, gym.spaces.Box) else 0.0
            rows.append([*(after - before), abs(after[2]) - abs(before[2]), size])
            rewards.append(float(reward))
        before = after
    terms = [*(f"the change of {name} {value}" for value in ("x", "y", "angle")), f"the change of |{name} angle|"]
    table = np.array(rows).reshape(-1, len(terms) + 1)
    weights = np.linalg.lstsq(table, np.array(rewards), rcond=None)[0]
    spread = np.ptp(rewards) if rewards else 0.0
    if len(rows) < 2 * table.shape[1] or not np.abs(table @ weights - rewards).max() < EXACT * spread:
        return []
    shown = [
        f"{weight:.3g} x {term}"
        for weight, term, moved in zip(weights, [*terms, "the sum of |action|"], np.ptp(table, axis=0), strict=True)
        if abs(weight) * moved > EXACT * spread
    ]
    return [f"Reward of a step that does not end the episode: {' + '.join(shown)}.".replace("+ -", "- ")]


def _heaviest(named: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
    return max((one for one in named if _is_moving_body(one[1])), key=lambda one: float(one[1].mass))


def _after(env: gym.Env[Any, Any], action: Any) -> dict[str, float]:
    """Return the motors' settings and the heaviest body's velocities after one step from a fixed start, by phrase."""
    env.reset(seed=0)
    env.step(action)
    named = _named(env)
    found: dict[str, float] = {}
    for name, joint in named:
        if _is_hinge(joint):
            found[f"{_MOTOR}{name} to {{}} rad/s"] = float(joint.motorSpeed)
            found[f"{_MOTOR}{name} to a torque of at most {{}} N m"] = float(joint.GetMaxMotorTorque())
    name, heaviest = _heaviest(named)
    for (word, read), unit in zip(_BODY_VALUES[3:], ("m/s", "m/s", "rad/s"), strict=True):
        found[f"{name} {word} by {{}} {unit}"] = float(read(heaviest))
    return found
