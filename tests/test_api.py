"""The library in a few calls, as the README shows them, and environments of a program's own."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support import ALWAYS_LEFT, LEANING, Written, environment

import policygen
from policygen.errors import EnvironmentFault, PolicyError, PolicygenError, UsageError
from policygen.llm.messages import Prompt, Reply
from policygen.runs.reading import read_policy

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")


def test_a_run_needs_no_key_and_returns_what_it_found() -> None:
    seen: list[int] = []
    result = policygen.run("cartpole", iterations=2, final_episodes=5, on_attempt=lambda a: seen.append(a.number))
    assert seen == [0, 1, 2, 3] == [attempt.number for attempt in result.attempts]
    assert result.attempts[3].kind == "simplified"
    assert isinstance(result.policy, policygen.TablePolicy)
    assert result.final is not None
    assert result.final.episodes == 5
    assert result.folder.parent == Path("results")
    again = policygen.Policy.load(result.folder / "best.json")
    observations = np.zeros((7, 4))
    assert np.array_equal(again.act(observations), result.policy.act(observations))
    assert again.act(observations[0]) == again.act(observations)[0]
    # What is printed fits a screen.
    printed = str(result)
    assert len(printed.splitlines()) <= 32
    assert max(map(len, printed.splitlines())) <= 160
    assert f"final score: {str(result.final).split()[0]} [" in printed
    assert printed.splitlines()[0] == "cartpole (CartPole-v1), policy: table, proposals from builtin"
    assert result.policy.to_text().splitlines()[0] in printed
    assert repr(result.policy).startswith("<TablePolicy for cartpole, ")
    assert repr(result.final) == f"Score({result.final})"
    assert all(len(repr(value)) < 200 for value in (result, result.policy, result.final))


def test_a_run_without_a_policy_names_the_problem_of_its_last_reply() -> None:
    result = policygen.run("cartpole", llm=Written(["```\nright = angle\n```"]), iterations=1, episodes=5, repairs=0)
    assert result.policy is None
    (problem,) = result.attempts[1].problems
    assert f"no result: {problem}" in str(result)
    with pytest.raises(PolicyError, match=r"attempt 1 of .* has no policy:\n  ") as refused:
        read_policy(result.folder, attempt=1)
    assert str(problem) in str(refused.value)


class Talker(Written):
    """Answers with plain strings, as a first provider of one's own does."""

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        return super().complete(prompt, max_output_tokens).text  # type: ignore[return-value]


def test_a_provider_of_ones_own_is_used_and_named() -> None:
    provider = Talker([ALWAYS_LEFT, LEANING])
    result = policygen.run("cartpole", llm=provider, iterations=2, episodes=5, final_episodes=5, out="mine")
    assert len(provider.prompts) == 2
    assert result.policy is not None
    assert result.config.llm == "written:by-hand"
    assert result.folder.parent == Path("mine")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"iteration": 3}, "there is no setting `iteration`; did you mean `iterations`?"),
        ({"prices": "1.0"}, "`prices`: value error, write IN/OUT"),
        ({"llm": "opanai:x"}, "did you mean openai:MODEL"),
        ({"llm": object()}, "llm=object(...) has no spec, model, is_language_model, complete: a provider needs"),
    ],
)
def test_wrong_settings_are_one_sentence_and_leave_no_folder(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as failure:
        policygen.run("frozenlake", **settings)
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not Path("results").exists()


def test_a_policy_is_scored_on_fresh_episodes_or_exactly() -> None:
    score = policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=4)
    assert score.episodes == 30
    assert score == policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=4)
    assert score.seeds != policygen.score(policygen.parse(LEANING, "cartpole"), episodes=30, seed=5).seeds
    exact = policygen.score(policygen.parse("| row | column | action |\n| * | * | down |", "frozenlake"))
    assert exact.exact


def test_no_module_hides_a_public_name() -> None:
    for module in pkgutil.walk_packages(policygen.__path__, "policygen."):
        if module.name != "policygen.__main__":
            importlib.import_module(module.name)
    for name in policygen.__all__:
        value = getattr(policygen, name)
        assert callable(value), name
        assert name in dir(policygen)
    with pytest.raises(AttributeError, match=r"no attribute 'evalute'; the public names are Attempt, "):
        _ = policygen.evalute  # type: ignore[attr-defined]


def test_importing_the_library_is_cheap() -> None:
    slow = {"gymnasium", "openai", "matplotlib", "pandas"}
    for line, absent in (
        ("import policygen", slow | {"numpy"}),
        ("from policygen import Policy", slow),
        ("import policygen.cli", {"pandas"}),
    ):
        code = f"import sys; {line}; print({absent!r} & set(sys.modules) or 'none')"
        said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment())
        assert said == "none\n", line


# --- an environment of one's own -------------------------------------------------------------------------------------


class Well(gym.Env[Any, Any]):
    """A level that is kept, with a pump that is on or off and a valve."""

    observation_space = gym.spaces.Dict(level=gym.spaces.Box(0, 9, (1,), np.float32))
    action_space = gym.spaces.Dict(pump=gym.spaces.Discrete(2), valve=gym.spaces.Box(-1, 1, (1,), np.float32))
    closed = False

    def __init__(self) -> None:
        self.level, self.steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.level, self.steps = float(self.np_random.uniform(2, 8)), 0
        return {"level": np.array([self.level], np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.level = float(np.clip(self.level + 0.3 * action["pump"] + 0.2 * action["valve"][0] - 0.2, 0, 9))
        self.steps += 1
        return {"level": np.array([self.level], np.float32)}, -abs(self.level - 5), False, self.steps >= 15, {}

    def close(self) -> None:
        self.closed = True


QUICK: dict[str, Any] = {"iterations": 2, "episodes": 4, "final_episodes": 4, "seed": 3}


class Slow(Well):
    """A well whose steps take half a second."""

    begun = 0

    def step(self, action: Any) -> Any:
        type(self).begun += 1
        time.sleep(0.5)
        return super().step(action)


def test_the_step_limit_of_a_run_holds_for_an_environment_of_the_program_from_the_start() -> None:
    with pytest.raises(EnvironmentFault, match=r"no answer within 0\.1 s"):
        policygen.run(lambda: Slow(), step_timeout=0.1, iterations=1)
    assert Slow.begun == 1


def test_an_environment_is_played_itself_and_stays_open() -> None:
    env = Well()
    result = policygen.run(env, **QUICK)
    assert result.policy is not None
    assert result.task.gym_id == "given/Well"
    assert any("an environment object plays its episodes one at a time" in one for one in result.task.assumed)
    assert not env.closed
    by_factory = policygen.score(result.policy, lambda: Well(), episodes=40)
    assert by_factory == policygen.score(result.policy, episodes=40)
    saved = policygen.Policy.load(result.folder / "best.json")
    with pytest.raises(PolicygenError, match=r"was passed as a Python object; .*policygen.score\(policy, env\)"):
        policygen.score(saved, episodes=3)
    assert policygen.score(saved, env, episodes=3) == policygen.score(result.policy, episodes=3)
    observation, _ = env.reset(seed=1)
    env.step(saved.controller()(observation))


def test_such_a_run_goes_on_with_the_environment_again() -> None:
    def interrupt(attempt: policygen.Attempt) -> None:
        if attempt.number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policygen.run(Well(), out="broken", on_attempt=interrupt, **QUICK)
    [folder] = Path("broken").iterdir()
    with pytest.raises(PolicygenError, match=r"policygen.resume\(RUN, env=...\)"):
        policygen.resume(folder)
    with pytest.raises(PolicygenError, match=r"CartPoleEnv has 4 observed values and 1 action values; .* has 1 and 2"):
        policygen.resume(folder, env=gym.make("CartPole-v1"))
    resumed = policygen.resume(folder, env=Well())
    whole = policygen.run(Well(), **QUICK)
    assert [a.score for a in resumed.attempts] == [a.score for a in whole.attempts]
    more = policygen.resume(folder, env=Well(), iterations=3)
    assert sum(one.is_asked for one in more.attempts[1:]) == 3


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (3, "a int is not a task"),
        (lambda: 4, "returns a int, not a Gymnasium environment"),
        (gym.vector.SyncVectorEnv([Well]), "pass a function that makes a single one"),
    ],
)
def test_what_is_no_environment_is_refused(what: Any, sentence: str) -> None:
    with pytest.raises(PolicygenError, match=sentence):
        policygen.run(what)


# --- what is public --------------------------------------------------------------------------------------------------


def test_what_a_run_left_is_reported_compared_simplified_and_exported(tmp_path: Path) -> None:
    result = policygen.run("cartpole", iterations=1, final_episodes=5, episodes=4)
    assert policygen.report(result.folder, tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert "int cartpole_act(" in policygen.export(result.folder, "c", tmp_path / "policy.c")
    assert (tmp_path / "policy.c").exists()
    assert policygen.compare(result.folder).sentence
    assert policygen.plot_runs([str(result.folder)], "curve.png").is_file()
    assert policygen.plot_policy(result.policy, "policy.png").is_file()  # type: ignore[arg-type]
    smaller = policygen.simplify(result.folder, episodes=4)
    assert smaller.policy.task == result.policy.task  # type: ignore[union-attr]
