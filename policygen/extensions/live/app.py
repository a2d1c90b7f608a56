"""A web application and its server: a list of runs, a page for each, and forms to comment on, pause and continue it."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
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
_DRAWING = threading.Lock()  # one page is drawn at a time, because drawing is not thread-safe


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
    try:
        listening = socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"port {port} cannot be used ({reason}); choose another --port") from None
    with listening:
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


@functools.lru_cache(maxsize=_MOST_CACHED)
def _page(key: str, folder: Path, version: Version) -> str:
    """Return the page of a run; the version of its files is an argument because a cached page changes with it."""
    run = read_run(folder)
    live = {"alone": not key, "most": MOST_CHARACTERS, "why_no_effect": why_comment_has_no_effect(folder)}
    drawn = _pictures(folder, len(run.attempts), run.summary is not None)
    return render("live.html.j2", run, playing=None, margins=None, address=f"/run/{quote(key)}", **live, **drawn)


@functools.lru_cache(maxsize=_MOST_CACHED)
def _pictures(folder: Path, attempts: int, finished: bool) -> dict[str, Any]:
    """Draw the pictures of a run; its attempts and its end are arguments because a cached picture changes with them."""
    run = read_run(folder)
    return pictures_of(run, run.policy)


def _steer(folder: Path, what: str, form: dict[str, str]) -> None:
    """Carry out the action `what` of a form: comment on, pause or continue a run, or withdraw a comment."""
    if what == "comment":
        if why := why_comment_has_no_effect(folder):
            raise UsageError(why)
        Steering(folder).say(form.get("text", ""), once="once" in form)
    elif what == "withdraw":
        number = form.get("number", "")
        if not number.isdecimal() or len(number) > 9:
            raise HTTPException(400, "There is no such comment.")
        Steering(folder).withdraw(int(number))
    elif what in ("pause", "continue"):
        pause(folder, what == "pause")
    else:
        raise HTTPException(404, "There is no such form.")


def application(root: Path, port: int) -> ASGIApp:
    """Return the application for the runs in `root`; it answers only requests to this machine at `port`."""

    def folder_of(request: Request) -> Path:
        """Return the folder of the run that an address names; only runs in `root` have one."""
        folder = run_folders(root).get(request.path_params["key"].strip("/"))
        if folder is None:
            raise HTTPException(404, "There is no such run.")
        return folder

    def runs(request: Request) -> Response:
        folders = run_folders(root)
        if "" in folders:
            return RedirectResponse("/run/", 303)
        listed = [listed_run(key, folders[key], version) for key, version in newest(folders).items()]
        content = {"runs": listed, "more": len(folders) - len(listed), "name": root.name}
        return HTMLResponse(render("runs.html.j2", content))

    def run(request: Request) -> Response:
        folder = folder_of(request)
        version = version_of(folder)
        tag = f'"{hashlib.sha256(repr(version).encode()).hexdigest()[:24]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        with _DRAWING:
            return HTMLResponse(_page(request.path_params["key"], folder, version), headers={"ETag": tag})

    async def steer(request: Request) -> Response:
        form = await _form(request)
        await run_in_threadpool(_steer, folder_of(request), request.path_params["what"], form)
        return RedirectResponse(f"/run/{quote(request.path_params['key'])}", 303)

    def fixed(name: str, kind: str) -> Route:
        text = jinja_environment().get_template(name).render()
        return Route(f"/{name}", lambda request: Response(text, media_type=kind))

    def refused(request: Request, error: Exception) -> Response:
        return PlainTextResponse(shown(error).encode(errors="replace"), 400)

    routes = [
        Route("/", runs),
        fixed("page.css", "text/css"),
        fixed("live.js", "text/javascript"),
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
                raise HTTPException(413, "The form is too long.")
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ClientDisconnect:
        raise HTTPException(400, "The form arrived incomplete.") from None
    except ValueError:
        raise HTTPException(400, f"The form has more than {_MOST_FIELDS} fields.") from None
    return {name: values[-1] for name, values in fields.items()}
