"""The state of a run: its attempts, the best of them, the replay buffer."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from policygen.episodes.buffer import Episode, ReplayBuffer
from policygen.episodes.exact import FiniteMDP
from policygen.episodes.score import Score
from policygen.episodes.trajectory import Trajectory
from policygen.errors import BudgetExhausted
from policygen.llm import read_spec
from policygen.llm.messages import Message
from policygen.policies.lines import Problem
from policygen.policies.normalise import Definition, definitions, normalisable
from policygen.policies.policy import Policy, from_record
from policygen.policies.shaping import Shaping
from policygen.runs.config import RunConfig
from policygen.runs.example import Example
from policygen.runs.packed import Packed, Unpacking
from policygen.runs.tuning import Tuning, tuning_of
from policygen.tasks.task import PolicyKind, Task

RECENT = 40  # attempts that prompts tell of, the last ones
Ending = Literal["terminated", "cut"]
AttemptKind = Literal["proposal", "resignation", "tuning"]


@dataclass(frozen=True, slots=True)
class Played:
    """One episode in short: its return, its steps, whether the environment or the time limit ended it, its terms."""

    episode_return: float
    length: int
    ending: Ending
    terms: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, trajectory: Trajectory) -> Played:
        """The episode in short."""
        ending: Ending = "terminated" if trajectory.terminated else "cut"
        return cls(trajectory.episode_return, trajectory.length, ending, trajectory.terms)


@dataclass(frozen=True, slots=True)
class TuningState:
    """The state in which a numerical search stopped; a later search can continue from it and from the tuned policy.

    Attributes:
        deviations: standard deviation of the search distribution for each constant that moves, in the constant's own
            units; NaN and infinity do not occur.
        correlations: the strict lower triangle of its correlations, row by row; empty where only the scales are kept.
        floor: least size of a constant's first changes (see `refine.methods.refine`).
        climbing: whether the returns were still rising when the episodes ended.
    """

    deviations: tuple[float, ...]
    correlations: tuple[float, ...] = ()
    floor: float = 0.0
    climbing: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One proposal and what became of it; a failed one has problems instead of a policy.

    Attributes:
        number: 1 for the first; 0 is random actions, before any proposal.
        kind: a "resignation" is a reply that says that it cannot improve on the best policy; a "tuning" goes on with
            the numbers of an earlier attempt after the last reply, and asks nobody.
        score: on the seeds that all attempts share. None for a failed attempt.
        played: the episodes behind the score, in short.
        accepted: whether it became the best so far, by a paired comparison with the one before (`verdict` says how).
        gain, paired_episodes, p: what that comparison showed: the mean difference from the best before it, on so many
            episodes of the same seeds (0 when exact), and the one-sided p-value. None, 0 and None without a comparison.
        idea: the first sentence that the model wrote beside the policy, cut to a line.
        coverage: share of the cells or outputs that the reply itself decided; the rest is the incumbent's.
        proposed, proposed_score: the policy as proposed, where refinement changed it; `refinement` says how, `spread`
            how far each constant could still move (see `refine.Refined`), `tuning` from where it could go on.
        shaping: what it was to be tuned on in the place of the return; None for most.
        undefined: features and outputs that were no finite number, and in which share of the steps.
        unstable: in how many of the episodes played for its score the simulation diverged, as far as that is told.
        model: who proposed it, as `provider:model`; empty where nobody was asked.
        calls: requests to the model, retries and repairs included; `repairs`: how many of them asked for a repair.
        usd: None where the price is unknown. `price`: the same, with answers from a cache at what they cost when they
            were asked for, so that whose turn is next does not depend on it.
        llm_seconds: time spent waiting for the model.
        episodes, env_steps: totals of the run after this attempt, see `Summary`; the last attempt has those of the run.
        stopped: the budget that this attempt, unrepaired or unscored, used up; the run ends with its round.
        best_mean, best_episodes: the score by which the best after this attempt was chosen, and the episodes that it
            rests on (0 when exact).
        validated_mean, validated_episodes: the same policy on episodes that did not choose it; None and 0 where the
            score is exact, or no episodes were left for it.
        seconds: time spent on this attempt, the model's share included; `wall_seconds`: the run's time up to its end.
    """

    number: int
    policy: Policy | None
    score: Score | None
    played: tuple[Played, ...] = ()
    accepted: bool = False
    verdict: str = ""
    gain: float | None = None
    paired_episodes: int = 0
    p: float | None = None
    idea: str = ""
    problems: tuple[Problem, ...] = ()
    coverage: float = 0.0
    proposed: Policy | None = None
    proposed_score: Score | None = None
    refinement: str = ""
    spread: tuple[tuple[str, float], ...] = ()
    tuning: TuningState | None = None
    undefined: tuple[tuple[str, float], ...] = ()
    unstable: int = 0
    model: str = ""
    calls: int = 0
    repairs: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    price: float | None = 0.0
    llm_seconds: float = 0.0
    episodes: int = 0
    env_steps: int = 0
    best_mean: float | None = None
    best_episodes: int = 0
    validated_mean: float | None = None
    validated_episodes: int = 0
    stopped: str = ""
    seconds: float = 0.0
    wall_seconds: float = 0.0
    kind: AttemptKind = "proposal"
    shaping: Shaping | None = None

    @property
    def llm_calls(self) -> int:
        """The requests that went to a language model: none of those to `builtin`."""
        entry = read_spec(self.model).entry
        return self.calls if entry is None or entry.is_language_model else 0

    @property
    def has_policy(self) -> bool:
        """Whether there is a policy; it is not read for that."""
        return _packed_in(self) is not None or self.policy is not None

    @property
    def digests(self) -> tuple[bytes | None, bytes | None]:
        """Digests of the policy's text, as proposed and as it is now; None without a policy.

        The first also covers the objective that the policy is to be tuned on, if there is one.
        """
        kept = _packed_in(self)
        if kept is not None:
            proposed, tuned = kept.digests.get("proposed") or kept.digests.get("policy"), kept.digests.get("policy")
        else:
            first = self.proposed or self.policy
            proposed = text_digest(first) if first is not None else None
            tuned = text_digest(self.policy) if self.policy is not None else None
        if proposed is not None and self.shaping is not None:
            proposed = _digest(f"{proposed.hex()}\n{self.shaping.to_text()}")
        return proposed, tuned

    def pack(self, task: Task) -> None:
        """Compress what is long in it; everybody reads the same of it as before."""
        if _packed_in(self) is None and self.policy is not None:
            self.pack_as(
                {name: policy_record(getattr(self, name)) for name in ("policy", "proposed")},
                played_record(self.played),
                functools.partial(read_packed, task),
            )

    def pack_as(self, policies: Mapping[str, Any], played: Sequence[Any], read: Callable[[str, Any], Any]) -> None:
        """Compress its policies and episodes from their saved forms; `read(name, value)` reads one of them again."""
        fields: dict[str, Any] = {"played": played}
        digests: dict[str, bytes] = {}
        for name, record in policies.items():
            if record is not None:
                plain = record.get("plain_text")
                fields[name] = {key: value for key, value in record.items() if key != "text" or plain is not None}
                digests[name] = _digest("\n".join(map(str, plain or record.get("text") or ())))
        packed = Packed(fields, read, digests)
        for name in fields:
            object.__setattr__(self, name, packed)  # frozen is what it says, not where it has it

    @property
    def failed(self) -> bool:
        """Whether a policy was asked for and none came."""
        return self.number > 0 and not self.has_policy and self.kind != "resignation"

    @property
    def reported_best(self) -> float | None:
        """The best score after this attempt without the luck of having been chosen, as far as that is known."""
        return self.validated_mean if self.validated_mean is not None else self.best_mean


# Of the older attempts, all but a few numbers and sentences are asked for seldom, and by nobody in most runs.
_UNPACKING = {name: Unpacking(Attempt, name) for name in ("policy", "proposed", "played")}
for _name, _unpacking in _UNPACKING.items():
    setattr(Attempt, _name, _unpacking)


def _packed_in(attempt: Attempt) -> Packed | None:
    return _UNPACKING["policy"].packed(attempt)


def policy_record(policy: Policy | None) -> dict[str, Any] | None:
    """A policy's saved form for a place where its task is known."""
    return policy.to_record(task=False) if policy is not None else None


def played_record(played: Sequence[Played]) -> list[Any]:
    """Episodes in short as JSON values."""
    return [[p.episode_return, p.length, p.ending, dict(p.terms)] for p in played]


def read_packed(task: Task, name: str, value: Any) -> Any:
    """A field of an attempt from its saved form.

    Raises:
        PolicyError: it is damaged.
    """
    if name == "played":
        return tuple(
            Played(result, length, ending, tuple(terms[0].items()) if terms else ())
            for result, length, ending, *terms in value
        )
    return from_record(value, task)


def text_digest(policy: Policy) -> bytes:
    """Return a digest of a policy's plain text, which does not depend on how the policy was written."""
    return _digest(policy.to_text(plain=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Assessment:
    """An attempt before it is kept: with the episodes it was scored on, and the best scores after it."""

    attempt: Attempt
    trajectories: Sequence[Trajectory] = ()
    best_score: Score | None = None
    validation: Score | None = None


@dataclass
class Search:
    """The state of the loop; the only record that changes during a run.

    `best_score` is the score that the best policy was chosen by. It may rest on more episodes than the best attempt's
    own score, because close comparisons are prolonged. `validation` is the best policy's score on
    episodes that did not choose it; None where the score is exact, or no episodes were left.
    `example` is a policy of another task to show. `turns` are the requests and last replies of a continued
    conversation. `stopped` says why the loop ended. `demonstrations` are episodes of others to show among the best.
    """

    task: Task
    buffer: ReplayBuffer
    mdp: FiniteMDP | None = None
    example: Example | None = None
    attempts: list[Attempt] = field(default_factory=list)
    best: Attempt | None = None
    best_score: Score | None = None
    validation: Score | None = None
    turns: list[Message] = field(default_factory=list)
    stopped: str = ""
    demonstrations: tuple[Episode, ...] = ()

    @property
    def unbiased_score(self) -> Score | None:
        """The best policy's score, if it is exact or on episodes that did not choose the policy."""
        exact = self.best_score is not None and self.best_score.exact
        return self.best_score if exact else self.validation

    @property
    def reported_score(self) -> Score | None:
        """The score shown as the best: the unbiased one, or `best_score` where there is none."""
        return self.unbiased_score or self.best_score

    def keep(self, assessment: Assessment) -> Attempt:
        """Remember an assessed attempt and its episodes; an accepted one is the best from now on."""
        score = self.best_score = assessment.best_score
        validation = self.validation = assessment.validation
        attempt = replace(
            assessment.attempt,
            best_mean=score.mean if score is not None else None,
            best_episodes=score.episodes if score is not None else 0,
            validated_mean=validation.mean if validation is not None else None,
            validated_episodes=validation.episodes if validation is not None else 0,
        )
        self.buffer.add(attempt.number, assessment.trajectories)
        self.attempts.append(attempt)
        if attempt.accepted:
            self.best = attempt
        if len(self.attempts) > RECENT and (old := self.attempts[-RECENT - 1]) is not self.best:
            old.pack(self.task)
        return attempt

    def settle(self, last: Attempt) -> None:
        """Put the last attempt as the search ends, with what confirmed the best, in the place of the recorded one."""
        recorded, validation = self.attempts[-1], self.validation
        if last is recorded:
            return
        if validation is not None:
            last = replace(last, validated_mean=validation.mean, validated_episodes=validation.episodes)
        self.best = last if self.best is recorded else self.best
        self.attempts[-1] = last

    def next_round(self, config: RunConfig) -> list[Context]:
        """Return the contexts of the next round's prompts, one for each candidate; none after the last round.

        Raises:
            BudgetExhausted: an attempt used up a budget. The attempts know, so that a resumed run ends there too.
        """
        if stopped := next((attempt.stopped for attempt in self.attempts if attempt.stopped), ""):
            raise BudgetExhausted(stopped)
        rounds = sum(attempt.kind != "tuning" for attempt in self.attempts[1:]) // config.candidates
        if rounds >= config.iterations:
            return []
        first = self.context(rounds * config.candidates + 1, config)
        return [replace(first, number=first.number + k) for k in range(config.candidates)]

    def remembered(self, config: RunConfig) -> Sequence[Message]:
        """The earlier turns that a prompt carries: none, unless the conversation is continued."""
        return self.turns if config.conversation == "continued" else ()

    def context(self, number: int, config: RunConfig) -> Context:
        """A snapshot for the prompt of attempt `number`."""
        observations = [episode.trajectory.observations for episode in self.buffer] if config.normalise else []
        played = self.attempts[-1].episodes if self.attempts else 0
        return Context(
            self.task,
            config.policy,
            number,
            config.seed,
            self.best,
            self.reported_score,
            tuple(self.attempts),
            self.buffer,
            tuning_of(number, self.task, config.policy, config, played, exact=self.mdp is not None),
            definitions(self.task, observations, normalisable(self.task)) if config.normalise else (),
            self.example,
            config.memory,
            demonstrations=self.demonstrations,
        )


@dataclass(frozen=True, slots=True)
class Context:
    """The input that a prompt is rendered from, and that the `builtin` provider searches with.

    `best_score` is the one to be shown: exact, or on episodes that did not choose the best policy. The buffer is the
    run's own: read it at once, do not keep it. `tuning` says what the numerical search that tunes the proposal may do.
    `definitions` say what `n_NAME` stands for, over all that the buffer holds; empty unless the run normalises. They
    depend on nothing else, so that a resumed run reads recorded replies as they were read. `memory` asks `builtin` for
    policies that remember. `comments` are what the user wants the model to heed.
    """

    task: Task
    kind: PolicyKind
    number: int
    seed: int
    best: Attempt | None
    best_score: Score | None
    attempts: tuple[Attempt, ...]
    buffer: ReplayBuffer
    tuning: Tuning | None = None
    definitions: tuple[Definition, ...] = ()
    example: Example | None = None
    memory: bool = False
    comments: tuple[str, ...] = ()
    demonstrations: tuple[Episode, ...] = ()

    @property
    def incumbent(self) -> Policy | None:
        """The best policy so far."""
        return self.best.policy if self.best is not None else None
