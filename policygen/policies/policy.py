"""The base class of all policies: acting on one observation or many, writing as text, saving and loading."""

# Imports inside functions keep the start-up of a saved policy fast, because acting does not need them.

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import ExpressionError, PolicyError, UsageError
from policygen.outgoing import as_html
from policygen.policies.cells import Comments, commented, comments_of
from policygen.policies.features import Reader, floats, parse_lets
from policygen.policies.raw import in_environment_form, row_of, rows_of
from policygen.quantities.codegen import ColumnFunction, RowFunction, column_function, row_function
from policygen.quantities.program import Lowering, Program
from policygen.quantities.text import to_text
from policygen.quantities.tree import Lets, Node, names_in, remembered_in
from policygen.tasks.actions import shaped
from policygen.tasks.records import checked, task_from_record, task_to_record
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from pathlib import Path

Actions = npt.NDArray[Any]

FORMAT = "policygen-policy/1"
BEST = "best.json"  # the best policy of a run, in its folder
_LARGEST = 2**28  # characters of a saved policy
ROWS_AT_A_TIME = 16_384  # rows computed at a time, so that their columns fit in the processor's cache
# Every kind of policy, by name; defining a subclass adds it.
KINDS: dict[str, type[Policy]] = {}
# A phrase, name or number in a policy's text, for `size`.
_COUNTED = re.compile(r'"[^"]*"|[^\W\d]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?')
_LIMITED = re.compile(r"\btune\(([^,()]*),[^()]*\)")
_KEYWORDS = frozenset(("let", "bins", "fixed", "and", "or", "not"))


@dataclass(frozen=True, repr=False)
class Policy(ABC):
    """The base class of every policy kind.

    Attributes:
        task: the environment's interface, which gives the names in the policy.
        lets: the policy's own features, after those of the task, each defined in terms of quantities before it.
        comments: its author's comments, for `to_text`; they affect neither actions nor equality.
    """

    task: Task
    lets: Lets
    comments: Comments = field(default_factory=dict, compare=False, kw_only=True)

    kind: ClassVar[str]
    independent: ClassVar[bool] = (
        True  # whether decisions depend only on the episode, so that other processes may play it
    )

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    def __repr__(self) -> str:
        """Describe the policy in one line; `to_text` returns the whole text."""
        lines = self.to_text().count("\n") + 1
        return f"<{type(self).__name__} for {self.task.name}, {lines} line{'s' * (lines > 1)} of text>"

    def _repr_html_(self) -> str:
        return f"{as_html(repr(self))}<pre style='max-height: 40em; overflow: auto'>{as_html(self.to_text())}</pre>"

    @abstractmethod
    def decision_steps(self, lowering: Lowering) -> list[int]:
        """Add the steps of the decision; return one step for each actuator, or a single one for the whole action."""

    @cached_property
    def program(self) -> Program:
        """The policy as a program: from d observed and m remembered numbers to the decision and the next memory."""
        lowering = self.reader.lowering()
        decided = self.decision_steps(lowering)
        return lowering.program([*decided, *self.reader.next_memory_steps(lowering, decided)])

    @property
    def decision_parts(self) -> int:
        """How many results of the program are the decision; the others are the next memory."""
        return len(self.program.results) - len(self.remembers)

    @property
    def finds_whole_action(self) -> bool:
        """Whether a single step, a look-up, finds the whole action."""
        return self.program.table is not None

    @cached_property
    def step(self) -> RowFunction:
        """The function from an observation to the action, given lists of d floats and, with memory, of m floats.

        It updates the memory in place; at the first step, the memory is a row of `start`.
        """
        parts = self.decision_parts

        def finish(texts: list[str]) -> list[str]:
            action = texts[0]
            if parts > 1 or (self.task.has_numbers and not self.finds_whole_action):
                action = f"array(({', '.join(texts[:parts])},), {'float32' if self.task.has_numbers else 'int64'})"
            if not self.remembers:
                return [f"return {action}"]
            kept = ", ".join(f"x1[{i}]" for i in range(len(self.remembers)))
            return [f"action = {action}", f"{kept} = {', '.join(texts[parts:])}", "return action"]

        widths = [self.task.width, len(self.remembers)] if self.remembers else [self.task.width]
        return row_function(self.program, widths, finish)

    @cached_property
    def _of_columns(self) -> ColumnFunction:
        return column_function(self.program)

    @cached_property
    def _computes(self) -> bool:
        """Whether a decision takes more than looking up observations."""
        return any(step.op not in ("input", "number", "look_up") for step in self.program.steps)

    def _computed(self, columns: npt.NDArray[Any]) -> tuple[Actions, Sequence[Any]]:
        """Return n actions and the columns of the next memory, given columns of observed and remembered numbers."""
        parts = self.decision_parts
        if self._computes and (columns.dtype != np.float64 or not columns.flags.c_contiguous):
            columns = columns.astype(np.float64, order="C")
        with np.errstate(all="ignore"):
            results = self._of_columns(columns)
        return self.as_actions(results[:parts], columns.shape[1]), results[parts:]

    def act_on_quantities(self, quantities: Sequence[npt.NDArray[Any]]) -> Actions:
        """Return n actions, given a column for each of `reader.names` as `reader.columns` returns them."""
        lowering = Lowering((), self.reader.names)
        function = column_function(lowering.program(self.decision_steps(lowering)))
        with np.errstate(all="ignore"):
            return self.as_actions(function([np.asarray(one, np.float64) for one in quantities]), len(quantities[0]))

    def as_actions(self, decided: Sequence[Any], n: int) -> Actions:
        """Convert the values of the `decision_steps` to n actions."""
        if self.finds_whole_action:
            return np.asarray(decided[0])
        if self.task.action_space == "discrete":
            actions: Actions = np.empty(n, np.int64)
            actions[:] = decided[0]
            return actions
        actions = np.empty((n, len(decided)), np.float32 if self.task.has_numbers else np.int64)
        for k, values in enumerate(decided):
            actions[:, k] = values
        return actions

    def act_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> Any:
        """Return the action for a flattened observation of length d: an int for Discrete, else an array of shape (m,).

        Raises:
            PolicyError: it is not a row of d numbers; `controller` takes an environment's own observations.
        """
        try:
            return self.step(floats(observation))
        except (TypeError, ValueError):  # not d numbers, or the memory is missing
            raise self.reader.refusal(observation) from None

    def controller(self) -> Controller:
        """Return a controller, which takes the environment's observations (Dict, Tuple, array, index) one by one."""
        return Controller(self)

    def predict(
        self,
        observation: Any,
        state: npt.NDArray[np.float64] | None = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, npt.NDArray[np.float64] | None]:
        """Return actions as models of Stable-Baselines3 do.

        Args:
            observation: one observation or a batch of n: an array, or a mapping with an array for each key. An array
                with one more dimension than an observation is a batch; so is any input with an `episode_start` array.
            state: the memory of a policy that `remembers`, as returned by the last call; None at first.
            episode_start: whether each row begins an episode, and so has no memory yet; shape (n,).
            deterministic: ignored; policies are always deterministic.

        Returns:
            The actions, shape (n, ...), or a single one; and the next state, which is None without memory.

        Raises:
            PolicyError: the observations do not fit the policy's environment.
        """
        task, count = self.task, len(self.remembers)
        batched = episode_start is not None and np.ndim(episode_start) > 0
        rows, single = rows_of(task, observation, batched=batched)
        if not count:
            actions: Any = [self.act_one(rows[0])] if single else self.act(rows)
            return in_environment_form(task, actions, single=single), None
        memory = self.start(len(rows)) if state is None else np.array(state, dtype=np.float64)
        if memory.shape != (len(rows), count):
            raise PolicyError(
                f"`state` has shape {memory.shape} and not ({len(rows)}, {count}): pass the state that the last call "
                "of predict returned, and None at first"
            )
        if episode_start is not None:
            memory[np.broadcast_to(np.asarray(episode_start, dtype=bool), len(rows))] = self.start(1)[0]
        return in_environment_form(task, self.act(rows, memory), single=single), memory

    def to_text(self, *, whole: bool = False, plain: bool = False) -> str:
        """Return the policy in the policy language; `parse` reads it back for the same task.

        Args:
            whole: include those features of the task that the policy needs, and the grid of a table, so that the text
                is complete without the task file.
            plain: leave out the author's comments, so that equal policies have equal texts. Ignored if `whole`.
        """
        text = self._to_text(whole=True) if whole else self._plain
        if not self.comments or (plain and not whole):
            return text
        return "\n".join(commented(text.splitlines(), self.comments, self.task.actuators))

    @cached_property
    def _plain(self) -> str:
        return self._to_text(whole=False)

    @property
    def size(self) -> int:
        """How many numbers and names (of quantities, functions and choices) the plain text has.

        Every occurrence counts. Keywords, `fixed` and the limits in `tune` do not count, nor do definitions of the
        task's features and bins, which are not in the text.
        """
        counted = _COUNTED.findall(_LIMITED.sub(r"\1", self._plain))
        return sum(found not in _KEYWORDS for found in counted)

    @abstractmethod
    def _to_text(self, *, whole: bool) -> str:
        """Return the plain text of the policy; for `whole` see `to_text`."""

    @abstractmethod
    def _to_record(self) -> dict[str, Any]:
        """Return the contents of a saved file that are specific to this kind of policy."""

    @classmethod
    @abstractmethod
    def _from_record(cls, record: Any, task: Task, lets: Lets, names: Sequence[str]) -> Policy:
        """Read a record that `_to_record` wrote; expressions may read the quantities `names`."""

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the values that the policy remembers from one step to the next, if any."""
        return self.reader.remembered

    def start(self, episodes: int) -> npt.NDArray[np.float64]:
        """Return the memory for `act` at the start of episodes: shape (episodes, m), all NaN."""
        return np.full((episodes, len(self.remembers)), np.nan)

    def act(self, observations: npt.ArrayLike, memory: npt.NDArray[np.float64] | None = None) -> Actions:
        """Return the actions for a batch of observations.

        Args:
            observations: flattened observations, shape (n, d), or (d,) for a single one.
            memory: for a policy that `remembers`, the array from `start(n)` or rows of it; updated in place.

        Returns:
            For Discrete actions int64 of shape (n,), for MultiDiscrete int64 (n, m), for Box float32 (n, m) inside the
            action space; without the leading n for a single observation.

        Raises:
            PolicyError: the observations do not have d numbers each, or the memory is missing or has another shape.
        """
        rows, d, m = np.asarray(observations), self.task.width, len(self.remembers)
        fits = rows.ndim == 2 and rows.shape[1] == d
        if not m:
            if rows.ndim == 1 and len(rows) == d:
                return np.asarray(self.act_one(rows))
            if not fits:
                raise PolicyError(f"expected observations of shape (n, {d}), got {rows.shape}")
            if len(rows) <= ROWS_AT_A_TIME or not self._computes:
                return self._computed(rows.T)[0]
            starts = range(0, len(rows), ROWS_AT_A_TIME)
            return np.concatenate([self._computed(rows[start : start + ROWS_AT_A_TIME].T)[0] for start in starts])
        if memory is None:
            raise self.reader.refusal(rows)
        if not fits or memory.shape != (len(rows), m):
            shapes = f"got {rows.shape} and {memory.shape}"
            raise PolicyError(f"expected observations of shape (n, {d}) and a memory of shape (n, {m}), {shapes}")
        columns = np.empty((d + m, len(rows)))
        columns[:d], columns[d:] = rows.T, memory.T
        actions, following = self._computed(columns)
        for column, values in zip(memory.T, following, strict=True):
            column[:] = values
        return actions

    def begin(self, episodes: int, /) -> Policy | MemoryDecider:
        """Return a decider for episodes that are played side by side: without memory, the policy itself."""
        return MemoryDecider(self, episodes) if self.remembers else self

    def decide(
        self, observations: Sequence[npt.NDArray[Any]] | npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], /
    ) -> Sequence[Any] | npt.NDArray[Any]:
        """Return the actions in the episodes `indices`; see `policygen.episodes.trajectory.Decider`."""
        if isinstance(observations, np.ndarray):
            return self.act(observations)
        # Separate rows are few. Up to a few dozen rows, single decisions cost less than a batch, and their results do
        # not depend on the number of rows.
        act = self.step
        return [act(observation.tolist()) for observation in observations]

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled functions cached on the object cannot be pickled; the copy compiles them again.
        values = (getattr(self, field.name) for field in fields(self) if not field.kw_only)
        return partial(type(self), comments=self.comments), tuple(values)

    @cached_property
    def reader(self) -> Reader:
        """The reader that computes the quantities the policy needs."""
        previous = (remembered_in(node) for _, node in self.formulas())
        return Reader(self.task, self.lets, self.names_read(), frozenset().union(*previous))

    def names_read(self) -> frozenset[str]:
        """Return the names of the quantities that the decision reads directly, rather than through features."""
        return frozenset().union(*(names_in(node) for _, node in self.formulas()))

    def formulas(self) -> list[tuple[str, Node]]:
        """Return the policy's expressions other than features, as (name, expression); a table has none."""
        return []

    def save(self, path: str | Path) -> None:
        """Write the policy, the interface of its task, and its text to a JSON file, atomically.

        Raises:
            LogbookError: the file cannot be written.
            UsageError: the file name is invalid (see `policygen.files.check_name`).
        """
        from pathlib import Path

        from policygen.files import check_name, write_atomically

        write_atomically(Path(check_name(path)), json.dumps(self.to_record(), indent=1))

    def to_record(self, *, task: bool = True) -> dict[str, Any]:
        """Return the contents of a saved file as JSON values.

        Args:
            task: whether to include the interface of the task.
        """
        return {
            "format": FORMAT,
            "kind": self.kind,
            **({"task": task_to_record(self.task)} if task else {}),
            "lets": {name: to_text(node) for name, node in self.lets},
            **self._to_record(),
            "text": self.to_text().splitlines(),
            **({"plain_text": self.to_text(plain=True).splitlines()} if self.comments else {}),
        }

    @staticmethod
    def load(path: str | Path) -> Policy:
        """Read a policy that `save` wrote.

        Args:
            path: the file; or the folder of a run, for its best policy.

        Raises:
            PolicyError: the file does not exist or holds no policy.
        """
        if os.path.isdir(path):
            path = os.path.join(path, BEST)
        from pathlib import Path  # start-up time: acting needs no files

        from policygen.files import json_of, read

        record = read(Path(path), json_of, named=PolicyError, most=_LARGEST)
        try:
            return from_record(record)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from None


class MemoryDecider:
    """A decider for a policy with memory, for episodes side by side, each with its own memory.

    It decides row by row, because numpy's sine of a batch may differ in the last bit from that of a single number. So
    an episode does not depend on how many are played side by side.
    """

    def __init__(self, policy: Policy, episodes: int) -> None:
        self._policy = policy
        self._memory: list[list[float]] = policy.start(episodes).tolist()

    def decide(self, observations: Iterable[npt.NDArray[Any]], indices: npt.NDArray[np.integer[Any]], /) -> list[Any]:
        """Return the actions in the episodes `indices`; see `policygen.episodes.trajectory.Decider`."""
        step, memory = self._policy.step, self._memory
        return [step(row.tolist(), memory[i]) for row, i in zip(observations, indices.tolist(), strict=True)]


class Controller:
    """A policy as a function from the environment's observations, as `env.step` returns them, to its actions.

        controller = policy.controller()
        observation, _ = env.reset()
        observation, *_ = env.step(controller(observation))

    It needs neither the environment nor Gymnasium, because the policy's task describes the observation space. It keeps
    the memory of a policy from call to call; call `reset` when an episode begins. Observations are rounded to single
    precision, from which the policy decided when it was scored; `act` and exported code do not round.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._step = policy.step
        self.reset()

    def reset(self) -> None:
        """Clear the memory for a new episode."""
        self.memory: list[float] = self.policy.start(1)[0].tolist()

    def __call__(self, observation: Any) -> Any:
        """Return the action for one observation.

        Args:
            observation: a number, an array, or a mapping or sequence of these, as the environment returns it.

        Returns:
            The action for `env.step`, with the type, shape and dtype that `action_space.sample()` returns:
            np.int64 for Discrete, an array for MultiDiscrete and Box, a tuple or dictionary of these for others.

        Raises:
            PolicyError: the observation does not have the structure of the task's observations.
        """
        row, layout = row_of(self.policy.task, observation), self.policy.task.action_layout
        action = self._step(row.tolist(), self.memory) if self.memory else self.policy.act_one(row)
        if layout is not None:
            return shaped(layout, action)
        return np.int64(action) if self.policy.task.action_space == "discrete" else action


def let_lines(lets: Lets) -> list[str]:
    """Return the definitions of features, one line each."""
    return [f"let {name} = {to_text(node)}" for name, node in lets]


@dataclass(frozen=True, slots=True)
class _PolicyRecord:
    kind: str
    lets: dict[str, str]
    task: dict[str, Any] = field(default_factory=dict)  # may be missing where the task is known
    text: Any = None


def check_head(record: Any) -> None:
    """Check that a record has the format and a kind of a saved policy, without reading the policy.

    Raises:
        PolicyError: the format or the kind is missing or unknown.
    """
    stated = record.get("format") if isinstance(record, dict) else None
    if stated != FORMAT:
        raise PolicyError(f"not a saved policy of format {FORMAT}" + (f" (it says {stated})" if stated else ""))
    if record.get("kind") not in tuple(KINDS):
        raise PolicyError(f"damaged policy: there is no kind `{record.get('kind')}`; known: {', '.join(KINDS)}")


def from_record(record: Any, task: Task | None = None) -> Policy:
    """Read a policy from a record that `Policy.to_record` returned.

    Args:
        task: the policy's task; None: the one in the record.

    Raises:
        PolicyError: the record is not a policy, or is damaged.
    """
    check_head(record)
    try:
        read = checked(_PolicyRecord, record, "damaged policy")
        task = task or task_from_record(read.task)
        _ = task.parsed_features
        lets, names = parse_lets(read.lets.items(), task, "policy")
        policy = KINDS[read.kind]._from_record(record, task, lets, names)
        lines = "\n".join(map(str, read.text)).splitlines() if isinstance(read.text, list) else ()
        found = comments_of(lines, task.actuators)
        return replace(policy, comments={key: comment for key, comment in found.items() if any(comment)})
    except (ExpressionError, UsageError) as error:
        raise PolicyError(f"damaged policy: {error}") from None
