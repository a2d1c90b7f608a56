"""Where the project's own text files are found: the path given, the working directory, the copies in the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
