"""What goes to a model and what comes back: messages, prompts, replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["system", "user", "assistant"]

# English prose and tables run at about four characters a token; providers correct this from reported usage.
CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model: the rendered messages and, beside them, the structured context they came from.

    `context` is cargo that nothing here opens: a language model gets `messages` alone.
    """

    messages: tuple[Message, ...]
    context: object = field(default=None, compare=False, repr=False)

    @property
    def characters(self) -> int:
        """Number of characters in all messages."""
        return sum(len(message.content) for message in self.messages)

    @property
    def estimated_tokens(self) -> int:
        """Tokens, estimated from the characters (no tokenizer is downloaded)."""
        return round(self.characters / CHARACTERS_PER_TOKEN)

    def followed_by(self, *messages: Message) -> Prompt:
        """The same request with further turns at its end."""
        return Prompt(self.messages + messages, self.context)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    `text` is what the parser reads; `reasoning` (thinking tags, separate fields) is kept for the transcript only.
    Token counts are None where the server reported none, `usd` is None where the price is unknown.
    `truncated` says that the answer was cut off by its length limit, which makes it malformed whatever it holds.
    """

    text: str
    model: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    seconds: float = 0.0
    truncated: bool = False
    reasoning: str = ""
    finish_reason: str = ""
