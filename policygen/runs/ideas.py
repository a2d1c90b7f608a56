"""The note on the idea of an attempt: the first sentence that the model wrote beside the policy."""

from __future__ import annotations

import re

from policygen.runs.notes import Note

MAX_SENTENCE_CHARACTERS = 240  # of the sentence that describes an attempt
MAX_SEARCHED_CHARACTERS = 20_000  # of a reply that are searched for that sentence
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HEADING = re.compile(r"^\w+ \([^)]*\)[.:]\s+")  # such as "Change (one sentence):"
_END = re.compile(r"(?<=[.!?])\s")

IDEA = Note("idea", str)


def first_sentence(reply: str) -> str:
    """Return the first sentence of a reply's prose on one line, cut to `MAX_SENTENCE_CHARACTERS`."""
    text = _THOUGHT.sub("", reply[:MAX_SEARCHED_CHARACTERS])
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            if lines:
                break
        elif not fenced and line.strip() and not line.lstrip().startswith(("#", "|", "---")):
            lines.append(line.strip().lstrip("*->• "))
        elif lines:
            break
    words = " ".join("".join(c if c.isprintable() else " " for c in " ".join(lines)).replace("**", "").split())
    sentence = _END.split(_HEADING.sub("", words), maxsplit=1)[0]
    cut = f"{sentence[: MAX_SENTENCE_CHARACTERS - 4].rstrip()} ..."
    return sentence if len(sentence) <= MAX_SENTENCE_CHARACTERS else cut
