"""The web application: the list of runs, a page per run, and forms to comment, pause and continue."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from policygen.errors import PolicygenError
from policygen.extensions.live.folders import Listed, Version, listed, newest, run_folders, version_of
from policygen.extensions.live.guard import Guard
from policygen.extensions.page.content import read_run
from policygen.extensions.page.render import environment, pictures_of, render
from policygen.outgoing import shown
from policygen.runs.steering import MOST_CHARACTERS, Steering
from policygen.search.steer import pause, why_untold

LARGEST_BODY = 16 * MOST_CHARACTERS  # bytes of a form
_MOST_FIELDS = 10
_KEPT = 64  # runs whose rendered pages are cached


class _Refused(PolicygenError):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Live:
    """The pages of the runs in `root`. One page is rendered at a time, because drawing is not thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._drawing = threading.Lock()
        self._listed = functools.lru_cache(maxsize=1_000)(_listed)
        self._pictures: dict[Path, tuple[tuple[int, bool], dict[str, Any]]] = {}
        self._page = functools.lru_cache(maxsize=_KEPT)(self._rendered)

    def list_page(self) -> str:
        """Render the list of runs, most recently changed first."""
        folders = run_folders(self.root)
        keys = newest(folders)
        runs = [self._listed(key, folders[key], version_of(folders[key])) for key in keys]
        return render("runs.html.j2", {"runs": runs, "more": len(folders) - len(keys), "name": self.root.name})

    def run_page(self, key: str) -> tuple[str, Version]:
        """Render the page of a run; return it with the version of its files."""
        folder = self.folder(key)
        version = version_of(folder)
        with self._drawing:
            return self._page(key, folder, version), version

    def _rendered(self, key: str, folder: Path, version: Version) -> str:
        run = read_run(folder)
        state = (len(run.attempts), run.finished)
        if folder not in self._pictures or self._pictures[folder][0] != state:
            if len(self._pictures) >= _KEPT:
                del self._pictures[next(iter(self._pictures))]
            self._pictures[folder] = (state, pictures_of(run))
        drawn = self._pictures[folder][1]
        address = f"/run/{quote(key)}"
        live = {"alone": not key, "most": MOST_CHARACTERS, "untold": why_untold(folder)}
        return render("live.html.j2", run, playing=None, address=address, **live, **drawn)

    def folder(self, key: str) -> Path:
        """Return the folder of a run; only listed runs are accepted."""
        folder = run_folders(self.root).get(key.strip("/"))
        if folder is None:
            raise _Refused(404, "There is no such run.")
        return folder

    def steer(self, key: str, what: str, said: dict[str, str]) -> None:
        """Carry out the action of a form."""
        folder = self.folder(key)
        steering = Steering(folder)
        if what == "comment":
            if why := why_untold(folder):
                raise _Refused(400, why)
            steering.say(said.get("text", ""), once="once" in said)
        elif what == "withdraw":
            number = said.get("number", "")
            if not number.isdecimal() or len(number) > 9:
                raise _Refused(400, "There is no such comment.")
            steering.withdraw(int(number))
        else:
            pause(folder, what == "pause")


def _listed(key: str, folder: Path, version: Version) -> Listed:
    return listed(key, folder)


def application(root: Path, port: int) -> ASGIApp:
    """Return the application, which answers on loopback at `port` only."""
    live = Live(root)

    async def runs(request: Request) -> Response:
        if "" in run_folders(root):
            return RedirectResponse("/run/", 303)
        return HTMLResponse(await run_in_threadpool(live.list_page))

    async def run(request: Request) -> Response:
        key = request.path_params["key"]
        tag = _tag(version_of(live.folder(key)))
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        page, version = await run_in_threadpool(live.run_page, key)
        return HTMLResponse(page, headers={"ETag": _tag(version)})

    async def steer(request: Request) -> Response:
        key, what = request.path_params["key"], request.path_params["what"]
        await run_in_threadpool(live.steer, key, what, await _form(request))
        return RedirectResponse(f"/run/{quote(key)}", 303)

    async def style(request: Request) -> Response:
        return Response(environment().get_template("page.css").render(), media_type="text/css")

    async def script(request: Request) -> Response:
        return Response(environment().get_template("live.js").render(), media_type="text/javascript")

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, _Refused) else 400
        return PlainTextResponse(shown(error).encode(errors="replace"), status)

    routes = [
        Route("/", runs),
        Route("/page.css", style),
        Route("/live.js", script),
        *(_steering(what, steer) for what in ("comment", "withdraw", "pause", "continue")),
        Route("/run/{key:path}", run),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={PolicygenError: refused}), port)


def _steering(what: str, answer: Callable[[Request], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        request.path_params["what"] = what
        response: Response = await answer(request)
        return response

    return Route(f"/steer/{what}/{{key:path}}", endpoint, methods=["POST"])


async def _form(request: Request) -> dict[str, str]:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                raise _Refused(413, "The form is too long.")
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ClientDisconnect:
        raise _Refused(400, "The form arrived incomplete.") from None
    except ValueError:
        raise _Refused(400, f"A form here has no more than {_MOST_FIELDS} fields.") from None
    return {name: values[-1] for name, values in fields.items()}


def _tag(version: Version) -> str:
    return f'"{hashlib.sha256(repr(version).encode()).hexdigest()[:24]}"'
