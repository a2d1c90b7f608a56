"""Episodes of others: from Minari's datasets, saved buffers and models, in prompts, and back to Minari."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from played import assert_equal, policy_for
from support import Written, attempts_of, summary_of, transcript_of

import policygen
from policygen.episodes.agents import play_agent
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.datasets import checked_trajectory, dataset_folder, read_minari, write_minari
from policygen.episodes.demonstrations import DEMONSTRATION, read_demonstrations
from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import LogbookError, UsageError
from policygen.extensions.sweeps.plan import SweepPlan, cells_of, product_of
from policygen.extensions.sweeps.worker import Order, begin
from policygen.search.resume import load_run, resume
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

minari, h5py = pytest.importorskip("minari"), pytest.importorskip("h5py")
CARTPOLE = load_task("cartpole")
GOOD = "left = 0\nright = angle + 0.25*spin + 0.04*position + 0.08*velocity"


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def episodes_of(task: Task, count: int = 3) -> list[Trajectory]:
    with Players(task) as players:
        return players.play(RandomActor(task, 1), range(count))


def good_episodes(count: int = 3) -> list[Trajectory]:
    with Players(CARTPOLE) as players:
        return players.play(policy_for("cartpole", GOOD), range(count))


# --- to Minari and back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "frozenlake", "Blackjack-v1"])
def test_what_is_written_is_minari_s_and_reads_back(name: str) -> None:
    task = load_task(name)
    episodes = episodes_of(task)
    episodes[-1] = replace(episodes[-1], terminated=True, truncated=True)  # at the last step allowed
    folder = write_minari(episodes, task, "test/some-v0")
    for name_or_folder in ("test/some-v0", str(folder)):
        assert_equal(read_minari(name_or_folder, task), episodes, rel=1e-6)
    theirs = minari.load_dataset("test/some-v0")
    assert theirs.total_episodes == len(episodes)
    assert theirs.total_steps == sum(episode.length for episode in episodes)
    first = theirs[0]
    assert len(first.actions) == episodes[0].length
    assert theirs.action_space.contains(first.actions[0])


def test_actions_that_nest_are_rows_of_numbers_of_which_only_the_choices_must_be_indices(mixer: Task) -> None:
    episodes = episodes_of(mixer)
    write_minari(episodes, mixer, "nested-v0")
    assert_equal(read_minari("nested-v0", mixer), episodes, rel=1e-6)
    assert minari.load_dataset("nested-v0").action_space.shape == (3,)
    choice = [actuator.is_choice for actuator in mixer.actuators].index(True)
    for wrong in (0.5, 3, -1):
        episodes[0].actions[-1, choice] = wrong
        with pytest.raises(UsageError, match="do not fit Mixer-v0: choices are 0 to 2"):
            checked_trajectory(mixer, episodes[0], "x")


def test_a_dataset_is_not_overwritten_and_its_name_leads_nowhere_else(tmp_path: Path) -> None:
    episodes = episodes_of(CARTPOLE)
    write_minari(episodes, CARTPOLE, "some-v0")
    with pytest.raises(UsageError, match="already"):
        write_minari(episodes, CARTPOLE, "some-v0")
    for name in ("../evil-v0", "/tmp/evil-v0", "a/../../b-v0", "no version"):
        with pytest.raises(UsageError, match="is not a dataset id"):
            write_minari(episodes, CARTPOLE, name)
    with pytest.raises(UsageError, match="no episodes"):
        write_minari([], CARTPOLE, "none-v0")


# --- a stranger's dataset --------------------------------------------------------------------------------------------


def test_reading_a_dataset_imports_and_makes_nothing_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evilmodule.py").write_text("import pathlib; pathlib.Path('EVIL').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = write_minari(episodes_of(CARTPOLE), CARTPOLE, "evil-v0")
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    spec = json.loads(metadata["env_spec"])
    spec |= {"id": "evilmodule:Evil-v0", "entry_point": "evilmodule:Evil"}
    metadata |= {"env_spec": json.dumps(spec), "eval_env_spec": json.dumps(spec)}
    del metadata["observation_space"], metadata["action_space"]
    path.write_text(json.dumps(metadata))
    assert len(read_minari("evil-v0", CARTPOLE)) == 3
    assert not (tmp_path / "EVIL").exists()
    with pytest.raises(AttributeError):  # what Minari itself makes of it
        minari.load_dataset("evil-v0")
    assert (tmp_path / "EVIL").exists()


def put(group: Any, name: str, value: Any) -> None:
    del group[name]
    group[name] = value


DAMAGES: dict[str, Callable[[Any, Path], Any]] = {
    "it has no `observations` of its own": lambda group, other: put(
        group, "observations", h5py.ExternalLink(other, "/episode_1/observations")
    ),
    "it holds values that are not numbers": lambda group, other: put(group, "rewards", ["evil"]),
    "episode_0 has 3 observations of 7 numbers": lambda group, other: put(group, "observations", np.zeros((3, 7))),
    "it has no `actions` of its own": lambda group, other: group.pop("actions"),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_links_into_other_files_and_what_are_no_numbers_are_refused(words: str) -> None:
    good = write_minari(episodes_of(CARTPOLE), CARTPOLE, "good-v0") / "data" / "main_data.hdf5"
    bad = dataset_folder("bad-v0") / "data" / "main_data.hdf5"
    bad.parent.mkdir(parents=True)
    shutil.copy(good, bad)
    with h5py.File(bad, "a") as file:
        DAMAGES[words](file["episode_0"], good)
    with pytest.raises(UsageError, match=f"bad-v0: {words}"):
        read_minari("bad-v0", CARTPOLE)


def test_what_is_no_dataset_is_said() -> None:
    folder = dataset_folder("bad-v0") / "data"
    folder.mkdir(parents=True)
    with pytest.raises(UsageError, match="there is none"):
        read_minari("bad-v0", CARTPOLE)
    (folder / "metadata.json").write_text('{"data_format": "arrow"}')
    with pytest.raises(UsageError, match="it is in the form `arrow`; save it again with data_format='hdf5'"):
        read_minari("bad-v0", CARTPOLE)
    (folder / "main_data.hdf5").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="damaged"):
        read_minari("bad-v0", CARTPOLE)


def test_a_small_file_that_claims_many_numbers_is_refused() -> None:
    resource = pytest.importorskip("resource")
    folder = dataset_folder("large-v0") / "data"
    folder.mkdir(parents=True)
    steps = 1_000_000
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        group = file.create_group("episode_0")
        group.create_dataset("observations", (steps + 1, 4), "f4", chunks=(10_000, 4))  # chunks that nobody wrote
        for name in ("actions", "rewards", "terminations", "truncations"):
            group.create_dataset(name, (steps,), "i1", chunks=(10_000,))
        for number in range(1, 399):
            file[f"episode_{number}"] = group
    assert (folder / "main_data.hdf5").stat().st_size < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match="large-v0: its episodes claim more numbers than a file of its size holds"):
        read_minari("large-v0", CARTPOLE)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # kB


STEPS = Trajectory(np.zeros((3, 4)), np.array([0, 1]), np.ones(2), 2.0, 0, True, False)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"actions": [0, 2]}, "its actions do not fit CartPole-v1: choices are 0 to 1"),
        ({"actions": [0.5, 0]}, "choices are 0 to 1"),
        ({"actions": [0, -1]}, "choices are 0 to 1"),
        ({"actions": [0, np.nan]}, "its actions or rewards do not fit CartPole-v1"),
        ({"rewards": [1, np.nan]}, "its actions or rewards do not fit CartPole-v1"),
        ({"rewards": [1, 1e300]}, "its actions or rewards do not fit CartPole-v1"),
        ({"observations": np.full((3, 4), np.nan)}, "its observations hold a value that is not a finite number"),
        ({"observations": np.full((3, 4), np.inf)}, "its observations hold a value that is not a finite number"),
        ({"observations": np.zeros((3, 3))}, "3 observations of 3 numbers"),
        ({"observations": np.zeros((1, 4)), "actions": [], "rewards": []}, "it has no steps"),
    ],
)
def test_an_episode_that_does_not_fit_the_task_is_refused(wrong: dict[str, Any], words: str) -> None:
    checked_trajectory(CARTPOLE, STEPS, "x")
    with pytest.raises(UsageError, match=f"^x.*{words}"):
        checked_trajectory(CARTPOLE, replace(STEPS, **{name: np.array(value) for name, value in wrong.items()}), "x")


# --- demonstrations --------------------------------------------------------------------------------------------------


def saved(path: Path, episodes: list[Trajectory]) -> Path:
    buffer = ReplayBuffer()
    buffer.add(3, episodes)
    buffer.save(path)
    return path


def test_the_best_episodes_of_a_source_are_kept(tmp_path: Path) -> None:
    episodes = [*episodes_of(CARTPOLE, 30), *good_episodes(2)]
    found = read_demonstrations(str(saved(tmp_path / "episodes.npz", episodes)), CARTPOLE)
    assert len(found) == 16
    assert found.returns[0] == max(episode.episode_return for episode in episodes)
    assert {episode.attempt for episode in found} == {DEMONSTRATION}
    assert len(read_demonstrations(str(tmp_path), CARTPOLE)) == 16  # a folder with that file


def test_saved_episodes_that_do_not_fit_the_task_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "episodes.npz", episodes_of(load_task("pendulum")))
    with pytest.raises(UsageError, match=r"episodes\.npz, episode 1.* CartPole-v1 has observations of 4 numbers"):
        read_demonstrations(str(path), CARTPOLE)
    with pytest.raises(UsageError, match=r"there is no file .*none\.npz"):
        read_demonstrations(str(tmp_path / "none.npz"), CARTPOLE)


def own(path: Path, episodes: list[Trajectory], **more: Any) -> Path:
    """A file as a user writes it with the help's text alone; `more` replaces, changes or (None) leaves out arrays."""
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in episodes])
        for name in ("observations", "actions", "rewards")
    }
    arrays["lengths"], arrays["terminated"] = ([getattr(one, n) for one in episodes] for n in ("length", "terminated"))
    for name, value in more.items():
        arrays[name] = value(arrays[name]) if callable(value) else value
    np.savez(path, **{name: np.asarray(array).tolist() for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_a_file_of_one_s_own_needs_five_arrays(name: str, tmp_path: Path) -> None:
    task = load_task(name)
    episodes = sorted(episodes_of(task), key=lambda one: -one.episode_return)
    found = read_demonstrations(str(own(tmp_path / "own.npz", episodes)), task)
    assert_equal([one.trajectory for one in found], [replace(one, seed=-1) for one in episodes], rel=1e-6)
    seeds = [one.seed for one in episodes]
    [first, *_] = read_demonstrations(str(own(tmp_path / "own.npz", episodes, seeds=seeds, returns=[1e9])), task)
    assert first.trajectory.seed == seeds[0]
    assert first.trajectory.episode_return == pytest.approx(episodes[0].episode_return)


NOT_OURS = {
    "(it has no `rewards`, `lengths`): write a file of your own with numpy.savez": {"rewards": None, "lengths": None},
    "`terminated` has the type bool and the shape (7,); it must hold one number per": {"terminated": [False] * 7},
    "`observations` has the type float64 and the shape (5, 4); 3 episodes of": {"observations": np.zeros((5, 4))},
    "`lengths` must be whole numbers": {"lengths": [-1, 1, 2]},
    "`rewards` has the type <U1 and the shape (1,)": {"rewards": ["a"]},
    "episode 1: its actions do not fit CartPole-v1: choices are 0 to 1": {"actions": lambda one: one + 1},
    "cannot be read (actions.npy holds Python objects; it must hold plain numbers or text)": {
        "actions": np.array([{}], object)
    },
}


@pytest.mark.parametrize("words", NOT_OURS)
def test_what_a_file_of_one_s_own_lacks_is_said_in_a_sentence(words: str, tmp_path: Path) -> None:
    episodes = good_episodes()
    with pytest.raises(UsageError, match=re.escape(words)) as refusal:
        read_demonstrations(str(own(tmp_path / "own.npz", episodes, **NOT_OURS[words])), CARTPOLE)
    assert "delete" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_run_whose_demonstrations_were_exchanged_for_others_says_so(tmp_path: Path) -> None:
    source = saved(tmp_path / "episodes.npz", good_episodes(1))
    result = policygen.run("cartpole", out=tmp_path, iterations=1, final_episodes=5, demonstrations=source)
    [one] = good_episodes(1)
    saved(result.folder / "demonstrations.npz", [replace(one, actions=one.actions + 5)])
    with pytest.raises(LogbookError, match="its actions do not fit CartPole-v1: choices are 0 to 1"):
        load_run(result.folder)


def test_sweeps_and_the_library_hand_on_that_the_user_knows_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        policygen.run("cartpole", out=tmp_path, demonstrations="ppo:none.zip", trust=True)
    plan = SweepPlan(products=(product_of(["cartpole"], [], [], [1]),), settings=("demonstrations=ppo:none.zip",))
    order = Order(cells_of(plan)[0], tmp_path, plan.settings, plan.limits, trust=True)
    with pytest.raises(UsageError, match="no such file"):
        begin(order)


def test_a_model_s_file_is_not_opened_without_trust(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="can run any code in the file; if you trust its author"):
        read_demonstrations(f"ppo:{tmp_path / 'model.zip'}", CARTPOLE)
    with pytest.raises(UsageError, match="which kind of model"):
        read_demonstrations(str(tmp_path / "model.zip"), CARTPOLE, trust=True)
    with pytest.raises(UsageError, match="no such file"):
        read_demonstrations("sac:none.zip", CARTPOLE, trust=True)
    with pytest.raises(UsageError, match=r"cannot be loaded|needs stable-baselines3"):
        read_demonstrations(f"ppo:{tmp_path / 'model.zip'}", CARTPOLE, trust=True)


def test_a_real_model_plays_and_what_its_file_holds_runs_only_with_trust(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    pendulum = load_task("pendulum")
    for kind, task in (("PPO", CARTPOLE), ("PPO", pendulum), ("SAC", pendulum)):
        model = getattr(sb3, kind)("MlpPolicy", make_env(task), seed=0, device="cpu")
        model.save(tmp_path / task.name)
        found = read_demonstrations(f"{kind.lower()}:{tmp_path / task.name}", task, seed=100, trust=True)
        played = play_agent(model, task, episode_seeds(100, "demonstrations", 10))
        assert sorted(found.returns) == sorted(episode.episode_return for episode in played)
    with pytest.raises(UsageError, match="is a model of another environment: its observation_space is Box"):
        read_demonstrations(f"ppo:{tmp_path / 'cartpole.zip'}", pendulum, trust=True)
    with pytest.raises(UsageError, match=r"as a model of DQN \(or was it made by another algorithm"):
        read_demonstrations(f"dqn:{tmp_path / 'cartpole'}", CARTPOLE, trust=True)
    evil = {":serialized:": base64.b64encode(pickle.dumps(Touch(tmp_path / "EVIL"))).decode()}
    with zipfile.ZipFile(tmp_path / "cartpole.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("data", json.dumps({"policy_class": evil}))
    with pytest.raises(UsageError, match="add --trust"):
        read_demonstrations(f"ppo:{tmp_path / 'cartpole.zip'}", CARTPOLE)
    assert not (tmp_path / "EVIL").exists()
    with pytest.raises(UsageError):
        read_demonstrations(f"ppo:{tmp_path / 'cartpole.zip'}", CARTPOLE, trust=True)
    assert (tmp_path / "EVIL").exists()


class Touch:
    """A pickle that makes a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


# --- in a run --------------------------------------------------------------------------------------------------------


def test_a_run_shows_them_records_them_and_counts_them_not(tmp_path: Path) -> None:
    source = saved(tmp_path / "given.npz", good_episodes(2))
    settings = {"iterations": 2, "episodes": 5, "warmup_episodes": 5, "final_episodes": 5, "policy": "linear"}
    reply = "```\nleft = 0\nright = spin\n```"
    plain = policygen.run("cartpole", llm=Written([reply, reply]), out=tmp_path / "plain", **settings)
    shown = policygen.run(
        "cartpole", llm=Written([reply, reply]), out=tmp_path / "shown", demonstrations=source, **settings
    )
    prompts = [str(exchange["messages"]) for exchange in transcript_of(shown.folder)]
    assert all("a demonstration" in prompt and "Return 500" in prompt for prompt in prompts)
    assert not any("a demonstration" in str(exchange["messages"]) for exchange in transcript_of(plain.folder))
    # Nothing that a run reports is theirs.
    for name in ("final", "best_score", "episodes", "env_steps"):
        assert summary_of(shown.folder)[name] == summary_of(plain.folder)[name]
    assert all(episode.attempt >= 0 for episode in ReplayBuffer.load(shown.folder / "episodes.npz"))
    assert [a["score"] for a in attempts_of(shown.folder)] == [a["score"] for a in attempts_of(plain.folder)]
    # A resumed run has its own copy.
    source.unlink()
    assert len(load_run(shown.folder).search.demonstrations) == 2
    again = resume(shown.folder, Written([reply]), assignments=["iterations=3"])
    assert [attempt.number for attempt in again.attempts()] == [3]
    again.finish()
    assert "a demonstration" in str(transcript_of(shown.folder)[-1]["messages"])
    (shown.folder / "demonstrations.npz").unlink()
    with pytest.raises(LogbookError, match=r"demonstrations\.npz"):
        load_run(shown.folder)
