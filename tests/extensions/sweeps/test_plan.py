"""What a sweep is to run: seeds, cells, keys, and the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Line
from sweeping import plan_of

from policygen.errors import LogbookError, UsageError
from policygen.extensions.sweeps.plan import (
    SweepLimits,
    SweepPlan,
    cell_folders,
    cells_of,
    extend,
    is_sweep,
    product_of,
    protocols,
    read_plan,
    read_seeds,
    write_plan,
)
from policygen.extensions.sweeps.progress import REPLY_TOKENS
from policygen.extensions.sweeps.worker import config_of
from policygen.llm import LLMOptions
from policygen.llm.prices import cost

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
    cells = cells_of(plan_of("nim", "quick", "nim", llms=llms, templates=templates, seeds=[4, 9]))
    assert len(cells) == 3 * 2 * 2 * 2
    assert [cell.entry.task for cell in cells[:3]] == ["nim", "cartpole", "frozenlake"]
    assert cells[0].entry.suite == ""  # named by itself first
    assert cells[1].entry.suite == "quick"
    assert {cell.seed for cell in cells[:12]} == {4}
    assert cells[0].key == "nim-builtin-improve-s4"
    assert cells[-1].key == "frozenlake-openai-gpt-5-mini-mine-s9"


def test_a_task_of_a_suite_is_run_under_its_protocol() -> None:
    whole = plan_of("props15", seeds=[100])
    some = plan_of("props15:cartpole", "props15:maze", seeds=[101])
    assert [cell.key for cell in cells_of(some)] == ["cartpole-builtin-s101", "maze-builtin-s101"]
    assert cells_of(some)[0].entry in whole.products[0].tasks
    assert len(cells_of(extend(whole, some, Path("x")))) == 17
    with pytest.raises(UsageError, match="props15:taxi: suite props15 has no task `taxi`; it has mountaincar-"):
        plan_of("props15:taxi")
    assert plan_of("module:My-v0").products[0].tasks[0].task == "module:My-v0"


def test_what_a_suite_brings_is_said_without_what_the_user_replaces() -> None:
    products = tuple(product_of([name], [], [], [1]) for name in ("quick", "props15", "nim"))
    assert protocols(SweepPlan(products=products, settings=("iterations=2",))) == [
        "suite quick: episodes 10, final_episodes 20",
        "suite props15: episodes 20, final_episodes 100, max_episodes 8000; max_steps and policy task by task "
        "(policygen tasks props15)",
    ]


def test_keys_name_folders_and_differ_wherever_cells_do() -> None:
    llms = ["compatible:a/b", "compatible:a-b", "compatible:a_b", "compatible:a:b", "replay:../x", "replay:x"]
    cells = cells_of(plan_of("mod:My-v0", "My-v0", llms=llms, templates=["t.j2", "a/t.j2"]))
    keys = [cell.key for cell in cells]
    assert len(set(keys)) == len(cells) == 24
    assert all(Path(key).name == key and not key.startswith(".") for key in keys)


def test_a_manifest_comes_back_as_it_was_written() -> None:
    asked = plan_of("props15", settings=("refine=auto",), limits=SweepLimits(max_usd=2.5))
    assert not is_sweep(Path())
    with pytest.raises(LogbookError, match=r"nowhere is not a sweep folder \(it has no sweep.toml\)"):
        read_plan(Path("nowhere"))
    write_plan(Path(), asked)
    assert is_sweep(Path())
    assert read_plan(Path()) == asked
    first = cells_of(asked)[0]
    assert (first.entry.run["max_episodes"], first.entry.max_steps) == (8000, 999)
    Path(first.key).mkdir()
    Path(first.key, "config.toml").touch()
    assert cell_folders(Path()) == [Path(first.key)]


def test_a_sweep_asked_for_again_has_all_cells_and_the_newer_limits() -> None:
    first = plan_of("nim", seeds=[0, 1], limits=SweepLimits(max_calls=5, max_usd=1))
    more = extend(first, plan_of("nim", "taxi", seeds=[1, 2, 3], limits=SweepLimits(max_usd=3)), Path("x"))
    assert [cell.key for cell in cells_of(more)] == [
        *("nim-builtin-s0", "nim-builtin-s1", "taxi-builtin-s1"),
        *("nim-builtin-s2", "taxi-builtin-s2", "nim-builtin-s3", "taxi-builtin-s3"),
    ]
    assert more.limits == SweepLimits(max_calls=5, max_usd=3)
    assert extend(first, first, Path("x")) == first
    with pytest.raises(UsageError, match=r"x is a sweep with other settings \(none\); choose another --out"):
        extend(first, plan_of("nim", settings=("refine=cma",)), Path("x"))
    with pytest.raises(UsageError, match="with its own settings already, not with the settings of suite quick"):
        cells_of(extend(first, plan_of("quick", seeds=[0]), Path("x")))


GOOD = """settings = []
[[products]]
llms = ["builtin"]
templates = [""]
seeds = [1]
[[products.tasks]]
task = "nim"
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("products = [", "is damaged"),
        ("products = []", "is damaged: `products`"),
        ('format = "policygen-sweep/7"', "written by a later version"),
        ("seeds = 3", "is damaged: .*unknown key `seeds`"),
        (GOOD.replace("[]", '["base_url=http://far.example"]'), "its settings state base_url"),
        (
            GOOD.replace("[[products.tasks]]", 'grid = [["base_url=http://x"]]\n[[products.tasks]]'),
            "its settings state base_url",
        ),
        (GOOD + 'run = { base_url = "http://far.example" }', "a suite may not state base_url"),
    ],
)
def test_a_damaged_manifest_is_one_sentence(text: str, sentence: str) -> None:
    Path("sweep.toml").write_text(GOOD)
    assert [cell.key for cell in cells_of(read_plan(Path()))] == ["nim-builtin-s1"]
    Path("sweep.toml").write_text(text)
    with pytest.raises(LogbookError, match=sentence) as caught:
        read_plan(Path())
    assert "\n" not in str(caught.value)


def test_a_grid_is_every_combination_of_its_values() -> None:
    product = product_of(["nim"], [], [], [0], ["refine=none,cma:20", "episodes=5,10,5"])
    assert product.grid == tuple(
        (refine, episodes) for refine in ("refine=none", "refine=cma:20") for episodes in ("episodes=5", "episodes=10")
    )
    cells = cells_of(SweepPlan(products=(product,)))
    assert len({cell.key for cell in cells}) == 4
    config = config_of(cells[3], ("iterations=2",))[1]
    assert (config.iterations, config.episodes, str(config.refine)) == (2, 10, "cma:20")
    write_plan(Path(), SweepPlan(products=(product,)))
    assert cells_of(read_plan(Path())) == cells


@pytest.mark.parametrize("text", ["refine", "refine=", "refine=none,", "=a,b", "llm=a,b", "seed=1,2", "extra_body=1,2"])
def test_another_grid_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--grid [^\n]*$"):
        product_of(["nim"], [], [], [0], [text])


def test_a_dry_run_says_what_a_sweep_takes_and_begins_nothing(line: Line) -> None:
    arguments = "cartpole nim --llm openai:gpt-5-mini --llm builtin --grid refine=none,cma:50 --seeds 3 --iterations 4"
    said = line("sweep", *arguments.split(), "--set", "warmup_episodes=10", "--set", "final_episodes=30", "--dry-run")
    assert said.code == 0
    # 12 runs of each refinement; four proposals, each scored and validated on 20 episodes.
    most = 12 * (10 + 4 * 40 + 30) + 12 * (10 + 4 * (40 + 50) + 30)
    assert f"24 runs, at most {most:,} episodes" in said.out
    assert "48 requests to openai:gpt-5-mini" in said.out
    price = cost(LLMOptions(), "openai:gpt-5-mini", "gpt-5-mini", 6_000, REPLY_TOKENS)
    assert price is not None
    assert f"about ${48 * price:.2f} with" in said.out
    assert list(Path().iterdir()) == []
