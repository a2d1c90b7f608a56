"""Exported simulators: each step is `PlantEnv`'s, seeds decide, hostile names stay words, unknown parts are refused."""

from __future__ import annotations

import ast
import ctypes
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporting import EVIL, STRICT, VALVES, hostile_task
from planted import EXACT, LINE, PENDULUM, episode, played
from support import PAIR, Line

from policygen.errors import PolicyError
from policygen.extensions.export.formats import exported_plant
from policygen.extensions.export.program import short_name
from policygen.plants.fit import FittedPlant
from policygen.plants.record import PlantRecord, equations_of
from policygen.plants.simulate import PlantCopies, PlantEnv
from policygen.policies.plant import Equations, Plant
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")
STEPS = 200
NARROW = replace(LINE, observations=(Observation("x", low=-0.5, high=0.4),))  # the data go beyond
POLE = """
let push = 20*right - 10
let pull = (push + 0.05*spin^2*sin(angle))/1.1
next position = position + 0.02*velocity
next velocity = velocity + 0.02*pull
next angle = angle + 0.02*spin
next spin = spin + 0.02*(9.8*sin(angle) - cos(angle)*pull)/(0.5*(4/3 - 0.1*cos(angle)^2/1.1))
reward = 1 - 0.5*ends
ends = abs(angle) > 0.2095 or abs(position) > 2.4
start angle = uniform(0.01, 0.02)
start spin = normal(-0.1, 0.05)
noise position = 0.01
"""
# What was decided and computed one step before; a definition after the step; and the end of the episode in the reward.
REMEMBERING = """
let drive = 0.7*u + 0.3*prev(drive, u) + 0.1*prev(x)
let size = abs(x) + 0.01*prev(u, 1)
next x = 0.9*x + 0.8*prev(u) + 0.4*drive
reward = -next(drive)^2 - size*next(size) - 5*ends
ends = size > 0.9
"""
FUNCTIONS = """
let a = mod(3*x, 0.7) + sign(u)*floor(2*x) + atan2(x, u)/4 + where(x > u and not x < 0, tanh(x), exp(-x))
let b = min(a, 0.9, 1 + x) - max(u, -0.5)*x^3 + sqrt(abs(x))*log(1 + x^2) + x/(0.5 + u^2) + atan(x)^0
next x = 0.5*u + 0.2*sin(clip(b, -3, 3))
reward = fixed(2)*cos(x) - tan(u)/3 + (x == u) - (x >= 0 or u != 0)
"""
PAIRED = """
next x = 0.9*x + 0.2*gear_high - 0.1*gear + 0.05*prev(horn, 3)
next y = y*horn_1 + 0.3*horn_0
"""
MIXED = """
next x = 0.5*x + 0.3*flow - 0.2*gear_off
next y = 0.9*y + heat + 0.1*prev(gear_high) - 0.05*gear
reward = x*flow
"""
BREAKING = """
next x = where(u > 0.5, log(0 - 1 - x^2), where(u < -0.5, 1e308*10, x + u))
reward = where(u > 0.2 and u < 0.4, 1/0, -1)
"""
LOADED = """
hidden load
hidden wear
let pull = 0.3*load + 0.1*prev(load)
next x = 0.8*x + 0.4*u + pull - wear
next load = 0.95*load + 0.02*u
start wear = uniform(0.1, 0.2)
reward = -next(pull)^2 - load*x
ends = x + load > 2
"""
CASES: dict[str, tuple[str, Task]] = {
    "a pole that falls": (POLE, CARTPOLE),
    "a pendulum": (EXACT, PENDULUM),
    "memory": (REMEMBERING, LINE),
    "hidden states": (LOADED, LINE),
    "functions": (FUNCTIONS, LINE),
    "several choices": (PAIRED, PAIR),
    "numbers and a choice": (MIXED, VALVES),
    "what breaks down": (BREAKING, NARROW),
    "nothing stated": ("reward = 0.5", PAIR),
}
Record = tuple[list[float], list[float], float, bool]  # state, observation, reward and end after a step or a start


def made_up(task: Task, steps: int = 60) -> Any:
    """An episode of random numbers."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (steps + 1, len(task.observations)))
    return episode(rows, actions_of(task, steps), rng.uniform(-1, 0.5, steps))


def actions_of(task: Task, count: int, beyond: float = 0.0) -> list[Any]:
    """Random actions, numbers also as far beyond their limits."""
    rng = np.random.default_rng(7)
    counts = [len(actuator.labels) for actuator in task.actuators]
    if not task.has_numbers:
        drawn = rng.integers(0, counts, (count, len(counts))).tolist()
        return [row[0] for row in drawn] if task.action_space == "discrete" else drawn
    low, high, _ = np.array(task.limits.bounds).T
    drawn = rng.uniform(low - beyond, high + beyond, (count, len(counts)))
    choices = np.array(counts) > 0
    drawn[:, choices] = rng.integers(0, np.maximum(counts, 1), drawn.shape)[:, choices]
    return drawn.tolist()  # type: ignore[no-any-return]


@functools.cache
def simulated(name: str) -> PlantEnv:
    text, task = CASES[name]
    episodes = played(task, range(8)) if task in (CARTPOLE, PENDULUM) else [made_up(task)]
    return PlantEnv(equations_of(PlantRecord(text, 1), task), episodes)


# --- who simulates ---------------------------------------------------------------------------------------------------

Simulate = Callable[[FittedPlant, list[Any], Path, bool], list[Record]]


def by_python(plant: FittedPlant, actions: list[Any], folder: Path, noise: bool = False) -> list[Record]:
    text, module = exported_plant(plant, "python"), dict[str, Any]()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} == {"math", "struct"}
    exec(compile(text, "exported", "exec"), module)
    simulator, rows = module["Plant"](), list[Record]()

    def reset() -> None:
        seen = simulator.reset(len(rows), **({"noise": True} if noise else {}))
        rows.append((simulator.state[:], list(seen), 0.0, False))

    reset()
    for action in actions:
        seen, reward, ended = simulator.step(action)
        rows.append((simulator.state[:], list(seen), reward, bool(ended)))
        if ended:
            reset()
    return rows


def by_c(plant: FittedPlant, actions: list[Any], folder: Path, noise: bool = False) -> list[Record]:
    task, name = plant.equations.task, f"{short_name(plant.equations.task)}_plant"
    source, library = folder / "plant.c", folder / "simulator.so"
    size = f"unsigned long size(void);\nunsigned long size(void)\n{{\n    return sizeof(struct {name});\n}}\n"
    source.write_text(exported_plant(plant, "c") + size)
    line = ["gcc", *STRICT, "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = ctypes.CDLL(str(library))
    kept, reward = np.zeros(loaded.size(), np.uint8), np.zeros(1)
    observation = np.empty(len(task.observations))
    here, seen, paid = (ctypes.c_void_p(array.ctypes.data) for array in (kept, observation, reward))
    noisy, rows = [ctypes.c_int(noise)] if plant.equations.plant.noise else [], list[Record]()
    state = kept[: 8 * (len(observation) + len(plant.equations.plant.hidden))].view(np.float64)

    def reset() -> None:
        loaded[f"{name}_reset"](here, ctypes.c_uint64(len(rows)), *noisy, seen)
        rows.append((state.tolist(), observation.tolist(), 0.0, False))

    reset()
    for action in actions:
        row = np.array(action, np.float32 if task.has_numbers else np.int32)
        given = ctypes.c_int(action) if task.action_space == "discrete" else ctypes.c_void_p(row.ctypes.data)
        ended = loaded[f"{name}_step"](here, given, seen, paid)
        rows.append((state.tolist(), observation.tolist(), float(reward[0]), bool(ended)))
        if ended:
            reset()
    return rows


BY = [
    pytest.param(by_python, id="python"),
    pytest.param(by_c, id="c", marks=pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no `gcc`")),
]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", CASES)
def test_every_step_is_the_environment_s(name: str, by: Simulate, tmp_path: Path) -> None:
    env, task = simulated(name), CASES[name][1]
    actions = actions_of(task, STEPS, beyond=0.7)
    rows = by(env.plant, actions, tmp_path, False)
    width, remembered = len(task.observations), len(env.plant.equations.remembered)
    given, ends, failures, begins, before = iter(actions), 0, 0, True, list[float]()
    for state, observation, reward, ended in rows:
        if begins:
            env.reset(seed=0)
            copies = env._copies = PlantCopies(env.plant, [0], np.array([state]))
            copies._noise = np.zeros_like(copies._noise)
            assert observation == env._seen(copies.first).tolist()
        else:
            action = next(given)
            columns = list(np.array(before)[:, None])  # unstable plants would make much of a last digit
            copies._state, copies._memory[remembered:] = columns[:width], columns[width:]
            seen, paid, terminated, _, _ = env.step(np.array(action, np.float64) if task.has_numbers else action)
            found = np.ravel([*copies._state, *copies._memory[remembered:]])
            np.testing.assert_allclose(state, found, rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(observation, seen, rtol=2e-7, atol=1e-15)
            assert reward == pytest.approx(paid, rel=1e-12, abs=1e-15)
            assert ended is terminated
            failures += paid != 0 and paid == pytest.approx(env.plant.reward_outside * (copies._steps_left + 1))
        ends += ended
        begins, before = ended, state
    assert next(given, None) is None
    assert ends >= {"a pole that falls": 5, "memory": 5, "what breaks down": 50}.get(name, 0)
    assert failures >= {"what breaks down": 50}.get(name, 0)
    assert len({state[0] for state, *_ in rows}) > (0 if name == "nothing stated" else STEPS // 8)


@pytest.mark.parametrize("by", BY)
def test_starts_and_noise_are_as_stated_and_a_seed_decides_on_them(by: Simulate, tmp_path: Path) -> None:
    plant = simulated("a pole that falls").plant
    actions = [1] * 2_000  # each episode ends soon, and the next one has another seed
    silent, noisy = (by(plant, actions, tmp_path, noise) for noise in (False, True))
    again = by_python(plant, actions, tmp_path, True)
    assert [ended for *_, ended in noisy] == [ended for *_, ended in again]
    for column in (0, 1):
        for one, other in zip(noisy, again, strict=True):
            np.testing.assert_allclose(one[column], other[column], rtol=1e-6)
    begun = [0, *(i + 1 for i, row in enumerate(silent) if row[3] and i + 1 < len(silent))]
    starts = np.array([silent[i][0] for i in begun])
    assert len(starts) > 100
    assert {tuple(row) for row in starts[:, :2].tolist()} == {tuple(row) for row in plant.starts[:, :2].tolist()}
    assert ((starts[:, 2] >= 0.01) & (starts[:, 2] < 0.02)).all()
    assert np.ptp(starts[:, 2]) > 0.009
    assert starts[:, 3].mean() == pytest.approx(-0.1, abs=0.02)
    assert starts[:, 3].std() == pytest.approx(0.05, abs=0.01)
    moved = np.setdiff1d(np.arange(len(noisy)), begun)
    noise = np.array([noisy[i][1][0] - noisy[i][0][0] for i in moved])
    assert abs(noise.mean()) < 1e-3
    assert noise.std() == pytest.approx(0.01, rel=0.1)
    assert all(row[1][0] == np.float32(row[0][0]) for row in silent)
    assert all(row[1][1:] == np.array(row[0][1:], np.float32).tolist() for row in noisy)


def test_what_is_no_action_moves_nothing(tmp_path: Path) -> None:
    for name, wrong in (("a pole that falls", [2, -1, 0.5]), ("a pendulum", [[float("nan")]]), ("memory", [[]])):
        module: dict[str, Any] = {}
        exec(compile(exported_plant(simulated(name).plant, "python"), "exported", "exec"), module)
        plant = module["Plant"]()
        plant.reset()
        before = dict(vars(plant), state=plant.state[:])
        for action in wrong:
            with pytest.raises((ValueError, IndexError)):
                plant.step(action)
        assert vars(plant) == before
    if shutil.which("gcc"):
        rows = by_c(simulated("a pole that falls").plant, [2], tmp_path)  # it returns -1
        assert rows[0][:2] == rows[1][:2]


def test_a_long_list_of_starts_is_thinned() -> None:
    plant = simulated("memory").plant
    many = replace(plant, starts=np.linspace(-1, 1, 2_101)[:, None])
    text = exported_plant(many, "python")
    assert 400 < text.count(",),") <= 500


# --- strangers -------------------------------------------------------------------------------------------------------


def hostile_plant() -> FittedPlant:
    task = hostile_task()
    task = replace(task, actuators=(replace(task.actuators[0], name=f"{EVIL}!"), task.actuators[1]))
    stated = Plant(
        next=((EVIL, "0.5*prev(NAN) + int"), ("NAN", "int + 1"), (f"{EVIL}/", "2")),
        reward="prev(int, 2)",
        starts=((EVIL, "normal(0, 1)"),),
        noise=((f"{EVIL}*", 0.1),),
    )
    return PlantEnv(Equations(task, stated), [made_up(task)]).plant


def test_whatever_a_task_calls_its_things_no_word_of_it_becomes_code(tmp_path: Path) -> None:
    plant = hostile_plant()
    text = exported_plant(plant, "c")
    assert text.isascii()
    assert set(re.findall(r"[^ -~]", text)) == {"\n"}
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    strange = re.findall(r"\w*(?i:evil)\w*", code)
    assert strange
    name = short_name(plant.equations.task)
    assert all(re.fullmatch(rf"[qnp]_\w*|{name}_plant\w*|{name.upper()}_PLANT\w*", word) for word in strange), strange
    text = exported_plant(plant, "python")
    assert not any("coding" in line for line in text.splitlines()[:2])
    tree = ast.parse(text)
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {word for word in words if "evil" in word and not word.startswith(("q_", "n_", "p_"))}
    if shutil.which("gcc"):
        assert len(by_c(plant, [[0, 1]], tmp_path)) >= 2


def test_every_part_of_a_plant_is_exported() -> None:
    # A new part of the language has to be written in `PlantSource` and in LaTeX before it is added here.
    assert {field.name for field in fields(Plant)} == {"lets", "next", "reward", "ends", "starts", "noise", "hidden"}


def test_a_plant_that_would_be_ambiguous_or_not_finite_is_refused() -> None:
    plant = simulated("memory").plant
    for spoilt in (replace(plant, low=np.array([np.nan])), replace(plant, reward_outside=-np.inf)):
        with pytest.raises(PolicyError, match="not a finite number"):
            exported_plant(spoilt, "c")
    twins = replace(LINE, observations=LINE.observations * 2)
    with pytest.raises(PolicyError, match="have the same name"):
        exported_plant(replace(plant, equations=Equations(twins, Plant())), "c")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_plant_of_a_run_is_printed_or_written(plant_run: Path, tmp_path: Path, line: Line) -> None:
    words = {"c": "int pendulum_plant_step(", "python": "class Plant:", "latex": r"\mathrm{rate}_{t+1}"}
    for to, word in words.items():
        printed = line("export", plant_run, "--plant", "--to", to)
        assert printed.code == 0, printed.err
        assert word in printed.out
    written = line("export", plant_run, "--plant", "--to", "latex", "-o", "plant.tex")
    assert written.out.strip() == "plant.tex"
    assert (tmp_path / "plant.tex").read_text() == printed.out


def test_what_has_no_plant_is_one_sentence(plant_run: Path, tmp_path: Path, line: Line) -> None:
    without = shutil.copytree(plant_run, tmp_path / "run")
    log = without / "attempts.jsonl"
    records = [json.loads(text) for text in log.read_text().splitlines()]
    for record in records:
        record["fitted_plant"] = None
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    for source, to, reason in (
        (without, "c", "has no plant: its best policy was not tuned in one (--refine model)"),
        (plant_run / "best.json", "c", "best.json is not a run folder; only a run has a plant"),
        (plant_run, "json", "a plant can be exported to c, python, latex, not to `json`"),
        (plant_run, "minari", "a plant can be exported to c, python, latex, not to `minari`"),
    ):
        said = line("export", source, "--plant", "--to", to, "-o", "plant.out")
        assert said.code
        assert said.err.startswith("Error: ")
        assert said.err.count("\n") == 1
        assert reason in said.err
        assert not (tmp_path / "plant.out").exists()
