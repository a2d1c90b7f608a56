"""The cost of requests, from an offline price list; an unknown price is None, never 0."""

from __future__ import annotations

from policygen.llm.base import LLMOptions

_LISTED = {"openai": "openai", "gemini": "google", "anthropic": "anthropic"}


def dollars(usd: float | None) -> str:
    """Format a cost in USD; None is unknown."""
    return "cost unknown" if usd is None else f"${usd:.4f}"


def cost(options: LLMOptions, spec: str, model: str, tokens_in: int, tokens_out: int) -> float | None:
    """Return the cost in USD of one request, by the user's prices if given, else by the price list; None if unknown.

    A model on your own machine (`ollama`, `local`) costs 0. A hosted model at another address, as in
    `openai:gpt-5-mini@URL`, has no known price. Source: the price list in the installed package genai-prices.
    """
    if options.prices is not None:
        return (options.prices[0] * tokens_in + options.prices[1] * tokens_out) / 1e6
    provider = spec.partition(":")[0].strip().lower()
    if provider in ("ollama", "local"):
        return 0.0
    if provider not in _LISTED or "@http" in spec:
        return None
    from genai_prices import Usage, calc_price  # start-up time: the list is long

    try:
        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return float(calc_price(usage, model, provider_id=_LISTED[provider]).total_price)
    except LookupError:
        return None
