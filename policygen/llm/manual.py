"""The provider `manual`: prompts are printed or written to files, and a person pastes or saves the replies."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from policygen.errors import LogbookError, ProviderError, UsageError
from policygen.files import check_name, read, write_atomically
from policygen.llm.base import Diagnosis, LLMOptions, read_reply
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import shown

_END = "END"
_POLL_SECONDS = 0.25


class Manual:
    """The provider `manual`, which uses the terminal; `manual:DIR` uses DIR/prompt-001.md, DIR/reply-001.md, ...

    Reply files of an interrupted run are read again. The number of a file with another prompt is skipped.
    """

    model = "manual"
    is_language_model = True

    def __init__(self, folder: str, options: LLMOptions) -> None:
        self.spec = f"manual:{folder}" if folder else "manual"
        if folder and (file := options.origin("llm")):
            raise UsageError(
                f"{file} would write prompts into {folder}: a file may not choose where; if you trust "
                "the file, add --trust; otherwise name the folder yourself with --llm manual:DIR"
            )
        self._folder = Path(check_name(folder)).expanduser() if folder else None
        self._number = 0
        if self._folder and self._folder.exists() and not self._folder.is_dir():
            raise UsageError(f"{self._folder} is a file: manual:DIR takes a folder")

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Show `prompt` and wait for a person's reply, however long it takes.

        Raises ProviderError if the input ends without a reply, or a file cannot be read or written.
        """
        if self._folder is None:
            text = _from_terminal(prompt)
        else:
            try:
                text = self._from_files(self._folder, prompt)
            except (OSError, UnicodeDecodeError, LogbookError) as error:
                raise ProviderError(f"cannot exchange prompts and replies in {self._folder}: {error}") from None
        return read_reply(text, self.model)

    def diagnose(self) -> Diagnosis:
        """Say where prompts appear and replies are read."""
        if self._folder is None:
            return Diagnosis(True, (f"prompts are printed here; paste each reply and end it with a line {_END}",))
        where = f"prompts are written to prompt-001.md, ... in {self._folder}, replies are read from reply-001.md, ..."
        return Diagnosis(True, (where,))

    def _from_files(self, folder: Path, prompt: Prompt) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        content = as_text(prompt).encode()
        while True:
            self._number += 1
            question = folder / f"prompt-{self._number:03d}.md"
            if not question.exists():
                write_atomically(question, content)  # whoever watches the folder sees whole prompts only
                break
            if read(question, bytes) == content:
                break
        return _when_complete(folder / f"reply-{self._number:03d}.md", question)


def _when_complete(answer: Path, question: Path) -> str:
    """Return the text of `answer` once it is not empty and no longer grows."""
    announced, before = False, None
    while True:
        now = (answer.stat().st_size, answer.stat().st_mtime_ns) if answer.exists() else None
        if now is not None and now == before:
            text = read(answer, str)
            if text.strip():
                return text
        elif now is None and not announced:
            print(shown(f"waiting for {answer}, the reply to {question}"), file=sys.stderr, flush=True)
            announced = True
        before = now
        time.sleep(_POLL_SECONDS)


def _from_terminal(prompt: Prompt) -> str:
    print(shown(as_text(prompt)))
    print(f"===== paste the reply here, then a line with just {_END} =====", flush=True)
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip() == _END:
            return "".join(lines)
        lines.append(line)
    if not "".join(lines).strip():
        raise ProviderError("the input ended before a reply was pasted")
    return "".join(lines)


def as_text(prompt: Prompt) -> str:
    """Return the messages of a prompt, each under its role."""
    return "\n".join(f"===== {message.role} =====\n{message.content.rstrip()}\n" for message in prompt.messages)
