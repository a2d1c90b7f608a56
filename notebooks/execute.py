"""Execute the notebooks and store what they show: `make notebooks`, or with names only these."""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent


def executed(path: Path, folder: Path, last: str | None = None, kernel: Any = None) -> nbformat.NotebookNode:
    """The notebook after a run in `folder`, which takes the place of `notebooks/`: all of it, or up to a cell.

    A kernel that is given works in `folder` already, and is not ended.
    """
    folder.mkdir(exist_ok=True)
    notebook = nbformat.read(path, as_version=4)
    if last is not None:
        notebook.cells = notebook.cells[: [cell.id for cell in notebook.cells].index(last) + 1]
    metadata = dict(notebook.metadata)
    NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    notebook.metadata = nbformat.from_dict(metadata)  # without the versions of whoever executed it last
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was
        if cell.cell_type == "code":  # the progress of runs tells their times, which differ in each execution
            cell.outputs = [output for output in cell.outputs if "policygen" not in output.get("metadata", {})]
    return notebook


def small(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with its drawings in 64 colours, in a third of the room."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
                content = io.BytesIO()
                picture.quantize(64, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
                output.data["image/png"] = base64.b64encode(content.getvalue()).decode()
    return notebook


def main() -> None:
    """Execute them, each in a scratch folder."""
    for path in [HERE / name for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as scratch:
            nbformat.write(small(executed(path, Path(scratch) / "notebooks")), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
