"""A web application and its server: a list of runs, a page for each, and forms to comment on, pause and continue it."""

from __future__ import annotations

import functools
import hashlib
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from policygen.errors import PathError, PolicygenError, UsageError
from policygen.extensions.live.folders import Version, listed_run, newest, run_folders, version_of
from policygen.extensions.live.guard import MOST_CONNECTIONS, Connection, Guard
from policygen.extensions.page.content import read_run
from policygen.extensions.page.render import jinja_environment, pictures_of, render
from policygen.outgoing import shown
from policygen.runs.steering import MOST_CHARACTERS, Steering
from policygen.search.steer import pause, why_comment_has_no_effect

ADDRESS = "127.0.0.1"
MOST_BYTES = 16 * MOST_CHARACTERS  # of a form
_MOST_FIELDS = 10  # of a form
_MOST_CACHED = 64  # rendered pages


def serve(root: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve the pages of the runs in `root` until the process is interrupted.

    Args:
        port: 0 chooses a free port.
        announce: called with the address once the server answers.

    Raises:
        UsageError: the port cannot be used.
        PathError: the folder does not exist.
    """
    if not root.is_dir():
        raise PathError(f"{root} is not a folder; name a run, or a folder of runs such as results")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise UsageError(f"port {port} cannot be used ({error.strerror}); choose another --port") from None
        listening.listen()
        own = listening.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                application(root.resolve(), own),
                lifespan="off",
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                http=Connection,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        # The end of the server cuts off requests, which is no error to report.
        logging.getLogger("uvicorn.error").addFilter(lambda record: not server.should_exit)
        count = len(run_folders(root))
        announce(f"http://{ADDRESS}:{own}/ ({count} run{'s' * (count != 1)}; only this machine can open it)")
        server.run(sockets=[listening])


class _Refused(PolicygenError):
    """The error for a refused request, with its HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RunPages:
    """The pages of the runs in `root`. One page is rendered at a time, because drawing is not thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._drawing = threading.Lock()
        self._listed = functools.lru_cache(maxsize=1_000)(listed_run)
        self._pictures = functools.lru_cache(maxsize=_MOST_CACHED)(_pictures)
        self._page = functools.lru_cache(maxsize=_MOST_CACHED)(self._render)

    def list_page(self) -> str:
        """Return the page with the list of runs, the last changed first."""
        folders = run_folders(self.root)
        runs = [self._listed(key, folders[key], version) for key, version in newest(folders).items()]
        return render("runs.html.j2", {"runs": runs, "more": len(folders) - len(runs), "name": self.root.name})

    def run_page(self, key: str) -> tuple[str, Version]:
        """Return the page of a run, and the version of its files."""
        folder = self.folder(key)
        version = version_of(folder)
        with self._drawing:
            return self._page(key, folder, version), version

    def _render(self, key: str, folder: Path, version: Version) -> str:
        run = read_run(folder)
        address = f"/run/{quote(key)}"
        live = {"alone": not key, "most": MOST_CHARACTERS, "why_no_effect": why_comment_has_no_effect(folder)}
        drawn = self._pictures(folder, len(run.attempts), run.summary is not None)
        return render("live.html.j2", run, playing=None, margins=None, address=address, **live, **drawn)

    def folder(self, key: str) -> Path:
        """Return the folder of a run by its key; only runs in `root` have one."""
        folder = run_folders(self.root).get(key.strip("/"))
        if folder is None:
            raise _Refused(404, "There is no such run.")
        return folder

    def steer(self, key: str, what: str, form: dict[str, str]) -> None:
        """Carry out the action `what` of a form: comment on, pause or continue a run, or withdraw a comment."""
        folder = self.folder(key)
        steering = Steering(folder)
        if what == "comment":
            if why := why_comment_has_no_effect(folder):
                raise _Refused(400, why)
            steering.say(form.get("text", ""), once="once" in form)
        elif what == "withdraw":
            number = form.get("number", "")
            if not number.isdecimal() or len(number) > 9:
                raise _Refused(400, "There is no such comment.")
            steering.withdraw(int(number))
        elif what in ("pause", "continue"):
            pause(folder, what == "pause")
        else:
            raise _Refused(404, "There is no such form.")


def _pictures(folder: Path, attempts: int, finished: bool) -> dict[str, Any]:
    """Draw the pictures of a run; its attempts and its end are arguments because a cached picture changes with them."""
    run = read_run(folder)
    return pictures_of(run, run.policy)


def application(root: Path, port: int) -> ASGIApp:
    """Return the application for the runs in `root`; it answers only requests to this machine at `port`."""
    pages = RunPages(root)

    async def runs(request: Request) -> Response:
        if "" in run_folders(root):
            return RedirectResponse("/run/", 303)
        return HTMLResponse(await run_in_threadpool(pages.list_page))

    async def run(request: Request) -> Response:
        key = request.path_params["key"]
        tag = _tag(version_of(pages.folder(key)))
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        page, version = await run_in_threadpool(pages.run_page, key)
        return HTMLResponse(page, headers={"ETag": _tag(version)})

    async def steer(request: Request) -> Response:
        key, what = request.path_params["key"], request.path_params["what"]
        await run_in_threadpool(pages.steer, key, what, await _form(request))
        return RedirectResponse(f"/run/{quote(key)}", 303)

    async def style(request: Request) -> Response:
        return Response(jinja_environment().get_template("page.css").render(), media_type="text/css")

    async def script(request: Request) -> Response:
        return Response(jinja_environment().get_template("live.js").render(), media_type="text/javascript")

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, _Refused) else 400
        return PlainTextResponse(shown(error).encode(errors="replace"), status)

    routes = [
        Route("/", runs),
        Route("/page.css", style),
        Route("/live.js", script),
        Route("/steer/{what}/{key:path}", steer, methods=["POST"]),
        Route("/run/{key:path}", run),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={PolicygenError: refused}), port)


async def _form(request: Request) -> dict[str, str]:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise _Refused(413, "The form is too long.")
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ClientDisconnect:
        raise _Refused(400, "The form arrived incomplete.") from None
    except ValueError:
        raise _Refused(400, f"The form has more than {_MOST_FIELDS} fields.") from None
    return {name: values[-1] for name, values in fields.items()}


def _tag(version: Version) -> str:
    return f'"{hashlib.sha256(repr(version).encode()).hexdigest()[:24]}"'
