"""Files: where text files and runs are found, and how files are written so that they are whole or absent."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from policygen.errors import LogbookError, UsageError
from policygen.outgoing import json_safe, redacted

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


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content`; whoever reads it sees the old file or the new one, never a part.

    Secrets in a text are hidden.

    Raises:
        LogbookError: the folder is missing, read-only or full, and what would help; the old file is kept.
    """
    data = _bytes(redacted(content)) if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            _to_disk(file)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from None


def append_line(path: Path, record: Any, *, durable: bool = True) -> None:
    """Add one JSON line to a log, with secrets hidden.

    Args:
        durable: wait until it is on the disk, so that it outlives a power failure as well as a crash.

    Raises:
        LogbookError: it cannot be written.
    """
    line = redacted(json_line(record))
    try:
        with open(path, "ab+") as file:
            # A line torn by a crash must not swallow this one.
            if file.seek(0, os.SEEK_END) > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = "\n" + line
            file.write(_bytes(line))
            if durable:
                _to_disk(file)
    except OSError as error:
        raise _not_written(path, error) from None


def json_line(record: Any) -> str:
    """One line of a log, which shows nothing a terminal would obey."""
    return json_safe(json.dumps(record, ensure_ascii=False)) + "\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole JSON lines of a log; lines torn by a crash are passed over, a missing log is empty.

    Raises:
        LogbookError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise LogbookError(f"cannot read {path}: {error.strerror}") from None
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


# What helps, by what the system said.
_REMEDIES = {
    errno.ENOSPC: "free some space or write elsewhere",
    errno.EDQUOT: "free some space or write elsewhere",
    errno.EFBIG: "free some space or write elsewhere",
    errno.EISDIR: "choose another name",
}


def _not_written(path: Path, error: OSError) -> LogbookError:
    folder = path.parent
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not folder.is_dir():
        lacks = "is not a folder; write elsewhere" if folder.exists() else "does not exist; make it or write elsewhere"
        return LogbookError(f"cannot write {path}: the folder {folder} {lacks}")
    remedy = _REMEDIES.get(error.errno or 0, "write elsewhere")
    return LogbookError(f"cannot write {path}: {error.strerror}; {remedy}")


def _bytes(text: str) -> bytes:
    # A reply that was cut inside a character may hold half of it, which UTF-8 cannot say.
    return text.encode(errors="replace")


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
