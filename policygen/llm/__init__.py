"""The table of model providers, and `connect`, which turns `openai:gpt-5-mini` into one of them."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from policygen.errors import UsageError
from policygen.llm.base import Diagnosis, LLMOptions, Provider
from policygen.llm.keys import keys_from_file
from policygen.llm.several import Several
from policygen.outgoing import HIDDEN, redacted

__all__ = [
    "PROVIDERS",
    "Diagnosis",
    "Entry",
    "LLMOptions",
    "Provider",
    "Several",
    "Spec",
    "check_address",
    "connect",
    "joined_specs",
    "prompt_folders",
    "read_spec",
    "reads_prompts",
    "specs_of",
]


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One line of the table: how a provider is written, what it is, and the class that is imported when it is used.

    `argument` names what follows the colon, `takes` says whether it must, may or must not be there. `is_language_model`
    says what is known of it before it is connected; a replay is whatever it repeats. `reads_prompts` says whether what
    a prompt shows makes a difference to it. `server` says whether it is asked at an address of its own (`own`), at one
    that the user gives (`given`), or nowhere.
    """

    help: str
    module: str
    class_name: str
    argument: str = "MODEL"
    takes: Literal["required", "optional", "none"] = "required"
    is_language_model: bool = True
    reads_prompts: bool = True
    server: Literal["own", "given", ""] = ""

    def load(self) -> Callable[..., Any]:
        """Import the provider's class, and with it whatever software development kit it stands on."""
        loaded: Callable[..., Any] = getattr(importlib.import_module(self.module), self.class_name)
        return loaded


PROVIDERS: dict[str, ProviderEntry] = {
    "builtin": ProviderEntry(
        "plain search behind the same interface; needs no key and is not a language model",
        "policygen.proposers.builtin",
        "Builtin",
        takes="none",
        is_language_model=False,
        reads_prompts=False,
    ),
    "openai": ProviderEntry("OpenAI (key in OPENAI_API_KEY)", "policygen.llm.openai", "OpenAI", server="own"),
    "gemini": ProviderEntry(
        "Google Gemini (key in GEMINI_API_KEY or GOOGLE_API_KEY)", "policygen.llm.gemini", "Gemini", server="own"
    ),
    "anthropic": ProviderEntry(
        "Anthropic Claude (key in ANTHROPIC_API_KEY)", "policygen.llm.anthropic", "Anthropic", server="own"
    ),
    "ollama": ProviderEntry(
        "a model that Ollama serves on this machine or on OLLAMA_HOST", "policygen.llm.openai", "Ollama", server="given"
    ),
    "compatible": ProviderEntry(
        "any server that speaks OpenAI's chat protocol, as compatible:MODEL@URL "
        "(vLLM, llama.cpp, LM Studio, OpenRouter, ...; key, if any, in OPENAI_COMPATIBLE_API_KEY)",
        "policygen.llm.openai",
        "Compatible",
        server="given",
    ),
    "manual": ProviderEntry(
        "you and a chat window: paste replies into the terminal, or save them as DIR/reply-001.md, ...",
        "policygen.llm.manual",
        "Manual",
        argument="DIR",
        takes="optional",
    ),
    "replay": ProviderEntry(
        "the recorded replies of an earlier run",
        "policygen.llm.replay",
        "Replay",
        argument="RUN",
        reads_prompts=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """A provider as it is written, `compatible:qwen3@http://localhost:8000/v1`, taken apart.

    `entry` is None for one that the table lacks, `address` is empty where none is written.
    """

    name: str
    argument: str
    entry: ProviderEntry | None
    address: str = ""


def read_spec(spec: str) -> Spec:
    """What is written before and after the colon, and the line of the table that it means."""
    name, _, argument = spec.strip().partition(":")
    name, address = name.strip().lower(), ""
    entry = PROVIDERS.get(name)
    if entry is not None and entry.server and (parts := re.split(r"@(?=https?://)", argument, maxsplit=1))[1:]:
        argument, address = parts
    return Spec(name, argument.strip(), entry, address)


def check_address(specs: Sequence[str], base_url: str | None) -> None:
    """Refuse a bare `base_url` beside models that it would divert to a server which they are not asked at.

    Raises UsageError for a hosted model without an address of its own, or for models of two kinds of server.
    """
    named = [(spec, read) for spec in specs if (read := read_spec(spec)).entry and read.argument and not read.address]
    bare = [(spec, read.name) for spec, read in named if PROVIDERS[read.name].server]
    for spec, name in bare if base_url is not None else ():
        if PROVIDERS[name].server == "own":
            raise UsageError(
                f"--base-url is for compatible: and ollama: models and would not ask {spec} itself: leave it out, or "
                f"write an address into the model's own name, as in {spec}@{base_url}"
            )
        if name != bare[0][1]:
            raise UsageError(
                f"--base-url is the address of one server: write each model with its own, as in {spec}@{base_url}"
            )


def specs_of(spec: str) -> tuple[str, ...]:
    """The single providers of one that is written `openai:a + gemini:b`; a name may hold a plus all the same."""
    parts = [part.strip() for part in spec.split(" + ")]
    return tuple(parts) if all(read_spec(part).entry for part in parts) else (spec,)


def prompt_folders(spec: str) -> list[str]:
    """The folders into which a provider writes prompts: DIR of each `manual:DIR`."""
    return [one.argument for one in map(read_spec, specs_of(spec)) if one.name == "manual" and one.argument]


def reads_prompts(spec: str) -> bool:
    """Whether what a prompt shows, a comment or an example, makes a difference to the replies of this provider.

    One that the table lacks, a program's own, is taken to read them.
    """
    return any(entry is None or entry.reads_prompts for entry in (read_spec(one).entry for one in specs_of(spec)))


def joined_specs(specs: Sequence[str]) -> str:
    """Several providers as one is written.

    Raises UsageError for one that is not in the table: joined to others it would pass for a part of a name.
    """
    for spec in specs if len(specs) > 1 else ():
        _known(read_spec(spec))
    return " + ".join(specs)


def connect(spec: str, options: LLMOptions) -> Provider:
    """The provider that `spec` names: `openai:gpt-5-mini`, `ollama:qwen3`, `manual`, `replay:results/RUN`, `builtin`.

    Several, `openai:gpt-5-mini + compatible:qwen3@http://localhost:8000/v1`, are one that holds them all. An address
    within a spec is that model's alone and part of its name; `options.base_url` is that of models without one, of one
    kind of server. Takes keys, and nothing else, from a `.env` file in the working directory first; variables that are
    set already win over it. Asks no server.

    Raises UsageError for an unknown or incomplete spec, a missing key, a key that a file would send elsewhere, or an
    optional package that is not installed.
    """
    check_address(specs := specs_of(spec), options.base_url)
    if len(specs) > 1:
        return Several([connect(one, options) for one in specs])
    read, colon = read_spec(spec), ":" in spec
    entry = _known(read)
    name, argument = read.name, read.argument
    if entry.takes == "required" and not argument:
        raise UsageError(f"{name!r} alone does not say which {entry.argument}: write {_written(name)}")
    if entry.takes == "none" and colon:
        raise UsageError(f"{name!r} takes nothing after it: write {name}")
    if entry.takes == "optional" and colon and not argument:
        raise UsageError(f"nothing follows the colon in {spec!r}: write {name} or {name}:{entry.argument}")
    if f"://{HIDDEN}@" in read.address:
        raise UsageError(
            f"the user name and password in {spec} are not stored: give the model again, with them in the place of the "
            "stars, by --llm"
        )
    if read.address:
        options = replace(options, base_url=read.address, base_url_from=options.provider_from, named_in=spec)
    keys_from_file(Path.cwd() / ".env")
    make = entry.load()
    provider: Provider = make() if entry.takes == "none" else make(argument, options)
    if read.address:  # its scores are not those of the model of that name elsewhere
        provider.spec = redacted(f"{provider.spec}@{read.address}")
    return provider


def _known(read: Spec) -> ProviderEntry:
    """The line of the table.

    Raises UsageError where there is none.
    """
    if read.entry is None:
        close = difflib.get_close_matches(read.name, PROVIDERS, n=3)
        meant = f" (did you mean {' or '.join(_written(one) for one in close)}?)" if close else ""
        raise UsageError(
            f"no model provider is called {read.name!r}{meant}; write one of {', '.join(map(_written, PROVIDERS))}"
        )
    return read.entry


def _written(name: str) -> str:
    entry = PROVIDERS[name]
    return {
        "required": f"{name}:{entry.argument}",
        "optional": f"{name}[:{entry.argument}]",
        "none": name,
    }[entry.takes]
