"""What a sweep is to run: seeds, cells, keys, and the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Line

from policygen.errors import LogbookError, UsageError
from policygen.extensions.sweeps.plan import (
    add_to_manifest,
    cell_folders,
    is_sweep,
    make_plan,
    read_plan,
    read_seeds,
)
from policygen.extensions.sweeps.worker import config_of

pytestmark = pytest.mark.usefixtures("workplace")


def test_seeds_are_a_number_a_range_or_a_list() -> None:
    texts = {"3": (0, 1, 2), "100..100": (100,), "7,": (7,), "5, 3,5": (5, 3), "1,10..12": (1, 10, 11, 12)}
    assert {text: read_seeds(text) for text in texts} == texts


@pytest.mark.parametrize("text", ["", "0", "many", "-1", "3..1", "1;2", "1..", "0..99999999", "1000000", ",", "1.5"])
def test_other_seeds_are_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--seeds [^\n]*$"):
        read_seeds(text)


def test_cells_are_the_product_with_all_tasks_under_the_first_seed_first() -> None:
    llms, templates = ["builtin", "openai:gpt-5-mini"], ["improve", "mine"]
    cells = make_plan(["nim", "quick", "nim"], llms, templates, [4, 9]).cells
    assert len(cells) == 3 * 2 * 2 * 2
    assert [cell.task for cell in cells[:3]] == ["nim", "cartpole", "frozenlake"]
    assert cells[0].suite == ""  # named by itself first
    assert cells[1].suite == "quick"
    assert {cell.seed for cell in cells[:12]} == {4}
    assert cells[0].key == "nim-builtin-improve-s4"
    assert cells[-1].key == "frozenlake-openai-gpt-5-mini-mine-s9"


def test_a_task_of_a_suite_is_run_under_its_protocol() -> None:
    some = make_plan(["props15:cartpole", "props15:maze"], seeds=[101]).cells
    assert [cell.key for cell in some] == ["cartpole-builtin-s101", "maze-builtin-s101"]
    assert some[0] in make_plan(["props15"], seeds=[101]).cells
    with pytest.raises(UsageError, match="props15:taxi: suite props15 has no task `taxi`; it has mountaincar-"):
        make_plan(["props15:taxi"])
    assert make_plan(["module:My-v0"]).cells[0].task == "module:My-v0"


def test_a_manifest_comes_back_as_it_was_written_and_only_grows() -> None:
    asked = make_plan(["props15"], settings=("refine=auto",))
    assert not is_sweep(Path())
    with pytest.raises(LogbookError, match=r"nowhere is not a sweep folder \(it has no sweep.toml\)"):
        read_plan(Path("nowhere"))
    add_to_manifest(Path(), asked)
    assert is_sweep(Path())
    assert read_plan(Path()) == asked
    first = asked.cells[0]
    assert first.protocol["max_episodes"] == 8000
    Path(first.key).mkdir()
    Path(first.key, "config.toml").touch()
    assert cell_folders(Path()) == [Path(first.key)]
    add_to_manifest(Path(), make_plan(["taxi"], seeds=[0, 1], settings=("refine=auto",)))
    keys = [cell.key for cell in read_plan(Path()).cells]
    assert keys == [*(cell.key for cell in asked.cells), "taxi-builtin-s0", "taxi-builtin-s1"]
    for other in (make_plan(["taxi"]), make_plan(["cartpole"], settings=("refine=auto",))):  # without the protocol
        with pytest.raises(UsageError, match=r"is a sweep with other settings \(refine=auto\); choose another --out"):
            add_to_manifest(Path(), other)


GOOD = 'settings = []\n[[cells]]\ntask = "nim"\nllm = "builtin"\nseed = 1\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cells = [", "is damaged"),
        ("cells = []", "is damaged: `cells`"),
        ('format = "policygen-sweep/7"', "written by a later version"),
        ("[[products]]", "is damaged: .*unknown key `products`"),
        (GOOD.replace("seed = 1", "seed = 1.5"), "is damaged: `cells.0.seed`"),
    ],
)
def test_a_damaged_manifest_is_one_sentence(text: str, sentence: str) -> None:
    Path("sweep.toml").write_text(GOOD)
    assert [cell.key for cell in read_plan(Path()).cells] == ["nim-builtin-s1"]
    Path("sweep.toml").write_text(text)
    with pytest.raises(LogbookError, match=sentence) as caught:
        read_plan(Path())
    assert "\n" not in str(caught.value)


def test_a_grid_is_every_combination_of_its_values() -> None:
    plan = make_plan(["nim"], grid=["refine=none,cma:20", "episodes=5,10,5"])
    assert [cell.settings for cell in plan.cells] == [
        (refine, episodes) for refine in ("refine=none", "refine=cma:20") for episodes in ("episodes=5", "episodes=10")
    ]
    assert len({cell.key for cell in plan.cells}) == 4
    config = config_of(plan.cells[3], ("iterations=2",))[1]
    assert (config.iterations, config.episodes, str(config.refine)) == (2, 10, "cma:20")


@pytest.mark.parametrize("text", ["refine", "refine=", "refine=none,", "=a,b", "llm=a,b", "seed=1,2", "extra_body=1,2"])
def test_another_grid_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--grid [^\n]*$"):
        make_plan(["nim"], grid=[text])


def test_a_damaged_manifest_stops_no_command_on_several_folders(line: Line) -> None:
    run = ("run", "frozenlake", "--iterations", 1, "--set", "final_episodes=5", "--refine", "none")
    assert line(*run).code == 0
    damaged = Path("results/damaged")
    damaged.mkdir()
    (damaged / "sweep.toml").write_text('"a!".' * 48_000 + "b = 1\n")
    folders = sorted(Path("results").iterdir())
    for words in (("compare", *folders), ("plot", *folders)):
        said = line(*words)
        assert said.code == 0, said.err
        assert f"Warning: {damaged} is left out: {damaged / 'sweep.toml'} is damaged: it is not valid TOML" in said.err
    alone = line("compare", damaged)
    assert alone.code != 0
    assert "a key has more than 30 parts; restore it from a copy, or delete it" in alone.err
