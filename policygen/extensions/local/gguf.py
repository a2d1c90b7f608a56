"""The provider `local:FILE.gguf`: a model in this process, by llama.cpp (extra `gguf`)."""

# Imports inside functions are of an optional package.

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import struct
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from policygen.errors import ProviderError, UsageError
from policygen.llm.base import MOST_TOKENS, Diagnosis, LLMOptions, read_reply
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import shown

MOST_CONTEXT = 32_768
"""Upper limit of the context in tokens: llama.cpp allocates its memory when it loads the model."""

_SEEDS = 2**32 - 1  # excluded: llama.cpp reads this number as a request to choose a seed itself
_TOO_LONG = "exceed_context_size_error"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


class LlamaCpp:
    """A chat model from a GGUF file, which holds weights, tokenizer and chat template.

    The chat template is rendered by llama.cpp's own interpreter, which runs no code. No port is open.
    Every request has a seed, so that a run can be repeated on the same machine. `LLMOptions.extra_body` and
    `reasoning_effort` are variables of the chat template, as in {"enable_thinking": False}.

    Raises UsageError if the extra is not installed, or the file cannot be used; the message says why.
    """

    is_language_model = True
    always_seeded = True

    def __init__(self, source: str, options: LLMOptions) -> None:
        self.spec, self.model = f"local:{source}", source
        self._options = options
        self._path = Path(source).expanduser()
        self._header = read_header(self._path)
        if not self._header.fields.get("tokenizer.chat_template"):
            raise UsageError(f"{source} has no chat template: use a model that was tuned to answer instructions")
        self.context = min(self._header.context, MOST_CONTEXT)
        self._server = _load(self._path, self._header, self.context)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt`; the options, or else the defaults of the file or llama.cpp, set the sampling.

        Raises ProviderError if the prompt does not fit into the model's context, or its chat template refuses it.
        """
        began, options = time.perf_counter(), self._options
        stated = {"temperature": options.temperature, "top_p": options.top_p}
        request = {
            "messages": [asdict(message) for message in prompt.messages],
            # True is the default of llama.cpp's own server program; through this library it would be False.
            "chat_template_kwargs": {"enable_thinking": True} | chat_template_variables(options),
            "max_tokens": max_output_tokens,
            "seed": (secrets.randbits(31) if prompt.seed is None else prompt.seed) % _SEEDS,
            "cache_prompt": False,  # else the last bits of a reply would depend on the requests before it
            "stream": True,
            "return_progress": True,
            "timings_per_token": True,
            **{name: value for name, value in stated.items() if value is not None},
        }
        answer = _Answer(began + options.timeout_seconds)
        with ThreadPoolExecutor(1) as executor:  # llama.cpp would swallow Ctrl-C in the main thread
            future = executor.submit(self._server.handle_chat_completions, json.dumps(request).encode(), answer.take)
            try:
                future.result()
            except (RuntimeError, ValueError) as error:  # the template is a program of the model's author
                reason = str(error).strip().rpartition("\n")[2]  # the lines before it quote the template
                raise ProviderError(
                    f"the chat template of {self.model} refuses the prompt: {shown(reason[:300])}"
                ) from None
            finally:
                answer.ends = began  # after Ctrl-C, this stops the generation, for which the executor waits
        if answer.error.get("type") == _TOO_LONG:
            raise prompt_too_long(self.model, answer.error["n_prompt_tokens"], self.context)
        if answer.error:
            raise ProviderError(f"{self.model} failed to answer: {shown(answer.error.get('message'))}")
        return read_reply(
            "".join(answer.pieces),
            self.model,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            usd=0.0,
            truncated=answer.finish != "stop",
            finish_reason=answer.finish,
        )

    def diagnose(self) -> Diagnosis:
        """Describe the model's size, device and context."""
        import xllamacpp

        cpu = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
        device = next((one["name"] for one in xllamacpp.get_device_info() if one["type"] != cpu), "cpu")
        return describe_model(self._header.parameters, self._path.stat().st_size, device, self.context)


def chat_template_variables(options: LLMOptions) -> dict[str, Any]:
    """Return the variables that a user sets in the chat template of a model in this process."""
    effort = {"reasoning_effort": options.reasoning_effort} if options.reasoning_effort else {}
    return effort | (options.extra_body or {})


def describe_model(parameters: int, size: int, device: str, context: int) -> Diagnosis:
    """Describe a model in this process: number of parameters, size in bytes, device, and context in tokens."""
    line = (
        f"{parameters / 1e6:,.1f} million parameters, {size / 2**20:,.0f} MB on {device}, context of {context:,} tokens"
    )
    return Diagnosis(True, (line,))


def prompt_too_long(model: str, tokens: int, context: int) -> ProviderError:
    """Return the error for a prompt that does not fit into the context of a model in this process."""
    return ProviderError(
        f"the prompt has {tokens} tokens and {model} takes {context}: shorten prompts (--set prompt_tokens=N, or a "
        "--template of your own), or use a model with a longer context"
    )


@dataclass
class _Answer:
    """The answer to one request, collected from llama.cpp's stream of events until `ends` (time.perf_counter, in s)."""

    ends: float
    pieces: list[str] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    finish: str = "length"
    error: dict[str, Any] = field(default_factory=dict)

    def take(self, event: bytes) -> bool:
        """Add one event, a JSON object; return True to end the generation."""
        chunk = json.loads(event)
        self.error = chunk.get("error") or {}
        for choice in chunk.get("choices", ()):
            self.pieces.append(choice["delta"].get("content") or "")
            self.finish = choice["finish_reason"] or self.finish
        if timings := chunk.get("timings"):
            self.tokens_in, self.tokens_out = timings["prompt_n"], timings["predicted_n"]
        return time.perf_counter() > self.ends


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file: its numbers and texts by name, and the number of parameters of its tensors."""

    fields: dict[str, Any]
    parameters: int

    @property
    def architecture(self) -> str:
        """The architecture of the model, such as `llama`; empty if the file states none."""
        return str(self.fields.get("general.architecture", ""))

    @property
    def context(self) -> int:
        """The context length of the model, in tokens; MOST_TOKENS if the file states none."""
        length = self.fields.get(f"{self.architecture}.context_length")
        return length if isinstance(length, int) and 0 < length <= MOST_TOKENS else MOST_TOKENS


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; arrays are skipped.

    Raises UsageError if there is no such file, or it is not one complete GGUF file.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UsageError(f"{path} is not a GGUF file")
            (version,) = _read(file, "I")
            if version not in (2, 3):
                raise UsageError(f"{path} is GGUF of version {version}; versions 2 and 3 can be read")
            tensors, count = _read(file, "QQ")
            fields = {_text(file): _value(file, *_read(file, "I")) for _ in range(count)}
            parameters = 0
            for _ in range(tensors):
                _text(file)
                parameters += math.prod(_read(file, f"{min(*_read(file, 'I'), 4)}Q"))
                _read(file, "IQ")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (struct.error, ValueError, OverflowError, MemoryError, RecursionError, KeyError):
        raise UsageError(f"{path} is damaged: its GGUF header cannot be read") from None
    if fields.get("split.count", 1) != 1:
        raise UsageError(f"{path} is one of {fields['split.count']} parts: join them with llama-gguf-split --merge")
    return Header(fields, parameters)


def _read(file: BinaryIO, kinds: str) -> tuple[Any, ...]:
    layout = struct.Struct(f"<{kinds}")
    return layout.unpack(file.read(layout.size))


def _text(file: BinaryIO) -> str:
    (length,) = _read(file, "Q")
    return b"".join(_read(file, f"{length}s")).decode(errors="replace")


def _value(file: BinaryIO, kind: int) -> Any:
    """Read a number or a text; skip an array and return None."""
    if kind == _TEXT:
        return _text(file)
    if kind != _ARRAY:
        return _read(file, _NUMBERS[kind])[0]
    inner, count = _read(file, "IQ")
    if inner in _NUMBERS:
        file.seek(count * struct.calcsize(f"<{_NUMBERS[inner]}"), os.SEEK_CUR)
    else:
        for _ in range(count):
            _value(file, inner)
    return None


def _load(path: Path, header: Header, context: int) -> Any:
    """Return llama.cpp's server with the model; it listens on no port, only on a socket whose file is deleted.

    Raises UsageError if the extra is not installed, or llama.cpp refuses the file.
    """
    try:
        import xllamacpp
    except ImportError:
        raise UsageError(f"{path} needs llama.cpp: pip install 'policygen[gguf]'") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = context, 1
    params.n_batch = params.n_ubatch  # Ctrl-C and the time limit are noticed after each batch of the prompt
    params.verbosity, params.ui, params.endpoint_slots, params.n_threads_http = -1, False, False, 1
    params.cache_ram_mib = 0
    params.force_pure_content_parser = True  # return the text as the model wrote it, thinking included
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():  # a sweep sets it to 1
        params.cpuparams.n_threads = max(1, int(threads))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with tempfile.TemporaryDirectory(prefix="policygen-") as private:
        params.hostnames = [str(Path(private) / "model.sock")]
        try:
            server = xllamacpp.Server(params)
        except (RuntimeError, ValueError):
            raise UsageError(
                f"{path} cannot be loaded by xllamacpp {xllamacpp.__version__}: the file is damaged, its chat template "
                f"is faulty, its architecture ({shown(header.architecture[:40])}) is unknown there, or memory is short"
            ) from None
    for number, handler in handlers.items():  # llama.cpp has replaced them
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)
    return server
