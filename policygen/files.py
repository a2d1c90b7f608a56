"""Find text files and runs; write and read the files of a run folder.

A run folder may be untrusted. Writing replaces a file by a new one, or appends to a plain file; reading and appending
refuse links, pipes and devices, so that nothing outside the folder is touched.
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
_BUFFER = 2**18  # bytes read from a log at a time: its lines are longer than Python's default buffer
_LONGEST_FAULT = 300  # characters
# Numbers in the format marks of files, 1 if not listed; increased when other versions cannot read them.
_FORMATS = {"run": 2}
_NOT_PLAIN = "it is a link, a pipe or a device, not a plain file"

# Control characters, line separators, and lone surrogates: a file name may hold bytes that are not UTF-8.
_FORBIDDEN_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]|([\ud800-\udfff])")
_LONGEST_NAME, _LONGEST_PATH = 255, 4_095  # bytes


def check_name(name: str | Path, remedy: str = "choose another name") -> str:
    """Return a path or a name as text.

    Raises UsageError, which ends with `remedy`, if scripts, logs or terminals cannot handle it: it holds control
    characters or bytes that are not UTF-8, or is too long.
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
            raise UsageError(f"the name {text[:60]!r}... has {length:,} bytes, and {most:,} are allowed; {remedy}")
    return text


def resource_folders(kind: str) -> Iterator[Path]:
    """Yield the folders that may hold `kind` ("envs" or "templates"); the first match wins."""
    yield Path.cwd() / kind
    yield PACKAGE / kind  # an installed wheel
    yield PACKAGE.parent / kind  # a checkout


def find_resource(kind: str, name: str, suffix: str) -> Path | None:
    """Find the file `name`: a path, or a bare name with or without `suffix`; None if there is none.

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
    """Return every file of that kind, by its bare name."""
    found: dict[str, Path] = {}
    for folder in resource_folders(kind):
        for path in sorted(folder.glob(f"*{suffix}")):  # none in a missing folder
            found.setdefault(path.stem, path)
    return found


_MOST_PARTS = 30  # of a key: Python's parser takes quadratic time for long ones
# The tokens of TOML, each to its end or that of the line or text, so that the search takes linear time.
_TOKENS = re.compile(
    r"""(?P<part>[\w-]++|"(?!"")(?:[^"\\\n]|\\[^\n])*+"?|'(?!'')[^'\n]*+'?)|(?P<dot>\.)|(?P<blank>[ \t]++)|"""
    r"""["]{3}(?:[^"\\]|\\.|"(?!""))*+(?:["]{3})?|'{3}(?:[^']|'(?!''))*+(?:'{3})?|\#[^\n]*+|.""",
    re.DOTALL,
)


def toml_of(text: str) -> dict[str, Any]:
    """Parse untrusted TOML; refuse keys for which the parser would need a very long time.

    Raises ValueError if it is not TOML, or a key has more than 30 parts; RecursionError if it is nested too deeply.
    """
    dots = 0  # with only names, texts and blanks between them
    try:
        for token in _TOKENS.finditer(text):
            dots = dots + (token.lastgroup == "dot") if token.lastgroup else 0
            if dots >= _MOST_PARTS:
                raise ValueError(f"a key has more than {_MOST_PARTS} parts")
        return tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {error}") from None


def json_of(text: str) -> Any:
    """Parse untrusted JSON; raises ValueError, or RecursionError if it is nested too deeply."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def find_run(name: str) -> Path:
    """Return the path `name`; `latest` is the newest run folder in results/, unless a file has that name.

    Raises UsageError if there is no run yet, or as `check_name` does.
    """
    path = Path(check_name(name))
    if name != "latest" or path.exists():
        return path
    runs = sorted(Path("results").glob("*/config.toml"), key=lambda file: file.stat().st_mtime)
    if not runs:
        raise UsageError("there is no run in results/ yet; make one with: policygen run cartpole")
    return runs[-1].parent


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content`; readers see the old file or the new one, never a part.

    Secrets in a text are hidden. A link of that name is replaced; its target is untouched. Raises LogbookError if the
    folder is missing, read-only or full; the old file is kept.
    """
    # A random name: no link can wait there, and no two processes share it.
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    made = False
    try:
        if not path.is_symlink() and (path.is_char_device() or path.is_block_device()):
            raise OSError(errno.EPERM, "it is a device")
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
    """Write a file that the user named: atomically, but straight into a pipe or a device.

    Raises LogbookError if it cannot be written, or is a block device; an old file is kept.
    """
    try:
        there = path.stat()
    except (OSError, ValueError):
        return write_atomically(path, content)
    own = next((descriptor for descriptor in (1, 2) if _is_open(descriptor, there)), None)
    if own is None and (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        return write_atomically(path, content)
    try:
        if stat.S_ISBLK(there.st_mode):
            raise OSError(errno.EPERM, "it is a disk")
        # `/dev/stdout` may lead to a plain file: append after what was printed there.
        print(end="", flush=True)
        descriptor = os.dup(own) if own is not None else os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
        with os.fdopen(descriptor, "wb") as file:
            file.write(_outgoing(content))
    except OSError as error:
        raise _not_written(path, error) from None


def make_folder(path: Path, remedy: str) -> None:
    """Create a folder with its parents unless it exists; raise PathError with the remedy if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise PathError(f"cannot create {str(path)!r}: {reason_of(error)}; {remedy}") from None


def _is_open(descriptor: int, file: os.stat_result) -> bool:
    """Whether a descriptor of this process is open, and of that file."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), file)
    return False


_PART = re.compile(r"\.([0-9a-f]{16}|.+\.\w+)\.part")


def remove_parts(folder: Path) -> None:
    """Remove partial files that a killed process left in a folder; no other process may be writing there."""
    for path in folder.glob(".*.part"):
        if _PART.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def append_line(path: Path, record: Any, *, durable: bool = True) -> None:
    """Append one JSON line to a log, with secrets hidden; `durable`: wait until it is on the disk.

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
    """Read a file from outside: each damage is one sentence with the path and what to do.

    Args:
        form: what the content becomes: `bytes`, or a function of the text such as `str`, `json_of` and `toml_of`, which
            raises ValueError for a damaged one. A byte order mark of UTF-8 is no part of the text.
        named: the error for a file that the user named, or that one of the user's files names: links are followed.
            None for a file of a run folder, which may be untrusted.
        kind: KIND of the content's mark `"format": "policygen-KIND/NUMBER"`, which is checked; empty without one.
        most: most bytes; by default 1 MB of TOML, and 256 MB of anything else.

    Raises:
        FileNotFoundError: it does not exist, and the user did not name it.
        LogbookError, or `named`: it is missing, damaged or too large, was written by another version, or is a link (of
            a run folder), a pipe or a device.
    """
    try:
        with _reading(Path(os.path.realpath(path)) if named else path) as file:
            size = os.fstat(file.fileno()).st_size
            most = most or (LARGEST_SETTINGS if form is toml_of else LARGEST_FILE)
            if size > most:
                raise LogbookError(f"cannot read {path}: it has {size:,} bytes, and the most is {most:,}; shorten it")
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
    """Return the error for a damaged file: the file, the fault and the remedy."""
    text = " ".join(str(fault).split())
    return LogbookError(f"{path} is damaged: {text[:_LONGEST_FAULT]}{' ...' * (len(text) > _LONGEST_FAULT)}; {remedy}")


def mark(kind: str) -> dict[str, str]:
    """Return the format mark of files of that kind."""
    return {"format": f"policygen-{kind}/{_FORMATS.get(kind, 1)}"}


def check_mark(value: Any, path: Path, kind: str, remedy: str) -> None:
    """Raise LogbookError if a file's format mark is not that of `kind`, for example because another version wrote it.

    A file without a mark has the first format.
    """
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
        skip_damaged: skip every damaged line; if false, only a damaged last line, which a crash can leave.

    Raises LogbookError if it cannot be read, or for a damaged line that is not skipped.
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
    """Open a plain file for reading; raises FileNotFoundError, or LogbookError if it cannot be read or is not plain."""
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb", _BUFFER) as file:
            yield file
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path)) from None
    except (OSError, ValueError) as error:
        raise LogbookError(f"cannot read {path}: {reason_of(error)}") from None


def _opened(path: Path, flags: int) -> int:
    """Return a descriptor of a plain file; raise OSError if it is none, or cannot be opened."""
    # Opening a pipe would otherwise wait for its other end.
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


# What the user can do about each system error.
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
    """Return the bytes to write; secrets in a text are hidden."""
    # A reply that was cut inside a character may end with a lone surrogate, which UTF-8 cannot encode.
    return redacted(content).encode(errors="replace") if isinstance(content, str) else content


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
