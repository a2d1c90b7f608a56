"""Settings: where they come from, their ranges, and `runs.methods`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policygen.errors import UsageError
from policygen.runs.config import Refinement, RunConfig, effective_config
from policygen.tasks.load import load_task

LAKE = load_task("frozenlake")


def test_equations_is_another_word_for_linear_and_stored_as_linear(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('policy = "equations"\n')
    assert effective_config(LAKE, "frozenlake", assignments=["policy=equations"]).policy == "linear"
    assert effective_config(LAKE, "frozenlake", file=file).policy == "linear"
    stated = replace(LAKE, run=(("policy", "equations"),))
    assert (stated.default_policy, effective_config(stated, "frozenlake").policy) == ("linear", "linear")


def test_later_sources_win(tmp_path):
    task = replace(LAKE, run=(("iterations", 3), ("episodes", 4), ("patience", 5), ("repairs", 6)))
    file = tmp_path / "config.toml"
    file.write_text("episodes = 40\npatience = 50\nrepairs = 7\n")
    config = effective_config(
        task, "t", file=file, assignments=["patience=6", "repairs=8"], options={"repairs": 9, "seed": None}
    )
    assert (config.iterations, config.episodes, config.patience, config.repairs, config.seed) == (3, 40, 6, 9, 0)


@pytest.mark.parametrize(
    ("assignment", "name", "value"),
    [
        ("seed=7", "seed", 7),
        ("temperature=0.5", "temperature", 0.5),
        ("temperature = 1", "temperature", 1.0),
        ("llm=openai:gpt-5-mini", "llm", "openai:gpt-5-mini"),
        ('llm="openai:x"', "llm", "openai:x"),
        ("base_url=http://localhost:1/v1?a=b", "base_url", "http://localhost:1/v1?a=b"),
        ("max_tokens=10_000", "max_tokens", 10_000),
        ("stop_at=-13", "stop_at", -13.0),
        ("prices=0.25/2", "prices", (0.25, 2.0)),
        ("prices=[1, 2]", "prices", (1.0, 2.0)),
    ],
)
def test_an_assignment_is_read_as_toml_or_else_as_text(assignment, name, value):
    assert getattr(effective_config(LAKE, "frozenlake", assignments=[assignment]), name) == value


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("episodes", "--set episodes: write --set NAME=VALUE"),
        ("episods=3", "--set: there is no setting `episods`; did you mean `episodes`?"),
        ("xyzzy=3", "--set: there is no setting `xyzzy`; the settings are task, llm"),
        ("episodes=1", "--set: `episodes`: input should be greater than or equal to 2"),
        ("episodes=", "--set: `episodes`: input should be a valid integer"),
        ("grid=open", "--set: `grid`: input should be 'free' or 'fixed'"),
        ("temperature=nan", "--set: `temperature`: input should be"),
        ("max_usd=-1", "--set: `max_usd`: input should be greater than or equal to 0"),
        ("prices=inf/1", "--set: `prices.0`: input should be a finite number"),
        ("prices=1", "--set: `prices`: value error, write IN/OUT"),
        ("task=cartpole", "--set: these settings are for task `cartpole`, but the task is `frozenlake`"),
        ("extra_body={ model = 'dear' }", "--set: `extra_body`: value error, `model` cannot be set here"),
        (
            'extra_body={"generationConfig": {"maxOutputTokens": 9}}',
            "--set: `extra_body`: value error, `maxOutputTokens` cannot be set here",
        ),
        ('extra_body={"a": null}', "--set: `extra_body`: value error, fields are texts, finite numbers"),
        ("reasoning_effort=Very", "--set: `reasoning_effort`"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_source(assignment, sentence):
    with pytest.raises(UsageError) as refusal:
        effective_config(LAKE, "frozenlake", assignments=[assignment])
    assert str(refusal.value).startswith(sentence)


def test_the_source_of_a_wrong_setting_is_named(tmp_path):
    task = replace(LAKE, run=(("episods", 3),))
    with pytest.raises(UsageError, match=r"task frozenlake, \[run\]: there is no setting `episods`"):
        effective_config(task, "frozenlake")
    file = tmp_path / "mine.toml"
    file.write_text("seed = -1")
    with pytest.raises(UsageError, match=r"mine\.toml: `seed`: input should be greater than or equal to 0"):
        effective_config(LAKE, "frozenlake", file=file)
    file.write_text("seed = ")
    with pytest.raises(UsageError, match=r"mine\.toml is not valid TOML"):
        effective_config(LAKE, "frozenlake", file=file)
    with pytest.raises(UsageError, match="the options: `seed`"):
        effective_config(LAKE, "frozenlake", options={"seed": -1})


def test_memory_is_for_the_linear_policies_of_builtin():
    for asked in ({"memory": True}, {"memory": True, "policy": "linear", "llm": "openai:gpt-5-mini"}):
        with pytest.raises(UsageError, match=r"^--memory is for the equations of builtin; a language model writes"):
            effective_config(LAKE, "frozenlake", options=asked)
    for llm in ("builtin", "replay:results/some"):
        assert effective_config(LAKE, "frozenlake", options={"memory": True, "policy": "linear", "llm": llm}).memory


@pytest.mark.parametrize("text", ["adam", "100", "cma:", "cma:0", "cma:many", "cma:-3", ":5"])
def test_a_malformed_method_of_refinement_is_one_sentence_before_anything_is_played(text: str) -> None:
    with pytest.raises(UsageError, match=rf"--refine {text}: .*cma:500"):
        effective_config(LAKE, "frozenlake", options={"refine": text})


def test_a_method_of_refinement_is_written_as_it_is_read() -> None:
    for text, read in (("none", Refinement()), ("auto", Refinement("auto")), ("cma:1200", Refinement("cma", 1_200))):
        config = RunConfig(task="frozenlake", refine=text)
        assert config.refine == read
        assert config.model_dump()["refine"] == text
        assert RunConfig(**config.model_dump()) == config
