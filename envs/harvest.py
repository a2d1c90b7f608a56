"""Update what task files say about Gymnasium's simulators; run by developers when Gymnasium changes.

    python envs/harvest.py [FILE.toml | ID ...]

It writes heights, facts and spaces below the line `MARK`, in each file of `envs/gymnasium/` and in each MuJoCo task of
`envs/`. Above that line, people write names and prose. An ID without a file gets one with Gymnasium's documentation.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import numpy.typing as npt
import tomli_w

from policygen.quantities.text import slug
from policygen.tasks.documentation import has_model
from policygen.tasks.environments import make_env
from policygen.tasks.load import task_from_file, task_from_gym
from policygen.tasks.spaces import Height
from policygen.tasks.taskfile import draft_of

FOLDER = Path(__file__).parent / "gymnasium"
MARK = "# From here on written by envs/harvest.py, from Gymnasium and its simulator."


def main() -> None:
    """Update the files that the command line names, or all."""
    warnings.simplefilter("ignore")
    named = [Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml" for name in sys.argv[1:]]
    for path in named or [*sorted(FOLDER.glob("*.toml")), *sorted(FOLDER.parent.glob("*.toml"))]:
        if not path.exists():
            task = task_from_gym(path.stem)
            path.write_text(draft_of(replace(task, about=task.documentation, facts=())), encoding="utf-8")
        path.write_text(updated(path), encoding="utf-8")
        print(path.name, flush=True)


def updated(path: Path) -> str:
    """Return the text of a task file with the current facts of its simulator."""
    text, task = path.read_text(encoding="utf-8"), task_from_file(path, trust=True)
    env = make_env(task)
    if not (path.parent == FOLDER or has_model(env)):
        return text
    choice = len(task.actuators) == 1 and task.actuators[0].is_choice
    actions = task.actuators[0].labels if choice else [actuator.name for actuator in task.actuators]
    arguments = arguments_in_force(env) if path.parent == FOLDER else {}
    facts = [
        *describe_arguments(arguments, env, task.about),
        *simulator_facts(env, actions, task.observation_names, arguments),
    ]
    heights = [asdict(one) for one in heights_of(env, len(task.observations))]
    harvested = {
        "gymnasium": gym.__version__,
        "observation_space": " ".join(str(env.observation_space).split()),
        "action_space": " ".join(str(env.action_space).split()),
        "facts": facts,
    }
    env.close()
    tables = {**({"heights": heights} if heights else {}), "harvested": harvested}
    return f"{text.partition(MARK)[0].rstrip()}\n\n{MARK}\n{tomli_w.dumps(tables)}"


# --- arguments, maps, probabilities ----------------------------------------------------------------------------------

# Arguments that do not matter to a policy: images, files, and the parts of the time step.
_NO_ARGUMENT = re.compile(
    r"render|camera|width|height|xml|frame_skip|^kwargs$|^self$|^desc$|in_observation$|from_observation$"
)


def arguments_in_force(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the relevant arguments of the environment's constructor by name, as given or by default."""
    given = dict(env.spec.kwargs) if env.spec else {}
    return {
        name: given.get(name, parameter.default)
        for name, parameter in inspect.signature(type(env.unwrapped).__init__).parameters.items()
        if not _NO_ARGUMENT.search(name) and (name in given or parameter.default is not inspect.Parameter.empty)
    }


def describe_arguments(arguments: Mapping[str, Any], env: gym.Env[Any, Any], about: str) -> list[str]:
    """Describe the arguments in force, the map of letters if there is one, and the probabilities of outcomes.

    Args:
        about: prose; arguments whose values it states are left out.
    """
    off = {word for name, value in arguments.items() if value is False for word in name.split("_")} - {"is", "enable"}
    # The probability of rain is irrelevant if it never rains.
    relevant = {n: value for n, value in arguments.items() if isinstance(value, bool) or not off & set(n.split("_"))}
    pairs = [f"{name} = {text}" for name, value in relevant.items() if (text := value_text(value))]
    pairs = [pair for pair in pairs if pair not in about]
    sentences = [f"Arguments in force: {', '.join(pairs)}."] if pairs else []
    rows = getattr(env.unwrapped, "desc", None)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind == "S" and rows.dtype.itemsize == 1:
        lines = [b"".join(row).decode("ascii", "replace") for row in rows]
        if not any(set(line) & set("|+") for line in lines):  # the documentation shows maps with walls
            letters = set("".join(lines))
            legend = " (S start, F frozen, H hole, G goal)" if letters <= set("SFHG") else ""
            sentences.append(f"The map, row by row from the top{legend}: {' '.join(lines)}.")
    return sentences + _outcome_probabilities(env)


def _outcome_probabilities(env: gym.Env[Any, Any]) -> list[str]:
    """Describe the probabilities of the outcomes of most actions, if there are several."""
    known = getattr(env.unwrapped, "P", None)
    if not isinstance(known, dict) or not all(isinstance(actions, dict) for actions in known.values()):
        return []
    outcomes = Counter(
        tuple(sorted(Fraction(float(chance)).limit_denominator(1000) for chance, *_ in results))
        for actions in known.values()
        for results in actions.values()
    )
    usual = outcomes.most_common(1)[0][0] if outcomes else ()
    if len(usual) < 2:
        return []
    if len(set(usual)) == 1:
        return [f"An action has {len(usual)} outcomes of probability {usual[0]} each."]
    return [f"The outcomes of an action have probabilities {', '.join(map(str, usual[::-1]))}."]


def value_text(value: Any) -> str:
    """Write a number, boolean or string, or a list of at most six of them; empty for anything else."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return str(value)
        share = Fraction(value).limit_denominator(12)
        exact = float(share) == float(value) and share.denominator in (3, 6, 7, 9, 11, 12)
        return str(share) if exact else f"{value:.6g}"
    if isinstance(value, list | tuple) and 0 < len(value) <= 6:
        parts = [value_text(item) for item in value]
        return f"({', '.join(parts)})" if all(parts) else ""
    return ""


# --- sentences on the simulator --------------------------------------------------------------------------------------

MOST_CHARACTERS = 5_000  # characters of the facts about a model; longer ones are written without positions
_LONGEST_LIST = 6  # longer lists of numbers are not constants

# Constants that do not matter to a policy: images, windows, colours, and Gymnasium's own.
_NO_CONSTANT = re.compile(
    r"render|screen|viewport|window|surf|image|img|colou?r|font|icon|pixel|label|background|cell_size"
    r"|(pos|offset|gap|top|origin|orientation)$|^spec$|metadata|^nS$|^nA$|^reward_range$|^start_state_index$",
    re.IGNORECASE,
)


def simulator_facts(
    env: gym.Env[Any, Any], actions: Sequence[str], observations: Sequence[str], known: Collection[str]
) -> list[str]:
    """Describe the system in sentences, beginning with the most useful ones.

    The facts about a MuJoCo model are its time step, actuators, joints, bodies and floor, in SI units and the initial
    pose. Those about any other environment are the constants in its code and, for a Box2D world, bodies, hinges, scales
    and effects of actions. The environment is reset and stepped.

    Args:
        actions: the task's names of the components of an action, in order, or of the choices.
        observations: the task's names of the components of an observation, in order.
        known: names of constants that the prompt already holds; they are left out.
    """
    if not has_model(env):
        world = world_facts(env, observations, actions) if has_world(env) else []
        return [*world, *_constants(env, known)]
    lines = model_facts(env, actions, positions=True)
    return lines if sum(map(len, lines)) <= MOST_CHARACTERS else model_facts(env, actions, positions=False)


def _constants(env: gym.Env[Any, Any], known: Collection[str]) -> list[str]:
    """Return at most one sentence with the constants of the environment and its module: `NAME = value, ...`."""
    seen, changed, episodes = _numbers_of(env), set[str](), 0
    for _, action, *_ in random_play(env):
        if action is None:
            episodes += 1
            continue
        now = _numbers_of(env)
        if episodes == 1:  # some attributes appear only while the first episode is played
            seen = {**seen, **now, **seen}
        changed |= {name for name, value in seen.items() if now.get(name) != value}
    # If each action has a constant that numbers it (`LEFT = 0, DOWN = 1`), these say nothing new.
    unchanged = {name: value for name, value in seen.items() if name not in changed}
    numbering = [name for name, value in unchanged.items() if name.isupper() and value.isdigit()]
    actions = sorted(map(str, range(getattr(env.action_space, "n", 0))))
    known = {*known, *(numbering if sorted(unchanged[name] for name in numbering) == actions else ())}
    words = [f"{name} = {text}" for name, text in unchanged.items() if name not in known]
    return [f"Constants of the simulator: {', '.join(words)}."] if words else []


def _numbers_of(env: gym.Env[Any, Any]) -> dict[str, str]:
    """Return numbers as text, by name: of the module (upper case only), then of the class, then of the instance."""
    base = env.unwrapped
    module = sys.modules.get(type(base).__module__)
    found: dict[str, Any] = {name: value for name, value in vars(module).items() if name.isupper()} if module else {}
    for owner in reversed(type(base).__mro__):
        if owner is not object and not owner.__module__.startswith("gymnasium.core"):
            found.update(vars(owner))
    found.update(vars(base))
    relevant = {n: value for n, value in found.items() if not n.startswith("_") and not _NO_CONSTANT.search(n)}
    return {name: text for name, value in relevant.items() if (text := _plain(value))}


def _plain(value: Any) -> str:
    """Write a finite number, or a short list of them; empty for anything else, booleans included."""
    if isinstance(value, list | tuple) and 1 <= len(value) <= _LONGEST_LIST:
        parts = [_plain(item) if not isinstance(item, list | tuple) else "" for item in value]
        return f"[{', '.join(parts)}]" if all(parts) else ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return ""
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{float(value):.6g}" if math.isfinite(value) else ""


# --- Box2D -----------------------------------------------------------------------------------------------------------

_EPISODES, _STEPS = 3, 40  # of random actions
EXACT = 1e-4  # largest error of `observation = factor * value + shift`, as a share of the observation's range
_MOTOR = "the motor of "  # the beginning of phrases about motors
LEAST_EFFECT = 0.01  # smaller effects of an action are not reported
MOST_PARTS = 10  # elements of a list of bodies or hinges that are described
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
    """Describe a Box2D world in m, kg, s and rad, one sentence each; the environment is stepped.

    Args:
        observations: the task's names of the numbers of an observation.
        actions: the task's names of the numbers of an action, or of the choices.
    """
    env.reset(seed=0)
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    named = _named(env)
    bodies = [f"{name} {body.mass:.3g} kg" for name, body in named if _is_moving_body(body)]
    lines = [f"Bodies: {', '.join(bodies)}; gravity ({world.gravity[0]:.3g}, {world.gravity[1]:.3g}) m/s^2."]
    hinges = [
        f"{name} between {_name_of(joint.bodyA, named)} and {(turned := _name_of(joint.bodyB, named))}"
        + (f", {joint.lowerLimit:.3g} to {joint.upperLimit:.3g} rad" if joint.limitEnabled else "")
        + f", a positive angle moves {turned} towards {_way(joint)}"
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


def _way(joint: Any) -> str:
    """Return the direction in which the second body moves when the angle grows."""
    x, y = joint.bodyB.worldCenter - joint.anchorB
    return f"{'+' if -y > 0 else '-'}x" if abs(y) > abs(x) else f"{'+' if x > 0 else '-'}y"


def _named(env: gym.Env[Any, Any]) -> list[tuple[str, Any]]:
    """Return name and object of each moving body and hinge in the environment's attributes, or one level deeper."""
    found: list[tuple[str, Any]] = []
    waiting = [*_attributes("", env.unwrapped)]
    waiting += [part for name, thing in waiting for part in _attributes(f"{name}.", thing)]
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    # The memory of bodies and joints that the world no longer holds may have been freed.
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
    """Describe observations that are scaled and shifted values of the world: `vx = 0.2 lander x speed`."""
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
    # Values that several observations match are left out: lidar rays, for example, are equal only over flat ground.
    return [some[0] for some in matches.values() if len(some) == 1]


def _effects(env: gym.Env[Any, Any], actions: Sequence[str]) -> list[str]:
    """Describe the effect of each action in the first step, on motors or on the velocity of the heaviest body.

    A motor is described by its new setting, a velocity by the difference from a step with a zero action or the first
    choice.
    """
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete):
        nothing: Any = int(space.start)
        tries = [(name, [int(space.start) + i]) for i, name in enumerate(actions)]
    else:
        assert isinstance(space, gym.spaces.Box)
        nothing = np.zeros(space.shape, space.dtype)
        unit = np.eye(len(actions), dtype=space.dtype)
        tries = []
        for i, (name, low, high) in enumerate(zip(actions, space.low.tolist(), space.high.tolist(), strict=True)):
            levels = [high, high / 2, low]
            tries.append((f"{name} = {', '.join(f'{one:.3g}' for one in levels)}", [one * unit[i] for one in levels]))
    baseline, lines = _after(env, nothing), list[str]()
    for words, some in tries:
        after = [_after(env, action) for action in some]
        changed = [key for key in baseline if any(abs(one[key] - baseline[key]) > LEAST_EFFECT for one in after)]
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


# --- MuJoCo ----------------------------------------------------------------------------------------------------------

MOST_COLLISIONS = 8  # pairs of bodies in one sentence


def model_facts(env: gym.Env[Any, Any], actions: Sequence[str], *, positions: bool) -> list[str]:
    """Reset an environment and describe its MuJoCo model in the initial pose, most useful sentences first.

    Args:
        actions: the task's names of the components of an action, in order.
        positions: whether to state the positions of hinges and shapes.
    """
    base: Any = env.unwrapped
    env.reset(seed=0)
    base.set_state(base.init_qpos, base.init_qvel)  # the pose without the noise of a reset
    sim = _Simulation(base.model, base.data, tuple(actions), positions)
    return [
        *_summary(sim, int(base.frame_skip)),
        *([] if positions else ["(Shortened: positions are left out.)"]),
        *_floor(sim),
        *_collisions(sim),
        *_joints(sim),
        *_bodies(sim),
    ]


@dataclass(frozen=True, slots=True)
class _Simulation:
    """A MuJoCo model, its state in the initial pose, and the names of its motors' inputs."""

    model: Any
    data: Any
    signals: tuple[str, ...]
    positions: bool  # see `model_facts`

    def joint_kind(self, joint: int) -> str:
        return word_of(mujoco.mjtJoint, self.model.jnt_type[joint])

    def geom_kind(self, geom: int) -> str:
        return word_of(mujoco.mjtGeom, self.model.geom_type[geom])

    def joint_name(self, joint: int) -> str:
        return str(self.model.joint(joint).name or f"#{joint}")

    def body_name(self, body: int) -> str:
        return str(self.model.body(body).name or f"body{body}")  # as in the names of its observations


def word_of(enumeration: Any, value: Any) -> str:
    """Return the name of a MuJoCo constant in lower case: `hinge` for `mjJNT_HINGE`."""
    return str(enumeration(int(value)).name).partition("_")[2].lower()


def _summary(sim: _Simulation, frame_skip: int) -> list[str]:
    model = sim.model
    step = float(model.opt.timestep)
    lines = [f"One step lasts {_number(step * frame_skip)} s ({frame_skip} x {_number(step)} s of simulation)."]
    pulls = np.any(model.opt.gravity) and not model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    gravity = f"gravity {_vector(model.opt.gravity)} m/s^2" if pulls else "no gravity"
    lines.append(f"Axes are (x, y, z), z upwards; {gravity}; total mass {_number(model.body_mass.sum())} kg.")
    if model.opt.density > 0 or model.opt.viscosity > 0:
        density, viscosity = _number(model.opt.density), _number(model.opt.viscosity)
        lines.append(f"Everything moves in a fluid of density {density} kg/m^3 and viscosity {viscosity} Pa s.")
    return lines


def _joints(sim: _Simulation) -> list[str]:
    """Describe joints without actuators in sentences, then the others in a table; a single one in a sentence."""
    driven = [int(target[0]) for target in sim.model.actuator_trnid]  # all motors of Gymnasium's models drive joints
    joints = []  # signal, kind, name, traits
    for i, (signal, joint) in enumerate(zip(sim.signals, driven, strict=True)):
        kind = sim.joint_kind(joint)
        traits = _drive(sim, i, "force" if kind == "slide" else "torque") + _resistance(sim, joint)
        joints.append((signal, kind, sim.joint_name(joint), traits + _details(sim, joint)))
    lines = _unactuated_joints(sim, driven)
    if len(joints) < 2:
        return lines + [_sentence(f"{signal} drives {kind} {name}", traits) for signal, kind, name, traits in joints]
    (_, usual, _, first), *others = joints
    shared = [trait for trait in first if all(trait in traits for *_, traits in others)]
    one_kind = all(kind == usual for _, kind, *_ in others)
    rows = [
        {"action": signal, "drives joint": name if one_kind else f"{kind} {name}"}
        | dict(_cell(trait) for trait in traits if trait not in shared)
        for signal, kind, name, traits in joints
    ]
    return _table(
        _sentence(f"Each actuated joint is a {usual}" if one_kind else "Actuated joints, each", shared), rows, lines
    )


# For each trait of a joint: its first words, the head of its column, and the units in which it may end.
_COLUMNS = (
    ("torque = ", "torque", ("N m x action",)),
    ("force = ", "force", ("N x action",)),
    ("action ", "from", ()),
    ("axis ", "axis", ()),
    ("positive moves ", "positive moves", ()),
    ("damping ", "damping", ("N m s/rad", "N s/m")),
    ("armature ", "armature", ("kg m^2", "kg")),
    ("spring ", "spring", ("N m/rad", "N/m")),
    ("dry friction ", "dry friction", ("N m", "N")),
    ("range ", "range", ("rad", "m")),
    ("hinge at ", "hinge at", ("m",)),
)


def _cell(trait: str) -> tuple[str, str]:
    """Return a trait of a joint as the head of a column, with its unit, and a cell."""
    start, head, units = next(one for one in _COLUMNS if trait.startswith(one[0]))
    value = trait.removeprefix(start).replace(" towards ", " ")
    unit = next((unit for unit in units if value.endswith(f" {unit}")), "")
    return (f"{head} [{unit}]", value.removesuffix(f" {unit}")) if unit else (head, value)


def _table(title: str, rows: Sequence[Mapping[str, str]], before: Sequence[str] = ()) -> list[str]:
    """Return the lines before a table, its title, the heads of its columns, and its rows."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    cells = [heads, *([row.get(head, "") for head in heads] for row in rows)]
    return [*before, *([title] if title else []), *(f"|{'|'.join(row)}" for row in cells if rows)]


def _sentence(subject: str, details: Sequence[str]) -> str:
    return f"{subject}: {', '.join(details)}." if details else f"{subject}."


def _unactuated_joints(sim: _Simulation, driven: Collection[int]) -> list[str]:
    """Describe joints without an actuator; those that move a body in the world share one line."""
    model = sim.model
    lines = []
    for body in range(1, model.nbody):
        joints = [j for j in range(model.njnt) if model.jnt_bodyid[j] == body and j not in driven]
        if joints and model.body_parentid[body] == 0 and (len(joints) > 1 or sim.joint_kind(joints[0]) == "free"):
            motions = ", ".join(_motion(sim, joint) for joint in joints)
            height = _number(round(float(sim.data.xpos[body][2]), 3))
            name = sim.body_name(body)
            lines.append(f"Body {name} has no actuator of its own; it starts at height {height} m and moves {motions}.")
        else:
            for joint in joints:
                subject = f"No actuator drives {sim.joint_kind(joint)} {sim.joint_name(joint)}"
                lines.append(_sentence(subject, _details(sim, joint) + _resistance(sim, joint)))
    return lines


def _motion(sim: _Simulation, joint: int) -> str:
    kind, name = sim.joint_kind(joint), sim.joint_name(joint)
    if kind == "free":
        return f"freely in all directions ({name})"
    axis = sim.data.xaxis[joint]
    resistance = "".join(f", {trait}" for trait in _resistance(sim, joint))
    if kind == "slide":
        place = _number(round(float(sim.data.qpos[sim.model.jnt_qposadr[joint]]), 3))
        return f"along {_direction(axis)} ({name}, {place} at the start{resistance})"
    main = int(np.argmax(np.abs(axis)))
    first, second = ("yz", "zx", "xy")[main] if axis[main] > 0 else ("zy", "xz", "yx")[main]
    return f"about {_direction(axis)} ({name}; positive takes {first} towards {second}{resistance})"


def _direction(vector: npt.NDArray[np.float64]) -> str:
    """Name the main axes of a direction: `+x`, `-y+z` and so on."""
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return "".join(
        f"{'+' if part > 0 else '-'}{axis}" for axis, part in zip("xyz", unit, strict=True) if abs(part) > 0.3
    )


def _details(sim: _Simulation, joint: int) -> list[str]:
    """Describe the axis, range and place of a hinge, or the axis and range of a slide."""
    model, data, kind = sim.model, sim.data, sim.joint_kind(joint)
    body = int(model.jnt_bodyid[joint])
    axis = data.xaxis[joint]
    details = [f"axis {_direction(axis)}"]
    # A hinge through the centre of mass of what it moves does not move that centre.
    motion = np.cross(axis, data.subtree_com[body] - data.xanchor[joint])
    if kind == "hinge" and np.linalg.norm(motion) > 0.01:
        details.append(f"positive moves {sim.body_name(body)} towards {_direction(motion)}")
    if model.jnt_limited[joint]:
        low, high = (f"{end:.3g}" for end in model.jnt_range[joint])
        details.append(f"range {low} to {high} {'rad' if kind == 'hinge' else 'm'}")
    if sim.positions and kind == "hinge":
        details.append(f"hinge at {_vector(data.xanchor[joint])} m")
    return details


def _resistance(sim: _Simulation, joint: int) -> list[str]:
    """Describe damping, armature, stiffness and dry friction of a joint, if any."""
    model = sim.model
    dof = int(model.jnt_dofadr[joint])
    slide = sim.joint_kind(joint) == "slide"
    effort, per = ("N", "m") if slide else ("N m", "rad")
    found = (
        ("damping", model.dof_damping[dof], f"{effort} s/{per}"),
        ("armature", model.dof_armature[dof], "kg" if slide else "kg m^2"),
        ("spring", model.jnt_stiffness[joint], f"{effort}/{per}"),
        ("dry friction", model.dof_frictionloss[dof], effort),
    )
    # A newer MuJoCo has several numbers for a stiffness; the first is the linear one.
    values = [(name, float(np.ravel(value)[0]), unit) for name, value, unit in found]
    return [f"{name} {_number(value)} {unit}" for name, value, unit in values if value > 0]


def _drive(sim: _Simulation, actuator: int, effort: str) -> list[str]:
    """Describe the torque or force of a motor and the range of its input."""
    model = sim.model
    types = model.actuator_gaintype, model.actuator_biastype, model.actuator_dyntype
    assert not any(kind[actuator] for kind in types), "not a plain motor, with a fixed gain, no bias and no dynamics"
    gain = float(model.actuator_gear[actuator][0]) * float(model.actuator_gainprm[actuator][0])
    low, high = map(_number, model.actuator_ctrlrange[actuator])
    unit = "N m" if effort == "torque" else "N"
    return [f"{effort} = {_number(gain)} {unit} x action", f"action {low} to {high}"]


def _bodies(sim: _Simulation) -> list[str]:
    """Describe the mass and shapes of bodies in a table; equal bodies share a row."""
    model = sim.model
    shapes = {
        body: [_shape(sim, geom) for geom in range(model.ngeom) if model.geom_bodyid[geom] == body]
        for body in range(1, model.nbody)
    }
    kinds = Counter(shape.partition(", ")[0] for some in shapes.values() for shape, _ in set(some) if ", " in shape)
    usual, count = kinds.most_common(1)[0] if kinds else ("", 0)
    alike: dict[tuple[str, ...], list[str]] = {}
    for body, own in shapes.items():
        told = [(shape, centre) for shape, centre in dict.fromkeys(own) if shape]
        if count > 1 and all(shape.startswith(f"{usual}, ") for shape, _ in told):
            told = [(shape.removeprefix(f"{usual}, "), centre) for shape, centre in told]
        if len(told) > 1:
            told = [(" and ".join(f"{shape} at {centre}" if centre else shape for shape, centre in told), "")]
        mass = float(model.body_mass[body])
        if told or mass:
            alike.setdefault((f"{mass:.3g}", *(told[0] if told else ("", ""))), []).append(sim.body_name(body))
    heads = "mass [kg]", "shape", "centre [m]"
    rows = [
        {"body": ", ".join(names)} | {head: cell for head, cell in zip(heads, row, strict=True) if cell}
        for row, names in alike.items()
    ]
    each = " (in a row with several bodies: each)" if any(len(names) > 1 for names in alike.values()) else ""
    title = f"Shapes: {usual} unless said otherwise{each}." if count > 1 else ""
    return _table(title, rows)


def _shape(sim: _Simulation, geom: int) -> tuple[str, str]:
    """Describe shape and size of a geom, and its centre; empty for planes and meshes."""
    size, kind = sim.model.geom_size[geom], sim.geom_kind(geom)
    centre = _vector(sim.data.geom_xpos[geom]) if sim.positions else ""
    match kind:
        case "sphere":
            return f"sphere of radius {_number(size[0])} m", centre
        case "capsule" | "cylinder":
            axis = sim.data.geom_xmat[geom].reshape(3, 3)[:, 2]
            direction = _direction(axis) if _direction(axis)[0] == "+" else _direction(-axis)
            along = f" along {direction[1:]}" if sim.positions else " long"
            # MuJoCo stores half of the length; a capsule's excludes its round ends.
            return f"{kind} of radius {_number(size[0])} m, {2 * size[1]:.3g} m{along}", centre
    return "", ""


def _floor(sim: _Simulation) -> list[str]:
    """Describe the sliding friction between each plane and the bodies that can touch it."""
    model = sim.model
    lines = []
    for plane in (geom for geom in range(model.ngeom) if sim.geom_kind(geom) == "plane"):
        bodies: dict[str, dict[str, None]] = {}  # the names of bodies, by their friction
        for geom in range(model.ngeom):
            body = int(model.geom_bodyid[geom])
            if body == model.geom_bodyid[plane] or not touches(model, plane, geom):
                continue
            # MuJoCo uses the geom with the higher priority; if both have the same, the larger friction.
            highest = max(model.geom_priority[[plane, geom]])
            friction = max(model.geom_friction[g][0] for g in (plane, geom) if model.geom_priority[g] == highest)
            bodies.setdefault(_number(friction), {})[sim.body_name(body)] = None
        if bodies:
            common = max(bodies, key=lambda value: len(bodies[value]))
            others = [f"{value} for {', '.join(names)}" for value, names in bodies.items() if value != common]
            height = _number(round(float(sim.data.geom_xpos[plane][2]), 3))
            but = f", but {'; '.join(others)}" if others else ""
            lines.append(f"Floor at z = {height} m: sliding friction coefficient {common}{but}.")
    return lines


def _collisions(sim: _Simulation) -> list[str]:
    """Describe which bodies can collide with one another; `_floor` describes contact with planes."""
    model = sim.model
    solid = [geom for geom in range(model.ngeom) if sim.geom_kind(geom) != "plane"]
    touching = (pair for pair in itertools.combinations(solid, 2) if touches(model, *pair))
    bodies = dict.fromkeys(tuple(sorted(int(model.geom_bodyid[geom]) for geom in pair)) for pair in touching)
    found = [f"{sim.body_name(one)} with {sim.body_name(two)}" for one, two in bodies if _may_collide(sim, one, two)]
    if not found:
        return ["No two bodies collide with each other."]
    more = len(found) - MOST_COLLISIONS
    some = ", ".join(found[:MOST_COLLISIONS])
    return [f"Bodies that can collide: {some}{f' and {more} more pairs' if more > 0 else ''}."]


def _may_collide(sim: _Simulation, one: int, other: int) -> bool:
    """Whether two bodies may collide: they can move relative to each other, and the model does not exclude it."""
    model = sim.model
    welded = [int(model.body_weldid[body]) for body in (one, other)]
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in welded]
    neighbours = (parents[0] == welded[1] or parents[1] == welded[0]) and 0 not in welded
    filtered = neighbours and not model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    return welded[0] != welded[1] and not filtered and (one << 16) + other not in model.exclude_signature


def touches(model: Any, one: int, other: int) -> bool:
    """Whether the bit masks of two geoms let them collide."""
    types, affinities = model.geom_contype, model.geom_conaffinity
    return bool(types[one] & affinities[other] or types[other] & affinities[one])


def _number(value: float) -> str:
    """Write a number to four significant digits; rounding errors around zero become 0."""
    return f"{0.0 if abs(value) < 1e-9 else float(value):.4g}"


def _vector(values: Iterable[float]) -> str:
    return "(" + ", ".join(_number(round(float(value), 3)) for value in values) + ")"


# --- feet ------------------------------------------------------------------------------------------------------------

MOST_FEET = 6  # limbs of a walking robot
UPWARDS = 0.9  # minimum vertical component of the axis of a slide joint that lifts a body


def heights_of(env: gym.Env[Any, Any], observations: int) -> list[Height]:
    """Return the heights of the feet of a walking MuJoCo robot: the ends of limbs that can touch the floor."""
    structure = getattr(env.unwrapped, "observation_structure", None)
    if not has_model(env) or not isinstance(structure, dict) or not structure.get("qpos"):
        return []
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    feet = _feet(model)
    skipped, count = int(structure.get("skipped_qpos", 0)), int(structure["qpos"])
    if skipped + count != model.nq or count > observations or not 0 < len(feet) <= MOST_FEET:
        return []
    return [_height(model, body, geoms) for body, geoms in feet.items()]


def _height(model: Any, body: int, geoms: Sequence[int]) -> Height:
    """Return the height of a body's capsules and spheres."""
    name, spheres = str(model.body(body).name), list[tuple[float, float, float, float]]()
    for geom in geoms:
        kind = word_of(mujoco.mjtGeom, model.geom_type[geom])
        assert kind in ("capsule", "sphere"), f"the foot {name} is a {kind}"
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
        half = float(model.geom_size[geom][1]) * matrix.reshape(3, 3)[:, 2]
        for sign in (-1, 1) if kind == "capsule" else (0,):
            x, y, z = (round(float(part), 6) + 0.0 for part in model.geom_pos[geom] + sign * half)
            spheres.append((x, y, z, round(float(model.geom_size[geom][0]), 6)))
    return Height(slug(f"{name or f'body{body}'}_height"), name or body, tuple(spheres))


def _feet(model: Any) -> dict[int, list[int]]:
    """Map the body of each foot to its geoms that can touch a floor at height 0."""
    planes = [g for g in range(model.ngeom) if word_of(mujoco.mjtGeom, model.geom_type[g]) == "plane"]
    kinds = [word_of(mujoco.mjtJoint, kind) for kind in model.jnt_type]
    lifted = any(
        kind == "free" or (kind == "slide" and abs(model.jnt_axis[j][2]) > UPWARDS)
        for j, kind in enumerate(kinds)
        if model.body_parentid[model.jnt_bodyid[j]] == 0
    )
    if not lifted or len(planes) != 1 or abs(float(model.geom_pos[planes[0]][2])) > 1e-6:
        return {}
    parents = {int(parent) for parent in model.body_parentid}
    feet: dict[int, list[int]] = {}
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if body and body not in parents and touches(model, planes[0], geom):
            feet.setdefault(body, []).append(geom)
    return feet


if __name__ == "__main__":
    main()
