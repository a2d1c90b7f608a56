"""Scores under perturbations: margins, tables, pictures, pages, and the commands that show them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import CHECKOUT, Line, summary_of, the_run

from policygen.episodes.score import Score, score_of_returns
from policygen.extensions.robust import Margins, Trial, lines, margins, perturbations_for, picture, table
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from policygen.tasks.perturb import Perturbation, perturbation
from policygen.tasks.requirements import Requirement
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")
STEADY = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n"
HASTY = "left = 0\nright = angle\n"
SMALL = ("--iterations", 1, "--episodes", 5, "--set", "final_episodes=20", "--policy", "equations", "--jobs", 1)


def policy(text: str, task: Task = CARTPOLE) -> Policy:
    found = parse(text, task, "linear").policy
    assert found is not None
    return found


def test_margins_say_to_which_size_a_policy_holds() -> None:
    policies = {"steady": policy(STEADY), "hasty": policy(HASTY)}
    delays = perturbations_for(CARTPOLE, ["action_delay=1,3,8"])
    found = margins(policies, CARTPOLE, delays, episodes=10, against="hasty")
    steady, hasty = found
    assert (steady.nominal.mean, steady.threshold) == (500, 475)  # what counts as solved
    assert steady.words("action_delay").startswith("holds to 3, fails at 8 (")
    # Nine tenths of its gain over random actions.
    assert 0.85 * hasty.nominal.mean < hasty.threshold < hasty.nominal.mean < 475
    gains = [trial.score.mean - other.score.mean for trial, other in zip(steady.trials, hasty.trials, strict=True)]
    assert [trial.gain for trial in steady.trials] == pytest.approx(gains)
    assert [trial.gain for trial in hasty.trials] == [None] * 3
    header, rows = table(found)
    assert header == ("perturbation", "size", "policy", "score [95% interval]", "holds", "against the baseline")
    assert [row[1] for row in rows] == ["1", "1", "3", "3", "8", "8"]
    assert any("counts as failing below 475" in one for one in lines(found))
    assert len(picture(found).axes) == 1


def a_score(mean: float) -> Score:
    return score_of_returns(np.array([mean, mean]), (1, 2), "copies")


@pytest.mark.parametrize(
    ("name", "means", "words"),
    [
        ("mass", {0.7: 4, 0.9: 8, 1.1: 7, 1.5: 6}, "holds to 0.9, fails at 0.7 (4); holds to 1.5, the furthest tried"),
        # The nominal value of an argument is unknown.
        ("kwargs.g", {8: 4, 9: 8, 10: 7, 12: 3}, "holds at 9, 10; fails at 8 (4); fails at 12 (3)"),
    ],
)
def test_directions_from_nominal_are_told_apart_where_it_is_known(
    name: str, means: dict[float, float], words: str
) -> None:
    sizes = {perturbation(name, size, size): mean for size, mean in means.items()}
    trials = tuple(Trial("p", (one,), a_score(mean), None, None, mean >= 5) for one, mean in sizes.items())
    assert Margins("p", a_score(9), 5, trials).words(name) == words


def test_a_policy_fails_where_it_violates_a_hard_requirement() -> None:
    rail = Requirement("rail", "abs(position) <= 0.5")
    task = replace(CARTPOLE, requirements=(rail,))
    (own,) = margins({"p": policy(STEADY, task)}, task, [(perturbation("sensor_bias", 2, 2),)], episodes=10)
    assert not own.trials[0].holds
    assert "violates rail" in own.words("sensor_bias")
    header, rows = table([own])
    assert "violations" in header
    assert "rail " in rows[0][header.index("violations")]
    assert any(one.strip().startswith("requirement rail") for one in lines([own]))
    never = replace(task, requirements=(Requirement("never", "position > 5"),))
    (own,) = margins({"p": policy(STEADY, never)}, never, perturbations_for(never, ["action_delay=1"]), episodes=4)
    assert lines([own])[0].endswith("; fails without perturbations, too")


def test_a_grid_combines_two_perturbations_and_the_nominal_sizes() -> None:
    entries = perturbations_for(CARTPOLE, ["action_delay=1,2", "sensor_noise=0.1"], grid=True)
    sizes = [tuple(one.low for one in entry) for entry in entries]
    assert sizes == [(0, 0), (0, 0.1), (1, 0), (1, 0.1), (2, 0), (2, 0.1)]
    (own,) = margins({"p": policy(STEADY)}, CARTPOLE, entries, episodes=4)
    assert own.trials[0].score.mean == own.nominal.mean
    holding = sum(trial.holds for trial in own.trials)
    assert own.words("action_delay and sensor_noise") == f"holds in {holding} of 6 combinations"
    figure = picture([own])
    panel, bar = figure.axes
    assert len(panel.texts) == 6
    figure.draw_without_rendering()
    for label in (panel.yaxis.label, bar.yaxis.label):
        assert label.get_window_extent().height <= figure.bbox.height, label


def test_all_perturbations_that_fit_are_tried_by_default() -> None:
    kinds = {entry[0].name for entry in perturbations_for(CARTPOLE)}
    assert kinds == {"action_delay", "random_start", "sensor_bias", "sensor_dropout", "sensor_noise", "quantisation"}
    stated = replace(load_task("pendulum"), perturb=(Perturbation("kwargs.g", 8, 12),))
    tried = [entry[0].low for entry in perturbations_for(stated) if entry[0].name == "kwargs.g"]
    assert tried == [8, 10, 12]


# --- commands --------------------------------------------------------------------------------------------------------


def test_the_command_prints_margins_and_writes_files(line: Line, workplace: Path) -> None:
    (workplace / "steady.txt").write_text("torque = -10*sin - 2*rate\n")
    (workplace / "idle.txt").write_text("torque = 0\n")
    words = ("robust", "steady.txt", "--against", "idle.txt", "--task", "pendulum", "--episodes", 5)
    few = ("--perturb", "action_delay=1,4", "--perturb", "actuator_gain=0.5")
    outputs = [word for name in ("r.html", "r.md", "r.json", "r.PNG") for word in ("-o", name)]
    done = line(*words, *few, *outputs)
    assert done.code == 0, done.err
    steady, idle = json.loads((workplace / "r.json").read_text())["policies"]
    assert (steady["policy"], idle["policy"]) == ("steady", "idle.txt")
    assert f"  action_delay: {steady['margins']['action_delay']}\n" in done.out
    assert "| action_delay | 4 | steady |" in (workplace / "r.md").read_text()
    assert (workplace / "r.PNG").read_bytes().startswith(b"\x89PNG")
    page = (workplace / "r.html").read_text()
    assert "Robustness on pendulum" in page
    assert "number of steps after which a decision acts" in page
    # The worst episodes are drawn at the hardest size of each perturbation.
    *delayed, _ = steady["trials"]
    hardest = min(delayed, key=lambda trial: trial["score"]["mean"])["perturbations"][0]["low"]
    drawn = re.findall(r"<summary>(action_delay=\d|actuator_gain=0.5)</summary>", page)
    assert drawn[:2] == [f"action_delay={hardest:g}", "actuator_gain=0.5"]
    grid = line(*words, *few, "--grid", "-o", "g.md")
    assert (grid.code, "combinations" in grid.out) == (0, True)


def test_the_command_refuses_what_makes_no_sense(line: Line, workplace: Path) -> None:
    (workplace / "steady.txt").write_text(STEADY)
    for more, said in (
        ("--perturb wind", "write its sizes"),
        ("--perturb kwargs.g", "write its sizes, as in kwargs.g=0.8,1.2"),
        ("--perturb mass=heavy", "write numbers after `=`"),
        ("--perturb action_delay --grid", "--grid combines two perturbations"),
        ("-o r.pdf", "r.pdf"),
    ):
        refused = line("robust", "steady.txt", "--task", "cartpole", "--episodes", 2, *more.split())
        assert refused.code != 0
        assert said in refused.err
        assert "Traceback" not in refused.err


def test_a_run_is_perturbed_recorded_resumed_and_scored_so(line: Line, workplace: Path) -> None:
    options = ("--perturb", "action_delay=0..4", "--perturb", "sensor_noise=0.1")
    done = line("run", "cartpole", *SMALL, *options)
    assert done.code == 0, done.err
    assert "perturbed in each episode: action_delay=0..4, sensor_noise=0.1" in done.out
    assert "\nwith action_delay" not in done.out  # it is perturbed already
    folder = the_run(workplace / "results")
    assert summary_of(folder)["perturbed"] is None
    done = line("resume", folder, "--iterations", 2)
    assert done.code == 0, done.err
    scores = set()
    for options, words in (
        ((), "cartpole with action_delay=0..4, sensor_noise=0.1"),
        (("--perturb", "none"), "cartpole"),
        (("--perturb", "action_delay=9"), "cartpole with action_delay=9"),
    ):
        name, _, score = line("eval", folder, "--episodes", 30, *options).out.partition(": ")
        assert name == words
        scores.add(score.split()[0])
    assert len(scores) == 3
    refused = line("run", "cartpole", *SMALL, "--perturb", "mass=1.1")
    assert refused.code == 2
    assert "Error: perturbation mass needs a MuJoCo environment; for other environments perturb" in refused.err


@pytest.mark.perturbs
def test_a_run_ends_with_a_line_about_fragility(line: Line, workplace: Path) -> None:
    (workplace / "short.toml").write_text(f"max_steps = 40\n{(CHECKOUT / 'envs' / 'cartpole.toml').read_text()}")
    done = line("run", "short.toml", *SMALL)
    assert done.code == 0, done.err
    (fragile,) = (one for one in done.out.splitlines() if one.startswith("with action_delay=1, sensor_noise=0.02: "))
    summary = summary_of(the_run(workplace / "results"))
    assert summary["perturbed_by"] == ["action_delay=1", "sensor_noise=0.02"]
    assert fragile.split(": ")[1].startswith(f"{summary['perturbed']['mean']:.4g}")
    assert fragile.endswith(f"({summary['final']['mean']:.4g} without)")
    left_out = line("run", "short.toml", *SMALL, "--seed", 2, "--set", "fragility=false")
    assert (left_out.code, "with action_delay" in left_out.out) == (0, False)


@pytest.mark.perturbs
def test_a_page_shows_fragility_and_robustness(line: Line, workplace: Path) -> None:
    few = ("--iterations", 1, "--episodes", 5, "--refine", "none", "--jobs", 1)  # few perturbations fit this task
    assert line("run", "frozenlake", *few).code == 0
    done = line("report", the_run(workplace / "results"), "--no-film", "--robust", "-o", "page.html")
    assert done.code == 0, done.err
    page = (workplace / "page.html").read_text()
    assert "with action_delay=1" in page
    assert 'id="robustness"' in page


def test_prompts_describe_perturbations(line: Line, workplace: Path) -> None:
    source = (CHECKOUT / "envs" / "cartpole.toml").read_text()
    (workplace / "mine.toml").write_text(f"{source}\n[perturb]\naction_delay = [0, 2]\n")
    done = line("prompt", "mine.toml")
    assert done.code == 0, done.err
    assert "The environment differs from what is described above; sizes are drawn anew for each episode" in done.out
    assert "- action_delay 0 to 2 (number of steps after which a decision acts" in done.out
    assert "The environment differs" not in line("prompt", "cartpole").out
