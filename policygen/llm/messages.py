"""Messages, prompts and replies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["system", "user", "assistant"]

# English prose and tables have about four characters per token. The estimate is used until a server reports a count.
CHARACTERS_PER_TOKEN = 4.0
# No text has more on average, so a reported count that implies more is wrong.
MOST_CHARACTERS_PER_TOKEN = 8.0

NO_MODEL = "builtin"
"""`Reply.model` of a reply that no model wrote; it costs nothing."""


# Finish reasons of withheld replies: OpenAI's, Anthropic's, and Gemini's with the reasons for a blocked prompt.
_BLOCKED = frozenset(
    ("content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii", "model_armor")
)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model: the rendered messages, and the structured context they came from.

    A language model gets only `messages`; `context` is for `builtin`. `seed` is the sampling seed; None: none is sent.
    `key` is the attempt's number and the repair's (0: the first request), by which recorded replies are looked up.
    `comments` are the user's comments that appear for the first time.
    """

    messages: tuple[Message, ...]
    context: object = field(default=None, compare=False, repr=False)
    seed: int | None = field(default=None, compare=False)
    key: tuple[int, int] | None = field(default=None, compare=False)
    comments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def system(self) -> str:
        """All system messages, with an empty line between them; empty if there is none."""
        return "\n\n".join(message.content.strip() for message in self.messages if message.role == "system")

    @property
    def characters(self) -> int:
        """Number of characters in all messages."""
        return sum(len(message.content) for message in self.messages)

    @property
    def estimated_tokens(self) -> int:
        """Number of tokens, estimated from the characters (no tokenizer is downloaded)."""
        return round(self.characters / CHARACTERS_PER_TOKEN)

    def followed_by(self, *messages: Message) -> Prompt:
        """Return a request with further messages at its end, and without a sampling seed."""
        return Prompt(self.messages + messages, self.context)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    The parser reads `text`; `reasoning` (thinking tags, separate fields) is only for the transcript.
    Token counts are None if the server reported none, `usd` is None if the price is unknown.
    `truncated`: the length limit cut the reply, which therefore counts as malformed.
    `cached`: the reply comes from a cache and costs nothing now; `usd` is its original cost.
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
    def is_blocked(self) -> bool:
        """Whether the server or the model withheld the reply or its end; the request would only be blocked again."""
        return self.finish_reason.lower() in _BLOCKED

    @property
    def characters(self) -> int:
        """Number of characters of the reply, thinking included."""
        return len(self.text) + len(self.reasoning)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of an attempt, its reply, and the tokens charged."""

    attempt: int
    request: int  # 0 for the first request of the attempt; repairs count from 1
    prompt: Prompt
    reply: Reply
    requests: int  # number of tries until the reply came
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class FailedExchange:
    """A request without a reply, and the reason; its `requests` tries are charged like those of any other."""

    attempt: int
    request: int
    prompt: Prompt
    requests: int
    error: str


def charged_tokens(prompt: Prompt, reply: Reply) -> tuple[int, int]:
    """Return the tokens to charge for `reply`, in and out.

    A missing count is estimated from the characters, thinking included; a count too small for the text is raised. A
    reply from a cache, or that no model wrote, is charged nothing.
    """
    if reply.model == NO_MODEL or reply.cached:
        return 0, 0
    return _charged(reply.tokens_in, prompt.characters), _charged(reply.tokens_out, reply.characters)


def _charged(reported: int | None, characters: int) -> int:
    if reported is None:
        return round(characters / CHARACTERS_PER_TOKEN)
    return max(reported, int(characters / MOST_CHARACTERS_PER_TOKEN))


def cut_to(reply: Reply, tokens: int) -> Reply:
    """Truncate a reply to about `tokens` tokens, in case the server ignored the limit.

    If the server reports tokens, 8 characters per token are allowed, so a correct reply is never cut. Otherwise 4 are,
    so the estimated charge does not exceed the limit. Thinking is cut before the answer.
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
