"""Where files are found: text files in the working directory or the package, and the run that `latest` means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policygen.errors import UsageError

PACKAGE = Path(__file__).resolve().parent


def resource_folders(kind: str) -> Iterator[Path]:
    """The folders that may hold `kind` ("envs" or "templates"), first match wins."""
    yield Path.cwd() / kind
    yield PACKAGE / kind  # an installed wheel
    yield PACKAGE.parent / kind  # a checkout


def find_resource(kind: str, name: str, suffix: str) -> Path | None:
    """The file called `name` (a path, or a bare name with or without `suffix`), or None."""
    given = Path(name)
    if given.suffix == suffix and given.is_file():
        return given
    if given.name != name:
        return None
    stem = name.removesuffix(suffix)
    for folder in resource_folders(kind):
        candidate = folder / f"{stem}{suffix}"
        if candidate.is_file():
            return candidate
    return None


def list_resources(kind: str, suffix: str) -> dict[str, Path]:
    """Every file of that kind by its bare name."""
    found: dict[str, Path] = {}
    for folder in resource_folders(kind):
        if folder.is_dir():
            for path in sorted(folder.glob(f"*{suffix}")):
                found.setdefault(path.stem, path)
    return found


def find_run(name: str) -> Path:
    """The path `name`; `latest` is the newest run folder in results/, unless there is a file of that name.

    Raises:
        UsageError: there is no run yet.
    """
    path = Path(name)
    if name != "latest" or path.exists():
        return path
    runs = sorted(Path("results").glob("*/config.toml"), key=lambda file: file.stat().st_mtime)
    if not runs:
        raise UsageError("there is no run in results/ yet; make one with: policygen run cartpole")
    return runs[-1].parent
