"""A provider that holds several models, which take turns in one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from policygen.errors import ProviderError, UsageError
from policygen.llm.base import Diagnosis, Keyed, Ordered, Provider
from policygen.llm.messages import Prompt, Reply


class Several:
    """Providers that take turns; the proposer chooses one of `providers` for each request.

    Raises:
        UsageError: one of them is not a language model, replays another run, or is named twice.
    """

    is_language_model = True

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = tuple(providers)
        self.spec = " + ".join(provider.spec for provider in self.providers)
        self.model = " + ".join(provider.model for provider in self.providers)
        counts = Counter(provider.spec for provider in self.providers)
        twice = [spec for spec, count in counts.items() if count > 1]
        if twice:
            raise UsageError(f"--llm {twice[0]} is named twice; a model takes turns with others")
        for provider in self.providers:
            if not provider.is_language_model or isinstance(provider, Ordered):
                raise UsageError(f"--llm {provider.spec} takes no turns with others: name language models")

    @property
    def key_goes_to(self) -> str:
        """The keys and their hosts."""
        said = (provider.key_goes_to for provider in self.providers if isinstance(provider, Keyed))
        return "; ".join(filter(None, said))

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Raise ProviderError: requests go to a single provider."""
        raise ProviderError(f"{self.spec} take turns; ask one of them")

    def diagnose(self) -> Diagnosis:
        """Diagnose each provider."""
        found = [(provider.spec, provider.diagnose()) for provider in self.providers]
        lines = tuple(f"{spec}: {line}" for spec, diagnosis in found for line in diagnosis.lines)
        return Diagnosis(all(diagnosis.ok for _, diagnosis in found), lines)
