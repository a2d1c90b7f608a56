"""The notebooks run from top to bottom, with and without runs to read.

It tests `extensions.notebook`.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from policygen.runs.config import effective_config
from policygen.search.run import start
from policygen.tasks.load import load_task

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
_SPEC = importlib.util.spec_from_file_location("execute", NOTEBOOKS / "execute.py")
assert _SPEC is not None
assert _SPEC.loader is not None
execute = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(execute)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all notebooks: what each would import takes longer than most of them."""
    manager = KernelManager()
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel()


Executed = Callable[..., nbformat.NotebookNode]
FRESH = f"""%reset -f
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}] * ({str(Path(__file__).parent)!r} not in sys.path)
import forks, os, subprocess, tempfile
os.makedirs({{scratch!r}})
os.makedirs({{folder!r}})
os.chdir({{folder!r}})
tempfile.tempdir = {{scratch!r}}
subprocess.run = forks.run_words  # commands begin at once
from policygen.search import runner
runner.FRAGILITY = ()  # no cell shows the score under perturbations
del forks, os, subprocess, sys, tempfile, runner"""


@pytest.fixture
def executed(kernel: KernelManager, tmp_path: Path) -> Executed:
    """Execute a notebook in a folder, all of it or up to a cell, with nothing that another has defined."""

    def one(name: str, last: str | None = None) -> nbformat.NotebookNode:
        folder, scratch = tmp_path / "notebooks", tmp_path / "scratch"
        begin = nbformat.v4.new_code_cell(FRESH.format(folder=str(folder), scratch=str(scratch)))
        NotebookClient(nbformat.v4.new_notebook(cells=[begin]), km=kernel).execute()
        notebook = execute.executed(NOTEBOOKS / f"{name}.ipynb", folder, last, kernel)
        kept = {cell.id: kinds_of(cell) for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells}
        assert {cell.id: kinds_of(cell) for cell in notebook.cells}.items() <= kept.items(), "run: make notebooks"
        return notebook

    return one


def kinds_of(cell: nbformat.NotebookNode) -> set[str]:
    """The kinds of output of a cell: printed text, pictures, tables, ..."""
    outputs = cell.get("outputs", [])
    return {kind for output in outputs for kind in output.get("data", {output.get("name", output.output_type): ""})}


def texts(notebook: nbformat.NotebookNode, cell_id: str) -> str:
    """All that a cell printed or returned, as plain text."""
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return "\n".join(
        output.text if output.output_type == "stream" else output.data["text/plain"] for output in cell.outputs
    )


def pictures(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


HOSTILE = """import dataclasses, policygen
task = dataclasses.replace(policygen.load_task("cartpole"), name="<b>pole</b>")
start = policygen.parse("left = 0  # <script>alert(1)</script>\\nright = 10*angle + 2*spin", task)
policygen.run(task, policy="linear", start=start, iterations=1, episodes=4, final_episodes=4, out={out!r})"""


def test_a_run_shows_its_progress_and_its_result(kernel: KernelManager, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(text) for text in (HOSTILE.format(out=str(tmp_path)), "start")]
    NotebookClient(nbformat.v4.new_notebook(cells=cells), km=kernel, timeout=120).execute()
    progress, result = (output.data for output in cells[0].outputs)  # one table, updated in its place
    assert "<tr><th>done</th><td style='text-align: left'>1 of 1</td></tr>" in progress["text/html"]
    assert re.search(r"^best +attempt \d: ", progress["text/plain"], re.MULTILINE)
    (policy,) = (output.data for output in cells[1].outputs)
    for page in (result["text/html"], policy["text/html"]):
        assert "for &lt;b&gt;pole&lt;/b&gt;, 2 lines of text" in page
        assert "left = 0  # &lt;script&gt;alert(1)&lt;/script&gt;\nright = 10*angle" in page
        assert set(re.findall(r"<(\w+)", page)) <= {"pre", "img", "br"}
    assert re.search(r"final score: [\d.]+ \[[\d.]+, [\d.]+\] mean return over 4 fresh episodes", result["text/html"])
    (curve,) = re.findall(r'src="data:image/svg\+xml;base64,([\w+/=]+)"', result["text/html"])
    assert "</svg>" in base64.b64decode(curve).decode()


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_with_what_they_show(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run: make notebooks"
    shown = [cell for cell in code if cell.outputs]
    assert len(shown) >= len(code) - 1
    assert not {"stderr", "error"} & set().union(*map(kinds_of, shown))
    text = path.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert not re.search(rf"{tempfile.gettempdir()}/|{Path.home()}/", text)  # of whoever executed it


# What cells of guides show, as regular expressions, and how many pictures there are.
GUIDES: dict[str, tuple[int, dict[str, str]]] = {
    "tuning": (1, {"own": "(?s)cma over 3 constants.*cma over 3 constants", "ablate": r"- angle \[rad\]"}),
    "templates": (
        1,
        {
            "own": "(?s)not shipped: templates/short.j2.*spin has 6 bins, from below -0.6 to 0.6 and above",
            "mistakes": r"\AError: templates/wrong.j2, line 2: ",
            "budget": "(?m)^Error: the prompt has about ",
            "linear": r"(?m)^0( -?[\d.]+){4} (left|right) 1$",
        },
    ),
    "rewards": (
        0,
        {
            "objective": "(?s)for its objective \\(.* for its objective \\(",
            "shape": "(?s)Attempt 1, the best policy:.*- 100\\*energy: .*- 100\\*energy: ",
            "mistakes": "(?s)line 4: .*line 4: .*line 4: ",
            "train-reward": r"\A-0\.100\n0\.\d+\n1\.000\n\Z",
        },
    ),
}


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_shows_what_it_tells(name: str, executed: Executed) -> None:
    notebook = executed(name)
    count, shown = GUIDES[name]
    for cell, pattern in shown.items():
        assert re.search(pattern, texts(notebook, cell)), cell
    assert pictures(notebook) == count
    if name == "rewards":
        untold, told = map(float, re.findall(r"([\d.]+) \(exact\)", texts(notebook, "potential")))
        assert told > untold + 0.2


def test_the_guide_to_a_plant_of_ones_own(executed: Executed) -> None:
    notebook = executed("own_plant")
    assert texts(notebook, "run").count("in a plant fitted to ") == 2
    assert "next rate = " in texts(notebook, "show")
    # The numbers of the environment, found from rough ones.
    assert "let pushed = rate + fixed(0.02)*(20*voltage - 4*rate)" in texts(notebook, "hand")
    assert "let slowed = sign(pushed)*max(abs(pushed) - 0.6, 0)" in texts(notebook, "hand")
    (builtin,), (by_hand,) = (
        re.findall(r"on fresh episodes: (-[\d.]+)", texts(notebook, cell)) for cell in ("run", "hand")
    )
    assert float(by_hand) > float(builtin) - 0.1
    assert pictures(notebook) == 1


def test_without_runs_it_makes_three(executed: Executed, tmp_path: Path) -> None:
    notebook = executed("learning_curves")
    assert "seed 2, attempt 1: " in texts(notebook, "runs")
    assert texts(notebook, "runs").endswith("runs found: 3\n")
    assert texts(notebook, "summaries").count("frozenlake") == 3
    assert pictures(notebook) == 4
    assert "| row | column | action |" in texts(notebook, "policy")
    assert "# size: " in texts(notebook, "map")
    table = texts(notebook, "act").splitlines()
    assert table[0].split() == ["square", "action"]
    assert len(table) == 1 + 8
    assert all(line.split()[2] in "0123" for line in table[1:])
    assert texts(notebook, "play").startswith("return of one episode: ")
    (shown,) = [output.data["image/gif"] for cell in notebook.cells if cell.id == "film" for output in cell.outputs]
    assert base64.b64decode(shown).startswith(b"GIF89a")
    remembered, without, _ = filter(None, texts(notebook, "memory").splitlines())
    assert remembered == "remembers: load sin speed torque"
    assert without.startswith("without memory: -")
    loads = re.findall(r"load (-?[\d.]+), estimated as (-?[\d.]+)", texts(notebook, "memory-controller"))
    assert len(loads) == 2
    assert all(abs(float(true) - float(estimated)) < 0.3 for true, estimated in loads)
    assert "let `policy.controller()` act" in texts(notebook, "memory-batch")
    assert not (tmp_path / "results").exists()


def test_with_runs_it_reads_them_finished_or_not(executed: Executed, tmp_path: Path) -> None:
    task = load_task("cartpole")
    for seed in (7, 8):
        options = {"seed": seed, "iterations": 1, "episodes": 2, "warmup_episodes": 2, "final_episodes": 2}
        run = start(task, effective_config(task, "cartpole", options=options), tmp_path / "results")
        assert [attempt.kind for attempt in run.attempts()][1:2] == ["proposal"]
        if seed == 7:
            run.finish()
    # What comes after is of no run, and runs in the test above.
    notebook = executed("learning_curves", last="act")
    assert texts(notebook, "runs") == "runs found: 2\n"
    assert re.findall(r"cartpole-builtin-\S+-s(\d)", texts(notebook, "summaries")) == ["7"]
    assert "bins position: -0.8, 0.8" in texts(notebook, "map")
    assert texts(notebook, "act").splitlines()[0].split() == [*task.observation_names, "action"]
    assert pictures(notebook) == 3


def test_the_guide_to_a_motor(executed: Executed) -> None:
    notebook = executed("motor", last="pid")
    assert "settled: always abs(wanted - angle) <= 0.08, from 45 steps after" in texts(notebook, "motor")
    nominal, varied = re.findall(r"overshoot: violated in (\d+) of 200", texts(notebook, "pid"))
    assert int(nominal) < int(varied)
    kept = nbformat.read(NOTEBOOKS / "motor.ipynb", as_version=4)  # the other cells take a minute
    before, after = (
        int(re.findall(r"overshoot: violated in (\d+) of 200", texts(kept, cell))[0])
        for cell in ("nominal", "randomised")
    )
    assert after == 0 < before
    assert "0 of 300 decisions differ" in texts(kept, "c")
