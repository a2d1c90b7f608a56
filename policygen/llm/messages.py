"""Messages, prompts and replies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["system", "user", "assistant"]

# English prose and tables have about four characters per token: the estimate if a server reports no count.
CHARACTERS_PER_TOKEN = 4.0
# No text has more on average, so a reported count that implies more is wrong.
MOST_CHARACTERS_PER_TOKEN = 8.0

NO_MODEL = "builtin"
"""`Reply.model` of a reply that no model wrote; it costs nothing."""

# Finish reasons of withheld replies: those of OpenAI and Anthropic, and Gemini's, which include reasons why a prompt is
# blocked.
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
    """A request to a model.

    Attributes:
        messages: all that a language model gets.
        context: the state of the search, for `builtin`.
        seed: the sampling seed; None if none is sent.
        key: the number of the attempt and of the repair (0 for the first request), by which recorded replies are found.
        comments: the user's comments that appear in this prompt for the first time.
    """

    messages: tuple[Message, ...]
    context: object = field(default=None, compare=False, repr=False)
    seed: int | None = field(default=None, compare=False)
    key: tuple[int, int] | None = field(default=None, compare=False)
    comments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def system(self) -> str:
        """The system messages, separated by an empty line; empty without any."""
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
        """Return a request with these messages appended, without a sampling seed."""
        return Prompt(self.messages + messages, self.context)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    Attributes:
        text: the answer, which the parser reads.
        tokens_in, tokens_out: the server's counts, or None.
        usd: the price; None if unknown. A cached reply keeps its original price.
        truncated: whether the length limit cut the reply, which then counts as malformed.
        reasoning: the model's thinking, for the transcript only.
        cached: whether the reply comes from a cache and costs nothing now.
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
        """Whether the server or the model withheld the reply or its end; a repeated request would be blocked again."""
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
    requests: int  # number of tries, the successful one included
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class FailedExchange:
    """A request without a reply, and the reason; its tries are charged, too."""

    attempt: int
    request: int
    prompt: Prompt
    requests: int
    error: str


def charged_tokens(prompt: Prompt, reply: Reply) -> tuple[int, int]:
    """Return the numbers of prompt and reply tokens to charge.

    A missing count is estimated from the characters, thinking included; a count too small for the text is raised. A
    cached reply, or one that no model wrote, costs no tokens.
    """
    if reply.model == NO_MODEL or reply.cached:
        return 0, 0
    return _charged(reply.tokens_in, prompt.characters), _charged(reply.tokens_out, reply.characters)


def _charged(reported: int | None, characters: int) -> int:
    if reported is None:
        return round(characters / CHARACTERS_PER_TOKEN)
    return max(reported, int(characters / MOST_CHARACTERS_PER_TOKEN))


def cut_to(reply: Reply, tokens: int) -> Reply:
    """Cut a reply to about `tokens` tokens, in case the server ignored the limit; thinking is cut before the answer.

    A reply has up to 8 characters per token if the server counts tokens, so that none within the limit is cut, and
    otherwise up to 4, so that the estimated charge stays within the limit.
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
