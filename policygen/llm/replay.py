"""Answer with the recorded replies of an earlier run, in their order and without any network."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

from policygen.errors import ProviderError, UsageError
from policygen.files import find_run
from policygen.llm.base import Diagnosis, LLMOptions
from policygen.llm.messages import Prompt, Reply

_TRANSCRIPT = "transcript.jsonl"
_FIELDS = tuple(field.name for field in fields(Reply))


class Replay:
    """`replay:RUN`, where RUN is the folder of a run: its model and token counts as recorded, at a cost of 0.

    Raises UsageError if the run holds no readable replies.
    """

    def __init__(self, run: str, options: LLMOptions) -> None:
        self.spec = f"replay:{run}"
        self.folder = find_run(run).expanduser()
        self._path = self.folder / _TRANSCRIPT
        self._replies = _recorded(self._path)
        self._next = 0
        self.model = self._replies[0].model
        self.is_language_model = any(reply.model != "builtin" for reply in self._replies)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The next recorded reply, whatever the prompt. Raises ProviderError after the last one."""
        if self._next == len(self._replies):
            raise ProviderError(
                f"{self._path} holds {_count(len(self._replies))}, and all have been replayed: "
                "the run asks for more than the recorded one did"
            )
        self._next += 1
        return self._replies[self._next - 1]

    def skip(self, replies: int) -> None:
        """Pass over the replies that an interrupted run has used."""
        self._next = min(self._next + replies, len(self._replies))

    def diagnose(self) -> Diagnosis:
        """Say how many replies are recorded, and of which model."""
        return Diagnosis(True, (f"{self._path} holds {_count(len(self._replies))} of {self.model}",))


def _recorded(path: Path) -> tuple[Reply, ...]:
    try:
        # Not splitlines(): a reply may hold other line separators, and a torn line half a character.
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise UsageError(
            f"replay:RUN needs a run folder with a {_TRANSCRIPT}: {path} cannot be read ({error.strerror})"
        ) from None
    replies = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            reply = record["reply"]
            if reply is not None:
                replies.append(replace(Reply(**reply), usd=0.0))
        except json.JSONDecodeError as error:
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


def _count(number: int) -> str:
    return "1 reply" if number == 1 else f"{number} replies"
