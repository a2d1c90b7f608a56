"""The model providers, and `connect`, which makes one from a spec such as `openai:gpt-5-mini`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dotenv import dotenv_values

from policygen.errors import UsageError
from policygen.llm.base import ListedProvider, check_url
from policygen.llm.base import LLMOptions as LLMOptions  # re-exported, like the next
from policygen.llm.base import Provider as Provider
from policygen.outgoing import KEY_VARIABLES, redacted
from policygen.registry import resolved


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A provider's entry in `PROVIDERS`. Its class is imported on first use.

    Attributes:
        help: one line for the list of providers.
        source: the class, as `MODULE:NAME`.
        argument: a word for the part of the spec after the colon, in brackets if optional; empty if there is none.
        is_language_model: whether a language model writes the replies (for a replay: whether one wrote them).
        reads_prompts: whether replies depend on the prompt.
        server: `own` if the provider has a fixed address, `given` if the user states it, empty without a server.
    """

    help: str
    source: str
    argument: str = "MODEL"
    is_language_model: bool = True
    reads_prompts: bool = True
    server: Literal["own", "given", ""] = ""

    def load(self) -> Any:
        """Import the provider's class and its SDK; raise UsageError if it belongs to a missing extension."""
        try:
            return resolved(self.source)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("policygen.extensions"):
                raise
            raise UsageError(f"this copy of policygen has no {error.name}; install policygen again") from None


PROVIDERS: dict[str, ProviderEntry] = {
    "builtin": ProviderEntry(
        "plain search behind the same interface; needs no key and is not a language model",
        "policygen.proposers.builtin:Builtin",
        argument="",
        is_language_model=False,
        reads_prompts=False,
    ),
    "random": ProviderEntry(
        "policies drawn at random, independently of each other: the lowest baseline",
        "policygen.proposers.builtin:Random",
        argument="",
        is_language_model=False,
        reads_prompts=False,
    ),
    "openai": ProviderEntry("OpenAI (key in OPENAI_API_KEY)", "policygen.llm.openai:OpenAI", server="own"),
    "gemini": ProviderEntry(
        "Google Gemini (key in GEMINI_API_KEY or GOOGLE_API_KEY)", "policygen.llm.gemini:Gemini", server="own"
    ),
    "anthropic": ProviderEntry(
        "Anthropic Claude (key in ANTHROPIC_API_KEY)", "policygen.llm.anthropic:Anthropic", server="own"
    ),
    "ollama": ProviderEntry(
        "a model that Ollama serves on this machine or on OLLAMA_HOST", "policygen.llm.openai:Ollama", server="given"
    ),
    "compatible": ProviderEntry(
        "any server that speaks OpenAI's chat protocol, as compatible:MODEL@URL "
        "(vLLM, llama.cpp, LM Studio, OpenRouter, ...; key, if any, in OPENAI_COMPATIBLE_API_KEY)",
        "policygen.llm.openai:Compatible",
        server="given",
    ),
    "local": ProviderEntry(
        "a model that runs in this process: a folder with safetensors and a chat template, or a name in the Hugging "
        "Face hub (pip install 'policygen[local]')",
        "policygen.extensions.local:LocalModel",
        argument="DIR",
    ),
    "manual": ProviderEntry(
        "you and a chat window: paste replies into the terminal, or save them as DIR/reply-001.md, ...",
        "policygen.llm.manual:Manual",
        argument="[DIR]",
    ),
    "replay": ProviderEntry(
        "the recorded replies of an earlier run", "policygen.llm.store:Replay", argument="RUN", reads_prompts=False
    ),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of a spec such as `compatible:qwen3@http://localhost:8000/v1`; `entry` is None for an unknown name."""

    name: str
    argument: str
    entry: ProviderEntry | None
    address: str = ""


def read_spec(spec: str) -> Spec:
    """Split a spec into its parts, and look up the provider."""
    name, _, argument = spec.strip().partition(":")
    name, address = name.strip().lower(), ""
    entry = PROVIDERS.get(name)
    if entry is not None and entry.server and (parts := re.split(r"@(?=https?://)", argument, maxsplit=1))[1:]:
        argument, address = parts
    return Spec(name, argument.strip(), entry, address)


def check_address(specs: Sequence[str], base_url: str | None) -> None:
    """Raise UsageError if `base_url` would redirect a model whose provider has a fixed address."""
    for spec in specs if base_url is not None else ():
        read = read_spec(spec)
        if read.entry is not None and read.entry.server == "own" and read.argument and not read.address:
            raise UsageError(
                f"--base-url is for compatible: and ollama: models, not for {spec}: leave it out, or write the "
                f"address into the spec, as in {spec}@{base_url}"
            )


def reads_prompts(spec: str) -> bool:
    """Whether a provider's replies depend on the prompt; assumed of a provider that the user's program defines."""
    entry = read_spec(spec).entry
    return entry is None or entry.reads_prompts


def connect(spec: str, options: LLMOptions) -> ListedProvider:
    """Return the provider for `spec`, such as `openai:gpt-5-mini`, `ollama:qwen3`, `manual` or `replay:results/RUN`.

    `options.base_url` is the address of a model whose spec has no `@URL`. API keys, and nothing else, are also read
    from a file `.env` in the working directory; environment variables take precedence. No request is sent.

    Raises UsageError for an unknown or incomplete spec, a missing key, a key that a file would send elsewhere, or a
    missing optional package.
    """
    check_address([spec], options.base_url)
    read, colon = read_spec(spec), ":" in spec
    name, argument, entry = read.name, read.argument, read.entry
    if entry is None:
        close = difflib.get_close_matches(name, PROVIDERS, n=3)
        suggestion = f" (did you mean {' or '.join(map(_usage, close))}?)" if close else ""
        raise UsageError(
            f"no model provider is called {name!r}{suggestion}; write one of {', '.join(map(_usage, PROVIDERS))}"
        )
    if colon and not entry.argument:
        raise UsageError(f"{name!r} takes nothing after it: write {name}")
    if not argument and (colon if entry.argument.startswith("[") else entry.argument):
        raise UsageError(f"{spec.strip()!r} does not say which {entry.argument.strip('[]')}: write {_usage(name)}")
    if read.address:
        options = options.at(read.address, spec)
    check_url(options)
    _keys_from_file(Path.cwd() / ".env")
    provider: ListedProvider = entry.load()(*((argument, options) if entry.argument else ()))
    if read.address:  # results name the address: another server may serve another model by the same name
        provider.spec = redacted(f"{provider.spec}@{read.address}")
    return provider


def _usage(name: str) -> str:
    """Return the form of a provider's spec, such as `openai:MODEL`, `manual[:DIR]` or `builtin`."""
    argument = PROVIDERS[name].argument
    return name + (f"[:{argument[1:]}" if argument.startswith("[") else f":{argument}" if argument else "")


def _keys_from_file(path: Path) -> None:
    """Set those of the `KEY_VARIABLES` that the environment lacks from a `.env` file, if there is one.

    Other variables are ignored and nothing is expanded: an untrusted file in the working directory could otherwise
    choose servers, proxies or code that Python loads.
    """
    if not path.is_file():
        return
    try:
        values = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}; set the keys in the environment instead") from None
    for name in KEY_VARIABLES:
        value = values.get(name)
        if value and "\0" not in value:
            os.environ.setdefault(name, value)
