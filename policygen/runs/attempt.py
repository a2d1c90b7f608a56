"""The attempts of a run: each is a proposal, its cost, its score, and whether it became the best."""

from __future__ import annotations

import functools
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import from_json, to_json

from policygen.episodes.race import Race
from policygen.episodes.score import Score, first_episodes
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.files import damaged
from policygen.llm import read_spec
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy, check_head, from_record
from policygen.runs.notes import SHAPING, notes_from_record, notes_to_record
from policygen.tasks.task import Task

MOST_CACHED = 256  # policies that stay parsed; a prompt reads fewer
START = "start"  # the `Requests.model` of a policy from --start
Count = Annotated[int, Field(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """A policy in compressed form, because a long run has tens of thousands of them.

    Attributes:
        content: the JSON of `Policy.to_record`, compressed with zlib.
        digest: see `text_digest`.
        log: the file that the policy was read from, if any.
    """

    task: Task = field(repr=False, compare=False)
    content: bytes = field(repr=False)
    digest: bytes
    log: Path | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_record(cls, record: Mapping[str, Any], task: Task, log: Path | None = None) -> SavedPolicy:
        """Compress a policy's record without parsing it; if it is damaged, reading `policy` raises."""
        content = zlib.compress(to_json(record, inf_nan_mode="constants"), level=1)
        text = "\n".join(map(str, record.get("plain_text") or record.get("text") or ()))
        return cls(task, content, _digest(text), log)

    @property
    def record(self) -> dict[str, Any]:
        """The saved form, as JSON values."""
        found: dict[str, Any] = from_json(zlib.decompress(self.content))
        return found

    @property
    def policy(self) -> Policy:
        """The policy.

        Raises:
            LogbookError: the record, read from a file, is damaged.
            PolicyError: the record, not read from a file, is damaged.
        """
        key = (id(self.task), self.content)
        policy = _CACHE.pop(key, None)
        if policy is None:
            try:
                policy = from_record(self.record, self.task)
            except DAMAGE as error:
                if self.log is None:
                    raise
                raise damaged(self.log, error, f"{DELETE_AND_SCORE} {self.log.parent}") from None
        _CACHE[key] = policy
        if len(_CACHE) > MOST_CACHED:
            del _CACHE[next(iter(_CACHE))]
        return policy


DELETE_AND_SCORE = "delete the damaged line and those after it, and score them again with: policygen resume"
# The exceptions that a damaged record raises when it is read.
DAMAGE = (PolicygenError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
# The last policies used, the latest at the end, by the id of their task, which they keep alive, and saved form.
_CACHE: dict[tuple[int, bytes], Policy] = {}


def _read_saved(record: Any, info: ValidationInfo[Any]) -> SavedPolicy:
    """Read a policy in the record of an attempt; the context of the validation is the task and the file."""
    check_head(record)
    return SavedPolicy.of_record(record, *info.context)


# A policy in an attempt, which pydantic reads and writes as its record.
RecordedPolicy = Annotated[SavedPolicy, PlainValidator(_read_saved), PlainSerializer(lambda saved: saved.record)]


def saved(policy: Policy | None) -> SavedPolicy | None:
    """Return the saved form of a policy; None for None."""
    return SavedPolicy.of_record(policy.to_record(task=False), policy.task) if policy is not None else None


def text_digest(policy: Policy) -> bytes:
    """Return a digest of a policy's plain text; it is the same for equal policies, however they were written."""
    return _digest(policy.to_text(plain=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes behind a score, each reduced to a few numbers.

    Attributes:
        lengths: steps of each episode.
        terminated: whether the environment ended it, and not the step limit.
        terms: sums of each reward term by name; 0 if an episode did not report it.
        returns: undiscounted returns if the score is exact; a sampled score contains them (see `Attempt.returns`).
    """

    lengths: tuple[Count, ...] = ()
    terminated: tuple[bool, ...] = ()
    terms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    returns: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], *, exact: bool = False) -> Played:
        """Summarise trajectories; `exact`: whether their score is exact."""
        terms = [dict(t.terms) for t in trajectories]
        return cls(
            tuple(t.length for t in trajectories),
            tuple(t.terminated for t in trajectories),
            {name: tuple(some.get(name, 0.0) for some in terms) for name in dict.fromkeys(itertools.chain(*terms))},
            tuple(t.episode_return for t in trajectories) if exact else (),
        )


def usual_length(attempts: Iterable[Attempt]) -> int:
    """Return the longest mean episode length of any attempt in steps, rounded up; 0 if nothing was played.

    Better policies may play longer episodes than random actions, so the mean over all attempts would be too small.
    """
    return max((-(-sum(one.played.lengths) // len(one.played)) for one in attempts if len(one.played)), default=0)


@dataclass(frozen=True, slots=True)
class TuningState:
    """The final state of a numerical search; with the tuned policy, a later search can continue from it.

    Attributes:
        deviations: standard deviation of the search distribution for each tuned constant, in the constant's own units;
            all are finite.
        correlations: the strict lower triangle of the correlation matrix, row by row; empty if it was not learned.
        floor: smallest size of a constant that the search assumed (see `search/refine/cma.py`).
        climbing: whether the returns were still rising when the budget of episodes ended.
    """

    deviations: tuple[float, ...]
    correlations: tuple[float, ...] = ()
    floor: float = 0.0
    climbing: bool = False


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of an attempt and their cost.

    Attributes:
        model: the model that was asked, as `provider:model`; empty if none was.
        calls: number of requests to the model, including retries and repairs.
        repairs: number of requests for a repair.
        usd: the cost in USD; None if the price is unknown.
        llm_seconds: time spent waiting for the model.
    """

    model: str = ""
    calls: Count = 0
    repairs: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    usd: float | None = 0.0
    llm_seconds: float = 0.0

    @property
    def llm_calls(self) -> int:
        """Number of requests to a language model; those to `builtin` do not count."""
        entry = read_spec(self.model).entry
        return self.calls if entry is None or entry.is_language_model else 0


@dataclass(frozen=True, slots=True)
class Costs:
    """The total costs of several attempts; `requests` includes those to `builtin`, `llm_calls` does not."""

    requests: int = 0
    llm_calls: int = 0
    repairs: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0
    llm_seconds: float = 0.0
    cached: int = 0  # replies from a cache, which cost nothing

    @property
    def tokens(self) -> int:
        """Number of tokens, in and out."""
        return self.tokens_in + self.tokens_out

    def plus(self, one: Requests) -> Costs:
        """Return the total with one more attempt."""
        return Costs(
            self.requests + one.calls,
            self.llm_calls + one.llm_calls,
            self.repairs + one.repairs,
            self.tokens_in + one.tokens_in,
            self.tokens_out + one.tokens_out,
            None if self.usd is None or one.usd is None else self.usd + one.usd,
            self.llm_seconds + one.llm_seconds,
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The tuning of a proposal; the defaults mean no tuning.

    Attributes:
        refinement: method, cost and result, in words.
        proposed: the policy before tuning; None if tuning did not improve it.
        proposed_score: the score of `proposed`; None if it was tuned before it was scored.
        spread: relative standard deviation of each constant at the end of the search.
        tuning: the state from which a later search can continue.
    """

    refinement: str = ""
    proposed: RecordedPolicy | None = None
    proposed_score: Score | None = None
    spread: tuple[tuple[str, float], ...] = ()
    tuning: TuningState | None = None

    @property
    def kept(self) -> bool:
        """Whether the tuned policy was better and replaced the proposal."""
        return self.proposed is not None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paired comparison of an attempt with the best before it.

    Attributes:
        gain: difference of the scores; None without a comparison.
        paired_episodes: number of episodes, played with the same seeds by both; 0 if the scores are exact.
        p: one-sided p-value of the paired test; None without a comparison.
    """

    gain: float | None = None
    paired_episodes: Count = 0
    p: float | None = None

    @classmethod
    def of(cls, race: Race | None) -> Comparison:
        """Return the comparison of a race; there is no gain if hard requirements decided the race."""
        if race is None or race.excess:
            return cls()
        return cls(race.gain.gain, race.episodes, race.gain.p)


@dataclass(frozen=True, slots=True)
class Standing:
    """The scores of a run's best policy after an attempt.

    Attributes:
        best_mean, best_episodes: the score by which it was chosen, and its number of episodes (0 if exact).
        validated_mean, validated_episodes: its score on held-out episodes, and their number; None and 0 if the score
            is exact, or no episodes were left.
    """

    best_mean: float | None = None
    best_episodes: Count = 0
    validated_mean: float | None = None
    validated_episodes: Count = 0

    @property
    def reported_best(self) -> float | None:
        """The best policy's score on held-out episodes; without these, the score by which it was chosen."""
        return self.validated_mean if self.validated_mean is not None else self.best_mean


@dataclass(frozen=True, slots=True)
class Counts:
    """The totals of a run up to the end of an attempt.

    Attributes:
        episodes, env_steps: episodes and steps played for any purpose: random actions, scores, tuning, validation.
        tuning_steps: the part of `env_steps` played by tuning.
        wall_seconds: the time since the run began.
    """

    episodes: Count = 0
    env_steps: Count = 0
    tuning_steps: Count = 0
    wall_seconds: float = 0.0


def _read_notes(record: Mapping[str, Any], info: ValidationInfo[Any]) -> Mapping[str, Any]:
    return notes_from_record(record, info.context[0])


@dataclass(frozen=True, slots=True)
class Attempt:
    """One proposal and its results; a failed one has problems instead of a policy.

    Attributes:
        number: 1 for the first; 0 is random actions, before any proposal.
        saved: the policy as it was scored; `policy` reads it, and in attempts.jsonl it has this name.
        score: score on the seeds that all attempts share; None for a failed attempt.
        played: the episodes behind the score.
        kind: "proposal"; "resignation": the reply says that it cannot improve the best policy; "tuning": after the last
            reply, the constants of an earlier attempt are tuned further; or the name of a closing (`CLOSINGS`), whose
            attempt has no policy if the closing did not replace the best one.
        accepted: whether it became the best; `verdict` says why.
        problems: the reasons why it has no policy or no score.
        requests: the requests of the attempt and their cost.
        tuned: how its numbers were tuned, and the policy before.
        seconds: time spent on this attempt, the model's share included.
        standing, counts: the state of the run after it.
        notes: the values of abilities by key, see `policygen.runs.notes`.
    """

    number: Count
    saved: Annotated[RecordedPolicy | None, Field(alias="policy")]
    score: Score | None
    played: Played = Played()
    kind: str = "proposal"
    accepted: bool = False
    verdict: str = ""
    comparison: Comparison = Comparison()
    problems: tuple[Problem, ...] = ()
    requests: Requests = Requests()
    tuned: Tuned = Tuned()
    seconds: float = 0.0
    standing: Standing = Standing()
    counts: Counts = Counts()
    notes: Annotated[Mapping[str, Any], AfterValidator(_read_notes), PlainSerializer(notes_to_record)] = field(
        default_factory=dict
    )

    @property
    def policy(self) -> Policy | None:
        """The policy as it was scored; raises as `SavedPolicy.policy` does."""
        return self.saved.policy if self.saved is not None else None

    @property
    def proposed(self) -> Policy | None:
        """The policy as it was proposed, before tuning; None if no policy was proposed."""
        return self.tuned.proposed.policy if self.tuned.proposed is not None else self.policy

    @property
    def returns(self) -> tuple[float, ...]:
        """The returns of the episodes in `played`; `score` may have more."""
        sampled = self.score.returns if self.score is not None else ()
        return self.played.returns or sampled[: len(self.played)]

    @property
    def shared_score(self) -> Score | None:
        """The score on the episodes in `played`, whose seeds all attempts share; or the exact score."""
        return first_episodes(self.score, len(self.played)) if self.score is not None else None

    @property
    def digests(self) -> tuple[bytes | None, bytes | None]:
        """Digests of the policy's text, as proposed and as scored; None without a policy.

        The first also covers the objective: the same policy with another one is another proposal.
        """
        if self.saved is None:
            return None, None
        proposed = (self.tuned.proposed or self.saved).digest
        if (shaping := SHAPING.of(self)) is not None:
            proposed = _digest(f"{proposed.hex()}\n{shaping.to_text()}")
        return proposed, self.saved.digest

    @property
    def is_asked(self) -> bool:
        """Whether it answers a prompt, or is random actions; other attempts come after the last reply."""
        return self.kind in ("proposal", "resignation")

    @property
    def failed(self) -> bool:
        """Whether a policy was requested and no reply was readable."""
        return self.number > 0 and self.saved is None and self.kind == "proposal"


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the last attempt that became the best; None before the first policy."""
    return next((attempt for attempt in reversed(attempts) if attempt.accepted), None)


def costs_of(attempts: Iterable[Attempt]) -> Costs:
    """Return the costs of the attempts together."""
    return functools.reduce(Costs.plus, (attempt.requests for attempt in attempts), Costs())


class StepsPlayed(NamedTuple):
    """The steps of the environment before the final score, by purpose; `judging` is scoring and comparing policies."""

    total: int = 0
    random: int = 0
    tuning: int = 0
    judging: int = 0


def steps_played(attempts: Sequence[Attempt]) -> StepsPlayed:
    """Count the steps of a run up to its last attempt."""
    if not attempts:
        return StepsPlayed()
    last, random = attempts[-1].counts, attempts[0].counts.env_steps
    return StepsPlayed(last.env_steps, random, last.tuning_steps, last.env_steps - random - last.tuning_steps)
