"""Films: their frames show the scored episodes, and messages where nothing can be drawn."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support import environment

import policygen
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import TaskError
from policygen.extensions import film
from policygen.extensions.film import LAST_FRAME, WIDTH, ending_of, frames, rendering_env, replayed
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

LEAN = """
let lean = angle + 0.25*spin + 0.04*position + 0.08*velocity
bins lean: 0
| lean | action |
| 0    | left   |
| *    | right  |
"""


@pytest.fixture(scope="module")
def falling() -> Policy:
    return policygen.parse(
        "let lean = angle\nbins lean: 0\n| lean | action |\n|-|-|\n| 0 | left |\n| * | right |", "cartpole"
    )


def scenes(task: Task, episode: Trajectory, *wanted: int):
    """The scenes of a replayed episode before these steps, and at its end."""
    env = rendering_env(task)
    try:
        return list(replayed(env, task, episode, wanted))
    finally:
        env.close()


def opened(content: bytes) -> list[Image.Image]:
    picture = Image.open(io.BytesIO(content))
    found = []
    for i in range(picture.n_frames):
        picture.seek(i)
        found.append(picture.convert("RGB"))
    return found


def test_the_frames_of_a_gif_are_the_pictures_of_the_environment_above_the_signals(falling, monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 80)
    shown = film.takes(falling)
    content = film.gif(falling, shown)
    assert len(content) < 150_000
    pictures = opened(content)
    assert len(pictures) <= 80
    ends = [picture for *_, picture in scenes(falling.task, next(iter(shown.values())), 0)]
    high = round(WIDTH * 400 / 600)
    for drawn, picture in zip((pictures[0], pictures[-1]), ends, strict=True):
        assert drawn.width == WIDTH
        upper = Image.fromarray(picture).resize((WIDTH, high))
        difference = np.abs(np.asarray(upper, float) - np.asarray(drawn.crop((0, 0, WIDTH, high)), float))
        assert np.mean(difference > 40) < 0.01
    below = [np.asarray(picture.crop((0, high + 60, WIDTH, picture.height)), int) for picture in pictures]
    blue = [np.count_nonzero(panel[..., 2] - panel[..., 0] > 80) for panel in below]  # the lines of the signals
    assert all(later > earlier for earlier, later in itertools.pairwise(blue))


def test_the_last_frame_holds_and_says_why_the_episode_ended(falling, monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 3)
    shown = film.takes(falling)
    (episode,) = shown.values()
    assert ending_of(episode, falling.task) == "terminated, not solved"
    whole = replace(episode, episode_return=500.0, terminated=False, truncated=True)
    assert ending_of(whole, falling.task) == "truncated, solved"
    broken = replace(episode, unstable=True)
    assert ending_of(broken, replace(falling.task, solved=None)) == "the simulation broke down"
    picture = Image.open(io.BytesIO(film.gif(falling, shown)))
    picture.seek(picture.n_frames - 1)
    assert picture.info["duration"] == 1_000 * LAST_FRAME > 2_000


def test_a_long_film_is_cut_to_what_fits_and_a_short_one_is_slow(falling):
    policy = policygen.parse(LEAN, "cartpole")
    shown = film.takes(policy)
    assert next(iter(shown.values())).length == 500
    made = [seconds for _, seconds in frames(policy, shown, 40)]
    assert len(made) <= 41
    assert sum(made) == pytest.approx(500 / 50 + LAST_FRAME, rel=0.05)
    slowed = [seconds for _, seconds in frames(falling, film.takes(falling), 20)]
    assert 2 < sum(slowed[:-1]) < 3


def test_a_film_that_differs_from_the_scored_episode_warns(falling, monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 3)
    ((title, episode),) = film.takes(falling).items()
    other = {title: replace(episode, episode_return=episode.episode_return + 1)}
    with pytest.warns(UserWarning, match=f"did not repeat the episode of seed {episode.seed}"):
        film.gif(falling, other)


def test_the_command_writes_a_gif_and_says_what_it_shows(tmp_path, falling, line):
    falling.save(tmp_path / "p.json")
    done = line("film", "p.json", "--worst", "--episodes", 3)
    assert done.err == ""
    returns = policygen.score(falling, episodes=3).returns
    assert done.out.startswith(f"worst of 3: return {min(returns):g}, ")
    assert "; terminated, not solved\n" in done.out
    assert done.out.endswith("film.gif\n")
    assert len(opened((tmp_path / "film.gif").read_bytes())) > 10


# --- replayed episodes -----------------------------------------------------------------------------------------------


def lively(name: str) -> Policy:
    """A linear policy that does different things at different times."""
    task = load_task(name)
    rng = np.random.default_rng(4)
    lines = [
        f"{output} = " + " + ".join(f"{rng.normal():.2f}*{x}" for x in task.observation_names)
        for output in task.output_names
    ]
    return policygen.parse("\n".join(lines), task, "linear")


@pytest.mark.parametrize("name", ["cartpole", "frozenlake", "hopper"])
def test_an_episode_is_the_same_when_it_is_drawn(name):
    policy = lively(name)
    with Simulator(policy.task) as simulator:
        [_, episode] = simulator.play(policy, [1, 2])
    first, later, last = scenes(policy.task, episode, 0, 3)
    assert [first[:2], later[:2], last[:2]] == [(0, False), (3, False), (episode.length, True)]
    assert later[2] == pytest.approx(float(np.sum(episode.rewards[:3], dtype=np.float64)), rel=1e-6, abs=1e-6)
    assert last[2] == pytest.approx(episode.episode_return, rel=1e-9, abs=1e-9)
    assert first[3].shape == last[3].shape
    assert (first[3] != last[3]).any()


def test_an_environment_without_pictures_is_refused_in_a_sentence():
    with pytest.raises(TaskError, match=r"^policygen/Nim-v0 draws no pictures \(it has no render mode `rgb_array`\)"):
        rendering_env(load_task("nim"))


@pytest.mark.parametrize(
    ("missing", "name", "said"),
    [
        ("pygame", "frozenlake", 'pip install "policygen[render]"'),
        ("mujoco.egl", "inverted-pendulum", "EGL does not work"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path, missing, name, said):
    path = tmp_path / "policy.json"
    lively(name).save(path)
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({missing.split()!r}))\nfrom policygen.cli import main\n"
        f"sys.argv = ['policygen', 'film', {str(path)!r}]\nmain()"
    )
    screenless = {k: v for k, v in environment().items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=screenless, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.gif"))
