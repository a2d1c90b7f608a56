"""The settings of a run as typed keyword arguments: all of `RunConfig` except the task and the provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from policygen.policies.policy import Policy
from policygen.tasks.task import PolicyKind


class Settings(TypedDict, total=False):
    """The keyword arguments of `policygen.run`; `policygen run --help` explains each. None keeps the default."""

    policy: PolicyKind | None
    iterations: int | None
    episodes: int | None
    warmup_episodes: int | None
    final_episodes: int | None
    seed: int | None
    stop_at: float | None
    patience: int | None
    repairs: int | None
    conversation: Literal["fresh", "continued"] | None
    template: str | None
    episodes_shown: bool | None
    start: str | Path | Policy | None
    refine: str | None
    shape: bool | None
    memory: bool | None
    ablate: Literal["nothing", "knowledge"] | None
    jobs: int | None
    step_timeout: float | None
    fragility: bool | None
    grid: Literal["free", "fixed"] | None
    prompt_tokens: int | None
    max_output_tokens: int | None
    temperature: float | None
    reasoning_effort: str | None
    extra_body: dict[str, Any] | None
    base_url: str | None
    timeout_seconds: float | None
    prices: str | tuple[float, float] | None
    max_calls: int | None
    max_tokens: int | None
    max_usd: float | None
    max_episodes: int | None
    max_steps: int | None
