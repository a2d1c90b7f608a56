"""The cost of requests, from an offline price list; an unknown price is None, never 0."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.llm.base import LLMOptions

_LISTED = {"openai": "openai", "gemini": "google", "anthropic": "anthropic"}


def dollars(usd: float | None) -> str:
    """Format a cost in USD; None is unknown."""
    return "cost unknown" if usd is None else f"${usd:.4f}"


def price(provider_id: str, model: str, tokens_in: int | None, tokens_out: int | None) -> float | None:
    """Return USD for one request; None if the provider, the model or a token count is unknown.

    `provider_id` is the part of the spec before the colon. A model on your own machine (`ollama`, `local`) costs 0 per
    token.
    Source: the snapshot inside the installed genai-prices package.
    """
    if provider_id in ("ollama", "local"):
        return 0.0
    if provider_id not in _LISTED or tokens_in is None or tokens_out is None:
        return None
    from genai_prices import Usage, calc_price  # start-up time: the list is long

    usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    try:
        return float(calc_price(usage, model, provider_id=_LISTED[provider_id]).total_price)
    except LookupError:
        return None


def cost(
    options: LLMOptions, spec: str, models: Sequence[str], tokens_in: int | None, tokens_out: int | None
) -> float | None:
    """Return USD for one request: by the user's prices if given, else by the first of `models` in the price list.

    A hosted model at another address, `openai:gpt-5-mini@URL`, has no known price.
    """
    if options.price_in is not None and options.price_out is not None:
        if tokens_in is None or tokens_out is None:
            return None
        return (options.price_in * tokens_in + options.price_out * tokens_out) / 1e6
    provider_id = spec.partition(":")[0].strip().lower()
    for model in () if provider_id in _LISTED and "@http" in spec else models:
        usd = price(provider_id, model, tokens_in, tokens_out)
        if usd is not None:
            return usd
    return None
