"""Export of a plant as a simulator in C99 or plain Python, with the results of `policygen.plants.simulate.PlantEnv`."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from policygen.errors import PolicyError
from policygen.extensions.export.c import C
from policygen.extensions.export.program import part_of_action, short_name, weighted_sum
from policygen.extensions.export.python import Python
from policygen.extensions.export.source import Source
from policygen.extensions.export.writing import comment_text, double
from policygen.plants.fit import FittedPlant
from policygen.plants.record import lines_with_units
from policygen.policies.features import Lets
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, read_start
from policygen.policies.shaping import REWARD
from policygen.quantities.compiled import slot_of
from policygen.quantities.text import next_of
from policygen.quantities.tree import Name, Number, names_in, replaced
from policygen.tasks.task import decision_names

MOST_STARTS = 500  # first observations in a file; more are thinned out evenly
_ABOUT_UNIFORM = "A number drawn from 0 to 1, 1 excluded: splitmix64 (Steele, Lea and Flood, 2014)."
_ABOUT_NORMAL = "A number drawn from the standard normal distribution (Box and Muller, 1958)."


class PlantSource(Source):
    """A plant as a simulator, with the numbers of `plant.equations`; members of an ensemble are ignored.

    The names of locals begin with `q_` (quantities before the step, parts of the action), `p_` (predictions) or `n_`
    (quantities after the step).

    Raises:
        PolicyError: two quantities have the same name, or the data hold numbers that are not finite.
    """

    own: ClassVar[str]  # text before the name of a value that is kept from step to step
    reward: ClassVar[str]  # the variable that receives the reward

    def __init__(self, plant: FittedPlant) -> None:
        self.plant, self.equations = plant, plant.equations
        super().__init__(self.equations.task)
        self.width = len(self.task.observations)
        self.states = (*self.task.observation_names, *self.equations.plant.hidden)
        self.noise = {name: deviation for name, deviation in self.equations.plant.noise if deviation}
        lets = [(name, self.equations.nodes[f"let {name}"]) for name, _ in self.equations.plant.lets]
        self.definitions = (*self.task.parsed_features, *lets)
        quantities = [*self.states, *(name for name, _ in self.definitions)]
        before = [*quantities, *decision_names(self.task)]
        if twice := [name for i, name in enumerate(before) if name in before[:i]]:
            raise PolicyError(
                f"the plant cannot be exported: two quantities have the same name, {twice[0]}; rename one of them"
            )
        if not np.isfinite([*plant.low, *plant.high, plant.reward_outside]).all():
            raise PolicyError("the plant cannot be exported: an observation or a reward is not a finite number")
        self.memory = [self.own + self._identifier("m", name) for name in self.equations.remembered]
        self.names: dict[str, str] = {
            ENDS: "ends",  # unless a quantity has that name
            **{name: self._identifier("q", name) for name in before},
            **{next_of(name): self._identifier("n", name) for name in quantities},
            **dict(zip(map(slot_of, self.equations.remembered), self.memory, strict=True)),
        }
        self.after = {name: Name(next_of(name)) for name in quantities}
        self._reset()
        self.resetting, self.body = self.body, []  # the lines of the function that begins an episode
        self._step()
        self.stepping, self.body = self.body, self.resetting + self.body

    @abstractmethod
    def _fill(self, name: str, values: Sequence[str]) -> None:
        """Set the elements of the array `name`, which the code returns, to these values."""

    def _drawn(self, word: str, spread: float, first: float = 0.0) -> str:
        """Write a number drawn from the distribution `word`, times `spread`, plus `first`."""
        # No quantity has a name with a space.
        self.names[f"drawn {word}"] = self.call(word)
        return self.write(weighted_sum([(Name(f"drawn {word}"), spread)], first))

    def _reset(self) -> None:
        self._add(f"{self.own}random = seed")
        if self.noise:
            self._add(f"{self.own}noise = noise")
        self._add(f"{self.own}left = {double(self.task.max_steps)}")
        stated = {name: read_start(text) for name, text in self.equations.plant.starts}
        unstated = [i for i, name in enumerate(self.states) if name not in stated]
        if unstated:
            starts = self.plant.starts[:: math.ceil(len(self.plant.starts) / MOST_STARTS)].copy()
            starts[:, : self.width] = starts[:, : self.width].astype(np.float32)
            self._add_array("pg_starts", starts[:, unstated])
            self._define("row", self.call("whole", f"{self.call('uniform')} * {double(len(starts))}"), integer=True)
        for i, name in enumerate(self.states):
            if i in unstated:
                value = f"pg_starts[row][{unstated.index(i)}]"
            else:
                word, first, second = stated[name]
                value = self._drawn(word, second if word == "normal" else second - first, first)
            self._add(f"{self._state(i)} = {value}")
        for slot in self.memory:
            self._add(f"{slot} = {self.call('unknown')}")
        self._fill("observation", [self._seen(i, self._state(i)) for i in range(self.width)])

    def _step(self) -> None:
        names, nodes = self.states, self.equations.nodes
        moved = [nodes.get(f"{NEXT} {name}", Name(name)) for name in names]
        reward, ends = nodes.get(REWARD, Number(0.0)), replaced(nodes.get(ENDS, Number(0.0)), self.after)
        later = tuple((next_of(name), replaced(node, self.after)) for name, node in self.definitions)
        read = set(self.equations.remembered).union(*map(names_in, (*moved, reward, ends)))
        for name, node in reversed(self.definitions + later):
            read |= names_in(node) if name in read else set()
        self._take_action(read)
        for i, name in enumerate(names):
            if name in read:
                self._define(self.names[name], self._state(i))
        self._define_needed(self.definitions, read)
        tests = [self.call("finite_test", "paid")]
        for i, (name, node) in enumerate(zip(names, moved, strict=True)):
            predicted, inside = self._identifier("p", name), self.names[next_of(name)]
            if i >= self.width:  # a hidden state may take any value
                self._define(inside, self.write(node))
                continue
            self._define(predicted, self.write(node))
            known = self.call("where", self.call("==", predicted, predicted), predicted, "0.0")
            self._define(inside, self.call("clip", known, double(self.plant.low[i]), double(self.plant.high[i])))
            tests.append(self.call("==", inside, predicted))
        self._define_needed(later, read)
        self._define("ends", self.write(ends))
        self._define("paid", self.write(reward))
        self._define("failed", self.call("not", self._all(tests)), integer=True)
        left, outside = f"{self.own}left", double(self.plant.reward_outside)
        self._add(f"{self.reward} = {self.call('where', 'failed', f'{outside} * {left}', 'paid')}")
        self._add(f"{left} = {left} - 1.0")
        for slot, name in zip(self.memory, self.equations.remembered, strict=True):
            self._add(f"{slot} = {self.names[name]}")
        seen = []
        for i, name in enumerate(names):
            value = self.names[next_of(name)]
            self._add(f"{self._state(i)} = {value}")
            if name in self.noise:
                drawn = self._drawn("normal", self.noise[name])
                value = f"({value} + {self.call('where', f'{self.own}noise', drawn, '0.0')})"
            seen += [self._seen(i, value)] if i < self.width else []
        self._fill("observation", seen)

    def _all(self, tests: Sequence[str]) -> str:
        return functools.reduce(functools.partial(self.call, "and"), tests)

    def _take_action(self, read: Collection[str]) -> None:
        """Reject an invalid action, and define the parts of the action that are read."""
        parts, tests = list(map(self._part, range(len(self.task.actuators)))), []
        bounds = np.array([limits[:2] for limits in self.task.limits.bounds], np.float32).tolist()
        for k, actuator in enumerate(self.task.actuators):
            if self.task.has_numbers:
                tests.append(f"{parts[k]} == {parts[k]}")
                parts[k] = self.call("clip", self.call("single", parts[k]), *map(double, bounds[k]))
            else:
                tests.append(self.call("choice_test", parts[k], str(len(actuator.labels))))
        self._add(self.call("refuse", self._all(tests)))
        for name in decision_names(self.task):
            if name in read:
                kept = part_of_action(self.task, name)
                self._define(self.names[name], self._chosen(parts[kept.actuator or 0], kept.label))

    def _define_needed(self, definitions: Lets, read: Collection[str]) -> None:
        for name, node in definitions:
            if name in read:
                self._define(self.names[name], self.write(node))

    def _state(self, index: int) -> str:
        return f"{self.own}state[{index}]"

    def _seen(self, index: int, value: str) -> str:
        """Write an observation in single precision, clipped to the limits of the task."""
        observation = self.task.observations[index]
        low, high = np.array([observation.low, observation.high], np.float32).tolist()
        text = self.call("single", value)
        text = self.call("max", text, double(low)) if low > -np.inf else text
        return self.call("min", text, double(high)) if high < np.inf else text

    def _plant_heading(self, usage: Sequence[str]) -> list[str]:
        """Return the lines of the first comment: how to call the code, and the plant's own text."""
        notes = [
            "An episode begins like one of those seen, or as `start` says. Your code counts its steps.",
            "Observations are rounded to single precision, as policies see them; the state is not.",
            f"If a state leaves the region of the {self.plant.steps:,} steps seen, the episode ends, and pays",
            f"{self.plant.reward_outside:.4g} for each remaining step.",
        ]
        lines = ["The plant itself:", "", *lines_with_units(self.equations.plant.to_text(), self.task)]
        return self._heading("A simulator of", [*usage, "", *notes], lines)


class PlantInC(C, PlantSource):
    """A plant as C99."""

    own = "plant->"
    reward = "*reward"
    templates: ClassVar[Mapping[str, str]] = {
        **C.templates,
        "refuse": "if (!({0})) return -1",  # the argument is the test that the action is valid
        "where": "({0} ? {1} : {2})",  # only the chosen value is computed: no noise is drawn where none is wanted
        "uniform": "pg_uniform(&plant->random)",
        "normal": "pg_normal(&plant->random)",
        "whole": "(unsigned long)({0})",
        "unknown": "NAN",
        "finite_test": "isfinite({0})",
        "choice_test": "{0} >= 0 && {0} < {1}",
    }
    helpers: ClassVar[dict[str, str]] = {
        **C.helpers,
        "pg_uniform": f"""/* {_ABOUT_UNIFORM} */
static double pg_uniform(uint64_t *random)
{{
    uint64_t z = *random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}}""",
        "pg_normal": f"""/* {_ABOUT_NORMAL} */
static double pg_normal(uint64_t *random)
{{
    const double length = sqrt(-2.0 * log(1.0 - pg_uniform(random)));
    return length * cos({2 * np.pi!r} * pg_uniform(random));
}}""",
    }

    def _lines(self) -> Iterator[str]:
        name, width = f"{short_name(self.task)}_plant", len(self.task.observations)
        kind = "float" if self.task.has_numbers else "int"
        action = "int action" if self.discrete else f"const {kind} action[{len(self.task.actuators)}]"
        noise = [", int noise"] if self.noise else []
        reset = f"void {name}_reset(struct {name} *plant, uint64_t seed{''.join(noise)}, double observation[{width}])"
        step = f"int {name}_step(struct {name} *plant, {action}, double observation[{width}], double *reward)"
        usage = [
            f"{reset};",
            f"{step};",
            "",
            "A step returns 1 if the episode has ended, else 0; -1 if the action is invalid.",
        ]
        yield from (*self._comment(self._plant_heading(usage)), "#include <math.h>", "#include <stdint.h>", "")
        yield from (f"#define {name.upper()}_MAX_STEPS {self.task.max_steps}", "")
        yield from (*self._used_helpers(), *self.data, f"struct {name} {{")
        yield from (f"    double state[{len(self.states)}];", "    double left; /* steps */")
        for slot, remembered in zip(self.memory, self.equations.remembered, strict=True):
            yield f"    double {slot.removeprefix(self.own)}; /* {comment_text(remembered)} one step before */"
        yield from ("    uint64_t random;", *(f"    {word[2:]};" for word in noise), "};", "")
        yield from (f"{reset};", f"{step};", "", reset, "{", *self.resetting, "}", "")
        yield from (step, "{", *self.stepping, "    return failed || ends != 0.0;", "}")


class PlantInPython(Python, PlantSource):
    """A plant as plain Python."""

    own = "self."
    reward = "reward"
    templates: ClassVar[Mapping[str, str]] = {
        **Python.templates,
        "refuse": 'if not ({0}): raise ValueError("this is not an action of the plant")',
        "uniform": "pg_uniform(self)",
        "normal": "pg_normal(self)",
        "whole": "int({0})",
        "unknown": "math.nan",
        "finite_test": "math.isfinite({0})",
        "choice_test": "{0} in range({1})",
    }
    helpers: ClassVar[dict[str, str]] = {
        **Python.helpers,
        "pg_uniform": f'''def pg_uniform(plant):
    """{_ABOUT_UNIFORM}"""
    plant.random = (plant.random + 0x9E3779B97F4A7C15) % 2**64
    z = (plant.random ^ plant.random >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return ((z ^ z >> 31) >> 11) / 9007199254740992.0''',
        "pg_normal": f'''def pg_normal(plant):
    """{_ABOUT_NORMAL}"""
    length = math.sqrt(-2.0 * math.log(1.0 - pg_uniform(plant)))
    return length * math.cos({2 * np.pi!r} * pg_uniform(plant))''',
    }

    def _lines(self) -> Iterator[str]:
        noise = ", noise=False" if self.noise else ""
        usage = [f"plant = Plant()  # Plant.MAX_STEPS is {self.task.max_steps}"]
        usage += [f"observation = plant.reset(seed=1{noise})", "observation, reward, ended = plant.step(action)"]
        yield from (*self._comment(self._plant_heading(usage)), "", "import math", "import struct", "", *self.data)
        yield from (f"\n{helper}" for helper in self._used_helpers())
        yield from ("\nclass Plant:", f"    MAX_STEPS = {self.task.max_steps}", "")
        yield from (f"    def reset(self, seed=0{noise}):", f"        self.state = [0.0] * {len(self.states)}")
        yield from (f"    {line}" for line in self.resetting)
        yield from ("        return observation", "", "    def step(self, action):")
        yield from (f"    {line}" for line in self.stepping)
        yield "        return observation, reward, failed or ends != 0.0"
