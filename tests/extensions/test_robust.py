"""Scores under perturbations: `eval --robust`, runs with perturbations, and the line about fragility."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import CHECKOUT, Line, summary_of, the_run

from policygen.extensions.robust import lines, margins, sizes_for
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from policygen.tasks.task import Perturbation, Requirement, Task, read_perturbation

CARTPOLE = load_task("cartpole")
STEADY = "left = 0\nright = 10*angle + 3*spin + 0.5*velocity + 0.3*position\n"
SMALL = ("--iterations", 1, "--episodes", 5, "--set", "final_episodes=20", "--policy", "equations", "--jobs", 1)


def policy(text: str, task: Task = CARTPOLE) -> Policy:
    found = parse(text, task, "linear").policy
    assert found is not None
    return found


def tried(*texts: str) -> dict[str, list[float]]:
    return sizes_for(CARTPOLE, list(map(read_perturbation, texts)))


def test_a_policy_works_while_it_counts_as_solved_or_keeps_its_gain_over_random_actions() -> None:
    steady = margins(policy(STEADY), CARTPOLE, tried("action_delay=1..9"), episodes=10, seed=0)
    assert (steady.nominal.mean, steady.threshold) == (500, 475)
    assert [(one.size, one.works) for one in steady.trials["action_delay"]] == [(1, True), (5, False), (9, False)]
    *_, row = lines(steady)
    assert row.split("  ")[0] == "action_delay (steps)"
    assert f"5 ({steady.trials['action_delay'][1].score.mean:.4g}), 9 (" in row
    hasty = margins(policy("left = 0\nright = angle\n"), CARTPOLE, {}, episodes=10, seed=0)
    assert 0.85 * hasty.nominal.mean < hasty.threshold < hasty.nominal.mean < 475


def test_a_policy_fails_where_it_violates_a_hard_requirement() -> None:
    task = replace(CARTPOLE, requirements=(Requirement("rail", "abs(position) <= 1.5"),))
    found = margins(policy(STEADY, task), task, tried("sensor_bias.position=2"), episodes=10, seed=0)
    assert not found.trials["sensor_bias.position"][0].works
    said = "\n".join(lines(found))
    assert "requirement rail: violated in 0 of 10" in said
    assert "rail in 10 of 10)" in said


def test_all_perturbations_that_fit_are_tried_by_default() -> None:
    kinds = ["action_delay", "random_start", "sensor_bias", "sensor_dropout", "sensor_noise"]
    assert sorted(sizes_for(CARTPOLE)) == kinds
    stated = replace(load_task("pendulum"), perturb=(Perturbation("kwargs.g", 8, 12),))
    assert sizes_for(stated)["kwargs.g"] == [8, 10, 12]


def test_the_command_prints_the_table_and_draws_a_picture(line: Line, workplace: Path) -> None:
    (workplace / "steady.txt").write_text("torque = -10*sin - 2*rate\n")
    words = ("eval", "steady.txt", "--task", "pendulum", "--episodes", 2)
    few = ("--perturb", "action_delay=1..4", "--perturb", "sensor_noise=0.1")
    done = line(*words, "--robust", *few, "-o", "r.PNG")
    assert done.code == 0, done.err
    assert "sensor_noise (standard deviations)" in done.out
    assert "standard deviations over 1,000 steps with random actions: cos 0.599, sin" in done.out
    assert (workplace / "r.PNG").read_bytes().startswith(b"\x89PNG")
    for more, said in (("-o r.png", "add --robust"), ("--robust --json", "leave out"), ("--robust -o r.doc", "r.doc")):
        refused = line(*words, *more.split())
        assert refused.code == 2
        assert said in refused.err


def test_a_run_is_perturbed_recorded_resumed_and_scored_so(line: Line, workplace: Path) -> None:
    (workplace / "lean.txt").write_text("left = -angle - spin\nright = angle + spin")
    options = ("--perturb", "action_delay=0..4", "--perturb", "sensor_noise=0.1", "--start", "lean.txt")
    done = line("run", "cartpole", *SMALL, *options)
    assert done.code == 0, done.err
    assert "perturbed in each episode: action_delay=0..4 steps, sensor_noise=0.1 standard deviations" in done.out
    assert "\nwith action_delay" not in done.out  # it is perturbed already
    folder = the_run(workplace / "results")
    assert summary_of(folder)["perturbed"] is None
    done = line("resume", folder, "--iterations", 2)
    assert done.code == 0, done.err
    scores = set()
    for options, words in (
        ((), "cartpole with action_delay=0..4 steps, sensor_noise=0.1 standard deviations"),
        (("--perturb", "none"), "cartpole"),
        (("--perturb", "action_delay=9"), "cartpole with action_delay=9 steps"),
    ):
        name, _, score = line("eval", folder, "--episodes", 30, *options).out.partition(": ")
        assert name == words
        scores.add(score.split()[2])
    assert len(scores) == 3
    told = json.loads(line("eval", folder / "best.json", "--episodes", 2, "--json").out)
    assert told["perturb"] == ["action_delay=0..4", "sensor_noise=0.1"]
    refused = line("run", "cartpole", *SMALL, "--perturb", "mass=1.1")
    assert refused.code == 2
    assert "Error: perturbation mass needs a MuJoCo environment; in others, perturb" in refused.err


@pytest.mark.perturbs
def test_a_run_ends_with_a_line_about_fragility(line: Line, workplace: Path) -> None:
    (workplace / "short.toml").write_text(f"max_steps = 40\n{(CHECKOUT / 'envs' / 'cartpole.toml').read_text()}")
    done = line("run", "short.toml", *SMALL)
    assert done.code == 0, done.err
    (fragile,) = (
        one for one in done.out.splitlines() if one.startswith("with action_delay=1 step, sensor_noise=0.02 ")
    )
    summary = summary_of(the_run(workplace / "results"))
    assert summary["perturbed_by"] == ["action_delay=1 step", "sensor_noise=0.02 standard deviations"]
    assert fragile.split(": ")[1].startswith(f"{summary['perturbed']['mean']:.4g}")
    assert f"\nwithout perturbations: {summary['final']['mean']:.4g} mean return" in done.out
    left_out = line("run", "short.toml", *SMALL, "--seed", 2, "--set", "fragility=false")
    assert (left_out.code, "with action_delay" in left_out.out) == (0, False)


def test_prompts_describe_perturbations(line: Line, workplace: Path) -> None:
    source = (CHECKOUT / "envs" / "cartpole.toml").read_text()
    (workplace / "mine.toml").write_text(
        f"{source}\n[perturb]\naction_delay = [0, 2]\nsensor_noise.position = [0, 0.002]\n"
    )
    done = line("prompt", "mine.toml")
    assert done.code == 0, done.err
    assert (
        "The environment differs from the description above, by amounts that are drawn anew for each episode"
        in done.out
    )
    assert "- action_delay 0 to 2 (number of steps by which actions are delayed" in done.out
    noise = "standard deviation of normal noise on each observation, in the unit of position"
    assert f"- sensor_noise.position 0 to 0.002 ({noise})" in done.out
    assert "The environment differs" not in line("prompt", "cartpole").out
