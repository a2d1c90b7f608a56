"""Who proposes in a run: the one place that asks whether a provider is a language model."""

from __future__ import annotations

from policygen.llm import Provider
from policygen.roles.builtin import PlainSearch
from policygen.roles.proposer import LanguageModel, Proposer
from policygen.runs.config import RunConfig


def appoint(provider: Provider, config: RunConfig) -> Proposer:
    """The proposer for a run with these settings."""
    return LanguageModel(provider, config) if provider.is_language_model else PlainSearch(provider, config)
