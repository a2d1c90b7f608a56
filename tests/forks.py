"""Processes that begin as forks of one that has imported the package: real ones, without seconds of imports for each.

A test begins one by `Fork` or `run` to kill it, or to read what it printed and left. What a process does before it
reaches `policygen.cli.main`, or with a terminal or a pipe, needs a `subprocess` of its own all the same.

The process that forks runs this file. It takes an order a line, as JSON, and answers each in a line: the number of the
process that it began, or the exit code of one that it began before, null while that goes on.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import policygen

# What most commands import late. Others import what is missing here themselves.
PRELOADED = (
    *("policygen.api", "policygen.cli", "policygen.progress", "policygen.llm.openai", "policygen.search.resume"),
    *("policygen.extensions.plots.curves", "policygen.extensions.plots.actions", "policygen.extensions.page.render"),
    *("cma", "gymnasium.envs.classic_control.cartpole", "gymnasium.envs.toy_text.frozen_lake", "rich.live"),
    *("matplotlib.backends.backend_agg", "matplotlib.figure", "scipy.optimize", "scipy.stats"),
)
SILENT = (os.devnull, os.devnull, os.devnull)

# --- in the process that forks ---------------------------------------------------------------------------------------


def serve() -> None:
    """Obey orders until there are no more; in a new process, return when it has done what it was begun for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = {os.path.dirname(os.path.abspath(__file__)), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    installed = [path for path in sys.path if path not in own]
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    prepare()
    gc.collect()
    gc.freeze()  # what is here stays: neither a new process nor its end looks through it
    ended: dict[int, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "arguments" in order:
            answer = os.fork()
            if answer == 0:
                become(order, installed)
                return
            ended.pop(answer, None)  # an earlier process may have had this number
        else:
            if order["pid"] not in ended:
                pid, status = os.waitpid(order["pid"], os.WNOHANG)
                ended |= {pid: os.waitstatus_to_exitcode(status)} if pid else {}
            answer = ended.get(order["pid"])
        print(json.dumps(answer), flush=True)


def prepare() -> None:
    """Compile the templates once, and let runs end as quickly as in the process of the tests."""
    # Tests import this file without what only the process that forks needs.
    from policygen.extensions.plots.curves import LearningCurve
    from policygen.prompts.templates import own_templates
    from policygen.runs.config import RunConfig
    from policygen.search import runner

    for kind in ("table", "linear"):
        own_templates(RunConfig(task="cartpole", policy=kind))
    setattr(LearningCurve, "finished", lambda self, summary: (self._run.folder / "learning_curve.png").touch())  # noqa: B010
    runner.FRAGILITY = ()


def become(order: Mapping[str, Any], installed: Sequence[str]) -> None:
    """Do what `python -m MODULE ...` or `python -c CODE ...` does after its start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate(order["streams"]):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one has read ahead
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    how, what, *more = order["arguments"]
    sys.argv = [how, *more]
    first = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [order["cwd"] if how == "-m" else "", *filter(None, first), *installed]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(what, main.__dict__)


# --- in the process of the tests -------------------------------------------------------------------------------------

_LOCK = threading.Lock()


@functools.cache
def _server() -> subprocess.Popen[str]:
    pipe, path = subprocess.PIPE, str(Path(policygen.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment, text=True)


def _answer(order: Mapping[str, Any]) -> Any:
    with _LOCK:
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())


def stop() -> None:
    """End the process that forks, if it was begun."""
    if _server.cache_info().currsize:
        _server().communicate()
        _server.cache_clear()


class Fork:
    """A process with the interface of `subprocess.Popen`, begun with the arguments of a Python: `-m MODULE`, `-c CODE`.

    `streams` are the files of its standard input, output and error.
    """

    def __init__(
        self, arguments: Sequence[object], cwd: Path, environment: Mapping[str, str], streams: Sequence[object] = SILENT
    ) -> None:
        order = {"arguments": [*map(str, arguments)], "streams": [*map(str, streams)], "environment": dict(environment)}
        self.pid: int = _answer({**order, "cwd": str(cwd)})
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while the process goes on."""
        if self.returncode is None:
            self.returncode = _answer({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Wait for the end; a process that takes longer is killed."""
        patience = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > patience:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[object], cwd: Path, environment: Mapping[str, str], stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with `capture_output` and `text`."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        code = Fork(arguments, cwd, environment, streams).wait(timeout)
        return subprocess.CompletedProcess(list(arguments), code, streams[1].read_text(), streams[2].read_text())


_run = subprocess.run


def run_words(words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` with `capture_output` and `text`; a Python that runs a module is a fork."""
    if list(words[:2]) != [sys.executable, "-m"]:
        return _run(words, **more)
    done = run(words[1:], Path.cwd(), os.environ, timeout=600)
    if more.get("check"):
        done.check_returncode()
    return done


if __name__ == "__main__":
    serve()
