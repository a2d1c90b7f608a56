"""The choice of a run's proposer: the one place that asks whether a provider is a language model."""

from __future__ import annotations

from policygen.llm import Provider, Several
from policygen.proposers.builtin import PlainSearch
from policygen.proposers.proposer import LanguageModel, Proposer
from policygen.proposers.team import Team
from policygen.runs.config import RunConfig


def make_proposer(provider: Provider, config: RunConfig) -> Proposer:
    """The proposer for a run with these settings."""
    if isinstance(provider, Several):
        return Team(provider, config)
    return LanguageModel(provider, config) if provider.is_language_model else PlainSearch(provider, config)
