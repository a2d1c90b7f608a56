"""Hostile TOML: task files, settings and suites of strangers end in a sentence, or are a task like any other."""

from __future__ import annotations

import random
import tomllib
import warnings
from pathlib import Path

import pytest
import tomli_w
from attack.test_damage import exchanged
from attacks import Tallies, amount
from support import CHECKOUT, Line, the_run

import policygen
from policygen.errors import UsageError
from policygen.extensions.sweeps.plan import load_suite
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.tasks.load import task_from_file

pytestmark = pytest.mark.usefixtures("workplace")

LAKE = 'name = "lake"\ngym_id = "FrozenLake-v1"\n'
TEXTS = {
    "nested lists": "a = " + "[" * 20_000,
    "nested tables": "a = " + "{a=" * 5_000 + "1" + "}" * 5_000,
    "a key of very many parts": ".".join(["a"] * 400_000) + " = 1",
    "a key of quoted parts": " . ".join(['"a"'] * 100_000) + " = 1",
    "a header of very many parts": "[" + ".".join(["a"] * 400_000) + "]",
    "many digits": "max_steps = " + "9" * 5_000,
    "half a character": b"name = '\xff\xfe'",
    "megabytes": "#" * 2**21,
    "a table twice": "[run]\n[run]\n",
    "steps beyond counting": LAKE + "max_steps = 99999999999999999999",
    "no number to solve": LAKE + "solved = nan",
    "no number at best": LAKE + "optimum = {value = inf, source = 'a'}",
    "no number as a setting": LAKE + "[run]\nstep_timeout = inf",
    "episodes beyond counting": LAKE + "[run]\nfinal_episodes = 1_000_000_000_000_000",
    "processes beyond counting": LAKE + "[run]\njobs = 1_000_000",
    "a seed beyond counting": LAKE + f"[run]\nseed = {2**70}",
    "time beyond counting": LAKE + "[run]\ntimeout_seconds = 1e300",
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_hostile_text_is_a_sentence(what: str, tally: Tallies) -> None:
    held = tally("a hostile task, settings or suite file gives an error message")
    text = TEXTS[what]
    path = Path("hostile.toml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    cartpole = policygen.load_task("cartpole")
    for read in (
        lambda: effective_config(task_from_file(path), "hostile.toml"),
        lambda: effective_config(cartpole, "cartpole", file=path),
        lambda: load_suite(str(path)),
    ):
        with held.one():
            with pytest.raises(UsageError) as caught:
                read()
            assert "hostile" in str(caught.value) or "task lake, [run]" in str(caught.value)
            assert len(str(caught.value)) < 1_000


def test_a_mutated_task_file_ends_in_a_sentence(tally: Tallies, tmp_path: Path, line: Line) -> None:
    held = tally("a mutated task file gives an error message or is a task")
    shipped = [path for path in sorted((CHECKOUT / "envs").glob("*.toml")) if "gym_id" in path.read_text()]
    for seed in range(amount(24, 300)):
        rng = random.Random(seed)
        chosen = rng.choice(shipped)
        changed = tomllib.loads(chosen.read_text())
        try:
            for _ in range(rng.choice((1, 1, 2, 4))):
                changed = exchanged(changed, rng)
            text = tomli_w.dumps(changed if isinstance(changed, dict) else {})
        except (TypeError, ValueError, RecursionError):  # what TOML cannot say, or its writer cannot nest
            continue
        path = tmp_path / "mutated.toml"
        path.write_bytes(text.encode(errors="replace"))
        with held.each(f"seed {seed}: {chosen.name}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = line("tasks", path)
            assert "\x1b" not in said.err
            assert bool(said.err.strip()) == bool(said.code)
            assert len(said.err) < 4_000
    held.check()


@pytest.mark.draws
def test_a_name_that_is_a_formula_is_shown_as_it_is(line: Line) -> None:
    name = "=1+$x_{$ \\input{a} <script>"
    Path("lake.toml").write_text(f"name = '{name}'\ngym_id = 'FrozenLake-v1'\n")
    Path("start.txt").write_text("action_0 = 0\naction_1 = state - 2\naction_2 = 0\naction_3 = 0\n")  # has a map
    quick = ("--start", "start.txt", "--iterations", 1, "--set", "warmup_episodes=2", "--jobs", 1)
    assert line("run", "lake.toml", *quick).code == 0
    folder = the_run(Path("results"))
    assert Logbook(folder).task().name == name
    assert (folder / "learning_curve.png").exists()
    assert line("show", folder, "-o", "policy.svg").code == 0
    assert line("plot", folder, "-o", "curves.svg").code == 0
    for file in ("policy.svg", "curves.svg"):
        assert "<script>" not in Path(file).read_text()
