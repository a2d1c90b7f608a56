"""Films: the frames of their files show the scored episodes."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import policygen
from policygen.errors import UsageError
from policygen.extensions.film import film
from policygen.extensions.film.decisions import explain
from policygen.extensions.film.frames import LAST_FRAME, SMALL, Look, ending_of, frames
from policygen.extensions.film.scenes import Stage
from policygen.extensions.film.window import show
from policygen.policies.policy import Policy

LEAN = """
let lean = angle + 0.25*spin + 0.04*position + 0.08*velocity
bins lean: 0
| lean | action |
| 0    | left   |
| *    | right  |
"""
REMEMBERING = "let sum = clip(prev(sum) + 0.1*sin, -3, 3)\ntorque = -8*sin - rate - sum + 0.3*prev(torque)"


@pytest.fixture(scope="module")
def falling() -> Policy:
    return policygen.parse(
        "let lean = angle\nbins lean: 0\n| lean | action |\n|-|-|\n| 0 | left |\n| * | right |", "cartpole"
    )


def opened(content: bytes) -> list[Image.Image]:
    picture = Image.open(io.BytesIO(content))
    found = []
    for i in range(picture.n_frames):
        picture.seek(i)
        found.append(picture.convert("RGB"))
    return found


@pytest.mark.parametrize(("name", "text"), [("cartpole", LEAN), ("pendulum", REMEMBERING)], ids=["cartpole", "memory"])
def test_a_film_earns_what_the_score_of_its_seed_earned(name, text):
    policy = policygen.parse(text, name)
    score = policygen.score(policy, episodes=3, seed=7)
    shown = film.takes(policy, episodes=3, seed=7)
    with Stage(policy.task) as stage:
        ends = [list(stage.play(take.episode, ()))[-1] for take in shown]
    assert tuple(take.episode.seed for take in shown) == score.seeds
    assert [scene.earned for scene in ends] == pytest.approx(list(score.returns), rel=1e-12)
    assert [take.title for take in shown] == ["episode 1 of 3", "episode 2 of 3", "episode 3 of 3"]


def test_the_best_the_worst_and_the_median_are_chosen(falling):
    returns = policygen.score(falling, episodes=5, seed=3).returns
    chosen = {}
    for which in ("best", "worst", "median"):
        [take] = film.takes(falling, episodes=5, seed=3, which=which)
        assert take.title == f"episode {returns.index(take.episode.episode_return) + 1} of 5, the {which}"
        chosen[which] = take.episode.episode_return
    assert chosen == {"best": max(returns), "worst": min(returns), "median": sorted(returns)[2]}
    assert film.takes(falling, episodes=1, which="worst")[0].title == "episode 1 of 1, the worst"


def test_the_frames_of_a_gif_are_the_pictures_of_the_environment(falling):
    shown = film.takes(falling)
    content = film.gif(falling, shown, SMALL)
    assert len(content) < 150_000
    pictures = opened(content)
    [take] = shown
    assert len(pictures) <= 80
    with Stage(falling.task) as stage:
        ends = [scene.picture for scene in stage.play(take.episode, {0})]
    for drawn, picture in zip((pictures[0], pictures[-1]), ends, strict=True):
        assert drawn.width == 400
        upper = Image.fromarray(picture).resize((400, 267))
        difference = np.abs(np.asarray(upper, float) - np.asarray(drawn.crop((0, 0, 400, 267)), float))
        assert np.mean(difference > 40) < 0.01
    below = [np.asarray(picture.crop((0, 269, 400, picture.height))) for picture in pictures]
    assert all((panel < 128).any() for panel in below)
    assert len({panel.tobytes() for panel in below}) == len(below)  # every frame says its step and return


def test_all_frames_of_a_film_have_one_size():
    # At the first seed of these nothing is read but zeros, so that there is no term to show.
    policy = policygen.parse("left = max(0, position - 0.04)\nright = 0", "cartpole", "linear")
    shown = film.takes(policy, episodes=8)
    assert len({len(explain(policy, take.episode, [0])[0].reasons) for take in shown}) > 1
    assert len({frame.image.size for frame in frames(policy, shown, Look(width=80, most=16))}) == 1


def test_the_last_frame_holds_and_says_why_the_episode_ended(falling):
    [take] = film.takes(falling)
    assert ending_of(take.episode, falling.task) == ["terminated: failed", "not solved (threshold 475)"]
    whole = replace(take.episode, rewards=np.ones(500, np.float32), terminated=False, truncated=True)
    assert ending_of(whole, falling.task)[0] == "truncated at the limit of 500 steps"
    cut = replace(take.episode, terminated=False)
    assert ending_of(cut, falling.task)[0] == "truncated by the environment"
    lake = policygen.parse("| row | column | action |\n|-|-|-|\n| * | * | down |", "frozenlake-deterministic")
    goal = replace(take.episode, rewards=np.array([0, 0, 1], np.float32), episode_return=1.0)
    assert ending_of(goal, lake.task) == ["terminated: goal reached", "solved (threshold 1)"]
    assert ending_of(replace(goal, unstable=True), replace(lake.task, solved=None)) == ["the simulation broke down"]
    picture = Image.open(io.BytesIO(film.gif(falling, [take], SMALL)))
    picture.seek(picture.n_frames - 1)
    assert picture.info["duration"] == 1_000 * LAST_FRAME > 2_000


def test_a_long_film_is_cut_to_what_fits_and_a_short_one_is_slow(falling):
    policy = policygen.parse(LEAN, "cartpole")
    shown = film.takes(policy)
    assert shown[0].episode.length == 500
    made = list(frames(policy, shown, Look(width=100, most=40, seconds=5.0)))
    assert len(made) <= 41
    assert made[-1].seconds == LAST_FRAME
    assert 3 < sum(frame.seconds for frame in made) < 8
    short = film.takes(falling)
    assert 0.25 < short[0].episode.length / 50 < 2  # seconds
    slowed = list(frames(falling, short, Look(width=80, most=20)))
    assert 2 < sum(frame.seconds for frame in slowed[:-1]) < 3


def test_a_film_that_differs_from_the_scored_episode_warns(falling):
    [take] = film.takes(falling)
    other = replace(take, episode=replace(take.episode, episode_return=take.episode.episode_return + 1))
    with pytest.warns(UserWarning, match=f"did not repeat the episode of seed {take.episode.seed}"):
        film.gif(falling, [other], Look(width=80, most=3))


def test_a_notebook_shows_the_film_inline(falling, tmp_path):
    shown = policygen.animate(falling, look=SMALL)
    assert shown.gif.startswith(b"GIF89a")
    assert 'src="data:image/gif;base64,R0lGODlh' in shown._repr_html_()
    assert len(repr(shown)) < 80
    assert shown.returns == policygen.score(falling, episodes=2).returns[:1]
    assert shown.save(tmp_path / "a.gif").read_bytes() == shown.gif
    with pytest.raises(UsageError, match=r"end the name in \.gif"):
        shown.save(tmp_path / "a.mp4")


def test_the_library_writes_an_mp4(falling, tmp_path):
    reader = pytest.importorskip("imageio_ffmpeg")
    falling.save(tmp_path / "p.json")
    path = policygen.film(tmp_path / "p.json", tmp_path / "film.mp4")
    played = reader.read_frames(str(path))
    about = next(played)
    assert about["codec"] == "h264"
    size = about["source_size"]
    first = np.frombuffer(next(played), np.uint8).reshape(size[1], size[0], 3)
    assert size[0] == 640
    assert first[:300].mean() > 200  # white, with a cart
    assert first[300:420].min() < 60
    assert sum(1 for _ in played) > 20


def test_a_window_goes_through_the_frames(falling, monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    made = list(frames(falling, film.takes(falling), Look(width=100, most=3)))
    over = threading.Event()

    def press() -> None:
        keys = [pygame.K_SPACE, pygame.K_RIGHT, pygame.K_LEFT, pygame.K_HOME]
        while not over.wait(0.05):
            if pygame.display.get_init():
                pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=keys.pop(0) if keys else pygame.K_q))

    presser = threading.Thread(target=press)
    presser.start()
    try:
        assert show(made, "cartpole") >= 4
    finally:
        over.set()
        presser.join()


def test_the_command_writes_a_gif_and_says_what_it_shows(tmp_path, falling, line):
    falling.save(tmp_path / "p.json")
    done = line("film", "p.json", "--worst", "--episodes", 3)
    assert done.err == ""
    returns = policygen.score(falling, episodes=3).returns
    worst = returns.index(min(returns)) + 1
    assert done.out.startswith(f"episode {worst} of 3, the worst: return {min(returns):g}, ")
    assert "; terminated: failed, not solved (threshold 475)\n" in done.out
    assert done.out.endswith("film.gif\n")
    assert len(opened((tmp_path / "film.gif").read_bytes())) > 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["-o", "a.png"], "end the name in .gif, .mp4"), (["-o", "a.gif", "--window"], "into a file or into a window")],
)
def test_a_mistake_is_a_sentence(tmp_path, falling, arguments, said, line):
    falling.save(tmp_path / "p.json")
    done = line("film", "p.json", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
