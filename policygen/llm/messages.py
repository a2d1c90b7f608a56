"""What goes to a model and what comes back: messages, prompts, replies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["system", "user", "assistant"]

# English prose and tables run at about four characters a token; providers correct this from reported usage.
CHARACTERS_PER_TOKEN = 4.0
# More than any text has on average; whoever counts fewer tokens than this makes of it has not counted.
MOST_CHARACTERS_PER_TOKEN = 8.0

NO_MODEL = "builtin"
"""`Reply.model` of what no model wrote; it costs nothing."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model: the rendered messages and, beside them, the structured context they came from.

    `context` is cargo that nothing here opens: a language model gets `messages` alone. `seed` is that of its sampling,
    where one is sent.
    """

    messages: tuple[Message, ...]
    context: object = field(default=None, compare=False, repr=False)
    seed: int | None = field(default=None, compare=False)

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
    `cached` says that it was asked for and paid before, and costs nothing now; `usd` is what it cost then.
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
    cached: bool = False

    @property
    def characters(self) -> int:
        """Number of characters that were written, thinking included."""
        return len(self.text) + len(self.reasoning)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, the reply to it, the tries it took and the tokens charged."""

    attempt: int
    request: int
    prompt: Prompt
    reply: Reply
    requests: int
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class FailedExchange:
    """A request that was never answered, and why; its tries are charged like any other."""

    attempt: int
    request: int
    prompt: Prompt
    requests: int
    error: str


def charged_tokens(prompt: Prompt, reply: Reply) -> tuple[int, int]:
    """Tokens to charge for `reply`, in and out: what the server reports, but never less than the texts can be.

    What is not reported is estimated, thinking included. What comes from a cache is charged nothing.
    """
    if reply.model == NO_MODEL or reply.cached:
        return 0, 0
    return _charged(reply.tokens_in, prompt.characters), _charged(reply.tokens_out, reply.characters)


def _charged(reported: int | None, characters: int) -> int:
    if reported is None:
        return round(characters / CHARACTERS_PER_TOKEN)
    return max(reported, int(characters / MOST_CHARACTERS_PER_TOKEN))


def cut_to(reply: Reply, tokens: int) -> Reply:
    """`reply` as long as it was asked to be; one that goes on, because the server ignores the limit, is truncated.

    Where the server reports its tokens, the margin is generous: an honest reply is never cut. Where it does not, the
    estimate that is charged must not pass the limit. Thinking gives way to the answer.
    """
    most = int(tokens * (CHARACTERS_PER_TOKEN if reply.tokens_out is None else MOST_CHARACTERS_PER_TOKEN))
    if reply.characters <= most:
        return reply
    text = reply.text[:most]
    return replace(
        reply,
        text=text,
        reasoning=reply.reasoning[: most - len(text)],
        truncated=reply.truncated or len(text) < len(reply.text),
    )
