"""Find text files and runs; read and write the files of a run folder.

A run folder may be untrusted: writing replaces a file by a new one, and reading and appending refuse links, pipes and
devices, so that nothing outside the folder is touched.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from policygen.errors import LogbookError, PathError, PolicygenError, UsageError, reason_of
from policygen.outgoing import json_safe, redacted
from policygen.portable import replace

T = TypeVar("T")

PACKAGE = Path(__file__).resolve().parent
LARGEST_FILE = 256 * 2**20  # bytes of a file or line; a file of episodes may be larger
LARGEST_SETTINGS = 2**20  # bytes of a TOML file of the user
_BUFFER = 2**18  # bytes read from a log at a time, because its lines are longer than Python's default buffer
_LONGEST_FAULT = 300  # characters
# Version numbers in the format marks of files, if not 1; increased when other versions cannot read the file.
_FORMATS = {"run": 2}
_NOT_PLAIN = "it is a link, a pipe or a device, not a plain file"

# Control characters, line separators, and lone surrogates: a file name may hold bytes that are not UTF-8.
_FORBIDDEN_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]|([\ud800-\udfff])")
_LONGEST_NAME, _LONGEST_PATH = 255, 4_095  # bytes


def check_name(name: str | Path, remedy: str = "choose another name") -> str:
    """Return a path or a name as text.

    Raises UsageError, which ends with `remedy`, if it is too long, or contains control characters or bytes that are not
    UTF-8, which scripts, logs and terminals cannot handle.
    """
    text = str(name)
    if found := _FORBIDDEN_CHARACTERS.search(text):
        what = "bytes that are not UTF-8 text" if found[1] else "a control character"
        raise UsageError(f"the name {text[:100]!r} holds {what}; {remedy}")
    for length, most in (
        (max(len(part.encode()) for part in text.split("/")), _LONGEST_NAME),
        (len(text.encode()), _LONGEST_PATH),
    ):
        if length > most:
            raise UsageError(
                f"the name {text[:60]!r}... has {length:,} bytes, and at most {most:,} are allowed; {remedy}"
            )
    return text


def resource_folders(kind: str) -> Iterator[Path]:
    """Yield the folders that may hold files of a kind ("envs" or "templates"); the first match wins."""
    yield Path.cwd() / kind
    yield PACKAGE / kind  # an installed wheel
    yield PACKAGE.parent / kind  # a checkout


def find_resource(kind: str, name: str, suffix: str) -> Path | None:
    """Find a file by its path or bare name, with or without `suffix`; None if there is none.

    Raises UsageError as `check_name` does.
    """
    given = Path(check_name(name))
    if given.suffix == suffix and given.is_file():
        return given
    if given.name != name:
        return None
    candidates = (folder / f"{name.removesuffix(suffix)}{suffix}" for folder in resource_folders(kind))
    return next((path for path in candidates if path.is_file()), None)


def list_resources(kind: str, suffix: str) -> dict[str, Path]:
    """Return every file of a kind by its bare name."""
    found: dict[str, Path] = {}
    for folder in resource_folders(kind):
        for path in sorted(folder.glob(f"*{suffix}")):  # none in a missing folder
            found.setdefault(path.stem, path)
    return found


_MOST_PARTS = 30  # of a key, because Python's parser takes quadratic time for long keys
# The tokens of TOML; an unclosed one ends with the line or text, so that the search takes linear time.
_TOKENS = re.compile(
    r"""(?P<part>[\w-]++|"(?!"")(?:[^"\\\n]|\\[^\n])*+"?|'(?!'')[^'\n]*+'?)|(?P<dot>\.)|(?P<blank>[ \t]++)|"""
    r"""["]{3}(?:[^"\\]|\\.|"(?!""))*+(?:["]{3})?|'{3}(?:[^']|'(?!''))*+(?:'{3})?|\#[^\n]*+|.""",
    re.DOTALL,
)


def toml_of(text: str) -> dict[str, Any]:
    """Parse untrusted TOML.

    Raises ValueError if it is not TOML, or a key has more than 30 parts; RecursionError if it is nested too deeply.
    """
    dots = 0  # in the present key
    try:
        for token in _TOKENS.finditer(text):
            dots = dots + (token.lastgroup == "dot") if token.lastgroup else 0
            if dots >= _MOST_PARTS:
                raise ValueError(f"a key has more than {_MOST_PARTS} parts")
        return tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {error}") from None


def json_of(text: str) -> Any:
    """Parse untrusted JSON; raise ValueError, or RecursionError if it is nested too deeply."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def find_run(name: str) -> Path:
    """Return the path `name`; `latest` is the newest run folder in results/, unless a file has this name.

    Raises UsageError if `latest` does not exist, or as `check_name` does.
    """
    path = Path(check_name(name))
    if name != "latest" or path.exists():
        return path
    runs = sorted(Path("results").glob("*/config.toml"), key=lambda file: file.stat().st_mtime)
    if not runs:
        raise UsageError("there is no run in results/ yet; make one with: policygen run cartpole")
    return runs[-1].parent


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file by `content`, with secrets hidden; readers see the old file or the new one, never a part.

    A link is replaced itself, not its target. Raises LogbookError if the folder is missing, read-only or full, or the
    file is a pipe or a device; it is then as before.
    """
    # The name is random, so that no link waits there and no other process uses it.
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    made = False
    try:
        if path.exists() and not (path.is_symlink() or path.is_file() or path.is_dir()):
            raise OSError(errno.EPERM, "it is a pipe or a device")
        with open(temporary, "xb") as file:
            made = True
            file.write(_outgoing(content))
            _to_disk(file)
        replace(temporary, path)
    except (OSError, ValueError) as error:
        if made:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from None


def write_named(path: Path, content: str | bytes) -> None:
    """Write a file that the user named, like `write_atomically`, but through a link."""
    write_atomically(path.resolve() if path.is_symlink() else path, content)


def make_folder(path: Path, remedy: str) -> None:
    """Create a folder and its parents unless it exists; raise PathError, which ends with `remedy`, if it cannot."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise PathError(f"cannot create {str(path)!r}: {reason_of(error)}; {remedy}") from None


_PART = re.compile(r"\.([0-9a-f]{16}|.+\.\w+)\.part")


def remove_parts(folder: Path) -> None:
    """Remove partial files that a killed process left in a folder; no other process may write there."""
    for path in folder.glob(".*.part"):
        if _PART.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def append_line(path: Path, record: Any, *, durable: bool = True) -> None:
    """Append a record to a JSON-lines log, with secrets hidden; `durable`: wait until it is on the disk.

    Raises LogbookError if the log cannot be written, or is a link, a pipe or a device.
    """
    line = _outgoing(json_line(record))
    try:
        with os.fdopen(_opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+") as file:
            # A line torn by a crash must not swallow this one.
            file.write(line if _last_line_complete(file) else b"\n" + line)
            if durable:
                _to_disk(file)
    except (OSError, ValueError) as error:
        raise _not_written(path, error) from None


def json_line(record: Any) -> str:
    """Return a record as one JSON line without terminal control characters."""
    return json_safe(json.dumps(record, ensure_ascii=False)) + "\n"


def read(
    path: Path,
    form: Callable[[Any], T],
    remedy: str = "restore it from a copy",
    *,
    named: type[PolicygenError] | None = None,
    kind: str = "",
    most: int | None = None,
) -> T:
    """Read an untrusted file; the error message is one sentence with the path and a remedy.

    Args:
        form: `bytes`, or a function that converts the text and raises ValueError for a damaged one, such as `str`,
            `json_of` and `toml_of`. The text does not include a byte order mark.
        remedy: what the user can do about a damaged file.
        named: the class of the error for a file that the user or one of the user's files named: links are followed.
            None for a file of a run folder.
        kind: the KIND in the content's mark `"format": "policygen-KIND/NUMBER"`, which is checked; empty without one.
        most: most bytes; by default 1 MB of TOML, or 256 MB of anything else.

    Raises:
        FileNotFoundError: a file of a run folder is missing.
        LogbookError, or `named`: the file is damaged or too large, was written by another version, or is a pipe, a
            device or (in a run folder) a link; or a named file is missing.
    """
    try:
        with _reading(Path(os.path.realpath(path)) if named else path) as file:
            size = os.fstat(file.fileno()).st_size
            most = most or (LARGEST_SETTINGS if form is toml_of else LARGEST_FILE)
            if size > most:
                raise LogbookError(
                    f"cannot read {path}: it has {size:,} bytes, and at most {most:,} are allowed; shorten it"
                )
            content = file.read()
        value = form(content if form is bytes else content.decode("utf-8-sig"))
        if kind:
            check_mark(value, path, kind, remedy)
        return value
    except FileNotFoundError:
        if named is None:
            raise
        raise named(f"cannot read {path}: there is no such file") from None
    except LogbookError as error:
        raise error if named is None else named(str(error)) from None
    except (ValueError, RecursionError) as error:
        fault = "is not a UTF-8 text file" if isinstance(error, UnicodeDecodeError) else _fault(error)
        raise damaged(path, f"it {fault}", remedy) if named is None else named(f"{path} {fault}") from None


def damaged(path: Path, fault: object, remedy: str) -> LogbookError:
    """Return the error for a damaged file, with its path, the fault and the remedy."""
    text = " ".join(str(fault).split())
    return LogbookError(f"{path} is damaged: {text[:_LONGEST_FAULT]}{' ...' * (len(text) > _LONGEST_FAULT)}; {remedy}")


def mark(kind: str) -> dict[str, str]:
    """Return the format mark of files of a kind."""
    return {"format": f"policygen-{kind}/{_FORMATS.get(kind, 1)}"}


def check_mark(value: Any, path: Path, kind: str, remedy: str) -> None:
    """Raise LogbookError if a file has another format mark than `kind`; a file without a mark has the first format."""
    own = mark(kind)["format"]
    found = value.get("format", f"policygen-{kind}/1") if isinstance(value, dict) else own
    if found == own:
        return
    number = re.fullmatch(rf"policygen-{kind}/([1-9]\d{{0,3}})", str(found))
    if number is not None and int(number[1]) > int(own.rpartition("/")[2]):
        raise LogbookError(f"{path} was written by a later version of policygen (format {found}); update policygen")
    if number is not None:
        raise LogbookError(f"{path} was written by an earlier version of policygen, which this one does not read")
    raise damaged(path, f"its `format` is {str(found)!r:.60} instead of `{own}`", remedy)


def read_lines(path: Path, remedy: str = "", *, skip_damaged: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON-lines log; a missing log is empty.

    Args:
        remedy: what the user can do about a damaged line that is not skipped.
        skip_damaged: skip every damaged line; if false, skip only a damaged last line, which a crash can leave.

    Raises LogbookError if the log cannot be read, or for a damaged line that is not skipped.
    """
    fault: LogbookError | None = None
    with suppress(FileNotFoundError), _reading(path) as file:
        lines = iter(lambda: file.readline(LARGEST_FILE), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) == LARGEST_FILE:
                raise damaged(path, f"line {number} has {LARGEST_FILE:,} bytes or more", remedy or "shorten it")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").strip()
            if not text:
                continue
            if fault is not None:
                raise fault
            try:
                record, what = json.loads(text), "is not a record"
            except (ValueError, RecursionError) as error:
                record, what = None, f"is not JSON ({_fault(error)})"
            if isinstance(record, dict):
                yield record
            elif not skip_damaged:
                fault = damaged(path, f"line {number} {what}", remedy)


def _last_line_complete(file: IO[bytes]) -> bool:
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain file for reading; raise FileNotFoundError, or LogbookError if it cannot be read or is not plain."""
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb", _BUFFER) as file:
            yield file
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path)) from None
    except (OSError, ValueError) as error:
        raise LogbookError(f"cannot read {path}: {reason_of(error)}") from None


def _opened(path: Path, flags: int) -> int:
    """Return a descriptor of a plain file; raise OSError if it is not plain or cannot be opened."""
    # Without O_NONBLOCK, opening a pipe would wait for its other end.
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags | careful | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EMLINK):
            raise OSError(errno.EINVAL, _NOT_PLAIN) from None
        raise
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, _NOT_PLAIN)
    return descriptor


def _fault(error: Exception) -> str:
    return "is nested too deeply" if isinstance(error, RecursionError) else str(error)


# Remedies by system error.
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space or write elsewhere"),
    errno.EISDIR: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EINVAL: "remove it or write elsewhere",
    errno.EROFS: "copy the folder to where you may write, and use the copy",
}


def _not_written(path: Path, error: OSError | ValueError) -> LogbookError:
    if isinstance(error, ValueError):
        return PathError(f"cannot write {str(path)!r}: {error}; choose another name")
    folder = path.parent
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not folder.is_dir():
        lacks = "is not a folder; write elsewhere" if folder.exists() else "does not exist; make it or write elsewhere"
        return PathError(f"cannot write {path}: the folder {folder} {lacks}")
    remedy = _REMEDIES.get(error.errno or 0, "write elsewhere")
    return LogbookError(f"cannot write {path}: {error.strerror}; {remedy}")


def _outgoing(content: str | bytes) -> bytes:
    """Return the bytes to write, with secrets hidden in a text."""
    # A reply that was cut within a character may end with a lone surrogate, which UTF-8 cannot encode.
    return redacted(content).encode(errors="replace") if isinstance(content, str) else content


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
