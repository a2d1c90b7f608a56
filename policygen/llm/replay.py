"""Answer with the recorded replies of an earlier run, in their order and without any network."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from policygen.errors import LogbookError, ProviderError, UsageError
from policygen.files import find_run, read_plain
from policygen.llm.base import Diagnosis, LLMOptions
from policygen.llm.messages import Prompt, Reply

_TRANSCRIPT = "transcript.jsonl"
_LARGEST = 2 * 2**30  # bytes
_FIELDS = tuple(field.name for field in fields(Reply))


class Replay:
    """`replay:RUN`, where RUN is the folder of a run: its model and token counts as recorded, at a cost of 0.

    Raises UsageError if the run holds no readable replies.
    """

    def __init__(self, run: str, options: LLMOptions) -> None:
        self.spec = f"replay:{run}"
        self.folder = find_run(run).expanduser()
        self.path = self.folder / _TRANSCRIPT
        self._replies = _recorded(self.path)
        self._next = 0
        self.model = self._replies[0].model
        self.is_language_model = any(reply.model != "builtin" for reply in self._replies)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The next recorded reply, whatever the prompt. Raises ProviderError after the last one."""
        if self._next == len(self._replies):
            raise ProviderError(
                f"{self.path} holds {_count(len(self._replies))}, and all have been replayed: "
                "the run asks for more than the recorded one did"
            )
        self._next += 1
        return self._replies[self._next - 1]

    def skip(self, replies: int) -> None:
        """Pass over the replies that an interrupted run has used."""
        self._next = min(self._next + replies, len(self._replies))

    def diagnose(self) -> Diagnosis:
        """Say how many replies are recorded, and of which model."""
        return Diagnosis(True, (f"{self.path} holds {_count(len(self._replies))} of {self.model}",))


def _recorded(path: Path) -> tuple[Reply, ...]:
    try:
        # Not splitlines(): a reply may hold other line separators, and a torn line half a character.
        lines = read_plain(path, _LARGEST).decode(errors="replace").split("\n")
    except FileNotFoundError:
        raise UsageError(f"replay:RUN needs a run folder with a {_TRANSCRIPT}: there is no {path}") from None
    except LogbookError as error:
        raise UsageError(f"replay:RUN needs a run folder with a {_TRANSCRIPT}: {error}") from None
    replies = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if "sent" in record:  # a request before its answer
                continue
            reply = record["reply"]
            if reply is not None:
                replies.append(_reply(reply))
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # a run that was killed while writing leaves half a line
                break
            raise UsageError(f"line {number} of {path} is not JSON: {error}") from None
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"line {number} of {path} is not a recorded request, with a reply of {', '.join(_FIELDS)}: {error}"
            ) from None
    if not replies:
        raise UsageError(f"{path} holds no replies to replay")
    return tuple(replies)


def _reply(record: dict[str, Any]) -> Reply:
    reply = replace(Reply(**record), usd=0.0, seconds=0.0, cached=False)
    for name in ("text", "model", "reasoning", "finish_reason"):
        if not isinstance(getattr(reply, name), str):
            raise TypeError(f"`{name}` is no text")
    for count in (reply.tokens_in, reply.tokens_out):
        if count is not None and not isinstance(count, int):
            raise TypeError("a number of tokens is no whole number")
    return replace(reply, truncated=bool(reply.truncated))


def _count(number: int) -> str:
    return "1 reply" if number == 1 else f"{number} replies"
