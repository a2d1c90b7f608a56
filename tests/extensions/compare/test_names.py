"""Short names: the fewest parts that tell contenders apart."""

from __future__ import annotations

import pytest

from policygen.extensions.compare.names import short_names, short_paths, whole_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("openai:gpt-5-mini, equations, refine cma:7900", "gemini:f, table policy, refine q"), ("gpt-5-mini", "f")),
        (("builtin (no language model)", "compatible:qwen3@http://127.0.0.1:1/v1"), ("builtin", "qwen3")),
        (("openai:m, equations, refine cma:60", "openai:m, equations, refine none"), ("refine cma:60", "refine none")),
        (
            ("openai:a, refine none", "openai:a, refine q", "openai:b, refine none"),
            ("a, refine none", "a, refine q", "b, refine none"),
        ),
        (("openai:m", "ollama:m"), ("openai:m", "ollama:m")),
        (("openai:m, memory", "openai:m, memory, shape"), ("m", "m, shape")),
        (("openai:a", "PPO"), ("a", "PPO")),
        (("refine none", "refine cma:60"), ("refine none", "refine cma:60")),
        (("openai:m",), ("m",)),
    ],
)  # fmt: skip
def test_a_short_name_has_the_fewest_parts_that_tell_contenders_apart(
    names: tuple[str, ...], short: tuple[str, ...]
) -> None:
    assert tuple(short_names(names).values()) == short


def test_no_short_name_is_that_of_a_published_column() -> None:
    assert short_names(["openai:PPO", "builtin"], ["PPO"]) == {"openai:PPO": "openai:PPO", "builtin": "builtin"}


def test_a_caption_gets_only_what_a_name_leaves_out() -> None:
    whole = ("builtin (no language model), refine none", "openai:m, refine none", "openai:m, refine q")
    assert whole_names(short_names(whole)) == {"builtin": "builtin (no language model)", "m": "openai:m"}
    shortest = short_names(["openai:m, equations, refine q", "gemini:f, table policy, refine q"])
    assert whole_names(shortest) == {own: name for name, own in shortest.items()}
    assert whole_names({"refine none": "refine none"}) == {}


def test_paths_keep_the_end_that_tells_them_apart() -> None:
    assert short_paths(["runs/a/best.json", "runs/b/best.json", "pid.txt", "agents:Pid"]) == {
        "runs/a/best.json": "a/best.json",
        "runs/b/best.json": "b/best.json",
        "pid.txt": "pid.txt",
        "agents:Pid": "agents:Pid",
    }
