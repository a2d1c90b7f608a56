"""The served pages: a real server process, real requests, and a real browser; and who is refused.

It tests `extensions.live.app`.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import browsing, needs_chromium
from forks import Fork
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from support import ALWAYS_DOWN, BEST_LAKE, NO_POLICY, Written, environment, in_a_process

import policygen
from policygen.extensions.live.folders import run_folders
from policygen.extensions.live.guard import Guard
from policygen.runs.steering import Steering

IMPATIENT = """
from policygen.cli import main
from policygen.extensions.live import guard

guard.REQUEST_TIMEOUT = 3.0
main()
"""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Server:
    """A server process, and what it answers."""

    folder: Path
    port: int
    process: Fork
    said: Path

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Host": f"127.0.0.1:{self.port}", **named})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())

    def tell(self, path: str, body: str = "", **headers: str) -> Answer:
        return self.ask(path, "POST", body, **{"Origin": self.origin, **headers})

    def half_a_request(self, connection: socket.socket) -> None:
        """Send the beginning of a form."""
        head = f"POST /steer/pause/one HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nOrigin: {self.origin}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\nhalf".encode())


def lengthen(folder: Path) -> None:
    """A run whose prompts are all sent has one more to send."""
    config = (folder / "config.toml").read_text()
    assert "iterations = 3" in config
    (folder / "config.toml").write_text(config.replace("iterations = 3", "iterations = 4"))


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made")
    replies = [ALWAYS_DOWN, f"{NO_POLICY} <script>document.title='taken'</script>", BEST_LAKE]
    return policygen.run(
        "frozenlake", llm=Written(replies), out=out, iterations=3, repairs=0, stop_at=0.99, patience=9
    ).folder


@pytest.fixture(scope="module")
def server(a_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a folder with a finished run, one that goes on, a link to a run elsewhere, and a file that is no run."""
    root = tmp_path_factory.mktemp("results")
    shutil.copytree(a_run, root / "done")
    shutil.copytree(a_run, root / "sweep" / "one-s0")
    shutil.copytree(a_run, root / "going")
    (root / "going" / "summary.json").unlink()
    for name, count in (("attempts.jsonl", 2), ("transcript.jsonl", 2)):
        lines = (a_run / name).read_text().splitlines(keepends=True)
        (root / "going" / name).write_text("".join(lines[:count]))
    (root / "linked").symlink_to(a_run, target_is_directory=True)
    (root / "secret.txt").write_text("secret")
    with started(root) as running:
        yield running


@contextmanager
def started(root: Path) -> Iterator[Server]:
    """A server process for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as place:
        said = Path(place) / "said"
        words, variables = ["-c", IMPATIENT, "serve", root, "--port", 0], environment(PYTHONUNBUFFERED="1")
        process = Fork(words, Path(place), variables, (os.devnull, said, said))
        try:
            while process.poll() is None and not (said.exists() and "\n" in said.read_text()):
                time.sleep(0.01)
            line = said.read_text()
            found = re.match(r"http://127\.0\.0\.1:(\d+)/ \(\d+ runs?; only this machine can open it\)", line)
            assert found, line
            yield Server(root, int(found[1]), process, said)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def test_the_server_stops_without_a_word_though_a_request_is_under_way(tmp_path: Path) -> None:
    with started(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        server.half_a_request(connection)
        assert server.ask("/").status == 200  # the request before is being answered by now
        server.process.send_signal(signal.SIGINT)
        server.process.wait()
        assert server.said.read_text().splitlines()[1:] in ([], ["stopped"])


def test_the_list_has_every_run_with_its_state_and_score(server: Server) -> None:
    page = server.ask("/").text
    assert re.findall(r'<a href="/run/([^"]+)"', page) != []
    rows = {row[0]: row[1] for row in re.findall(r'<tr id="run-([^"]+)">(.*?)</tr>', page)}
    assert set(rows) == {"done", "going", "sweep/one-s0"}  # and not `linked`
    assert "<td>0.740</td>" in rows["done"]
    assert "<td>3 of 3</td><td>finished " in rows["done"]
    assert "<td>1 of 3</td><td>unfinished " in rows["going"]
    assert "<polyline points=" in rows["done"]


def test_a_run_has_its_page_and_is_not_made_again_while_nothing_changes(server: Server) -> None:
    answer = server.ask("/run/sweep/one-s0")
    assert answer.status == 200
    assert "0.740" in answer.text
    assert "&lt;script&gt;" in answer.text
    assert set(re.findall(r"<script[^>]*>", answer.text)) == {'<script src="/live.js" defer>'}
    assert server.ask("/run/sweep/one-s0", If_None_Match=answer.headers["etag"]).status == 304
    assert server.ask("/page.css").headers["content-type"].startswith("text/css")
    assert server.ask("/live.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    [
        *("/secret.txt", "/run/secret.txt", "/run/linked", "/run/../secret.txt", "/run/%2e%2e/secret.txt"),
        *("/run/done/..", "/run/done/best.json", "/run//etc/passwd", "/run/done%00"),
        *("/page.css/../secret.txt", "/..%2fsecret.txt"),
    ],
)
def test_no_file_is_served_whatever_is_asked_for(server: Server, path: str) -> None:
    answer = server.ask(path)
    assert answer.status == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "rebound.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:{port}.rebound.example"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
def test_other_hosts_pages_are_refused(server: Server, headers: dict[str, str]) -> None:
    said = {name: value.format(port=server.port) for name, value in headers.items()}
    for answer in (server.ask("/run/done", **said), server.tell("/steer/comment/going", "text=no", **said)):
        assert answer.status == 403
        assert "frozenlake" not in answer.text
    assert Steering(server.folder / "going").read().comments == ()


def test_a_change_needs_an_origin_and_a_link_from_elsewhere_may_be_followed(server: Server) -> None:
    assert server.ask("/steer/comment/going", "POST", "text=no").status == 403
    assert server.ask("/steer/pause/going").status == 405  # by a form, never by a link
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert server.ask("/run/done", **followed).status == 200
    assert server.ask("/run/done", Host=f"localhost:{server.port}").status == 200


def test_every_answer_says_what_a_browser_may_do_with_it(server: Server) -> None:
    for path in ("/", "/run/done", "/nowhere", "/live.js"):
        headers = server.ask(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "server" not in headers


def test_a_run_is_told_something_paused_and_let_go_on(server: Server, tmp_path: Path) -> None:
    assert "Tell the model</button>" not in server.ask("/run/sweep/one-s0").text
    (server.folder / "sweep" / "one-s0" / "summary.json").unlink()  # an unfinished one
    lengthen(server.folder / "sweep" / "one-s0")
    steering = Steering(server.folder / "sweep" / "one-s0")
    answer = server.tell("/steer/comment/sweep/one-s0", "text=Brake+%C3%A9arlier&once=1")
    assert (answer.status, answer.headers["location"]) == (303, "/run/sweep/one-s0")
    (comment,) = steering.read().comments
    assert (comment.text, comment.once) == ("Brake éarlier", True)
    assert "Brake éarlier" in server.ask("/run/sweep/one-s0").text
    assert server.tell("/steer/withdraw/sweep/one-s0", "number=1").status == 303
    assert steering.read().comments[0].withdrawn
    server.tell("/steer/pause/sweep/one-s0")
    assert steering.read().paused
    server.tell("/steer/continue/sweep/one-s0")
    assert not steering.read().paused


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("comment/going", "text=", 400, "the comment is empty"),
        ("comment/going", f"text={'x' * 3_000}", 400, "may have 2,000; shorten it"),
        ("comment/going", f"text={'x' * 100_000}", 413, "The form is too long."),
        ("comment/done", "text=hello", 400, "the run is finished: no prompt will carry a comment"),
        ("pause/done", "", 400, "is finished: there is nothing to pause"),
        ("comment/nowhere", "text=hello", 404, "There is no such run."),
        ("stop/going", "", 404, "There is no such form."),
        ("comment/going", "&".join(f"text{i}=x" for i in range(11)), 400, "The form has more than 10 fields."),
        ("comment/linked", "text=hello", 404, "There is no such run."),
        ("withdraw/going", "number=9", 400, "no comment is active"),
        ("withdraw/going", "number=../9", 400, "There is no such comment."),
    ],
)
def test_what_cannot_be_done_is_a_sentence(server: Server, path: str, body: str, status: int, sentence: str) -> None:
    answer = server.tell(f"/steer/{path}", body)
    assert answer.status == status
    assert sentence in answer.text


def test_a_single_run_is_served_as_well_and_mistakes_are_one_sentence(a_run: Path, tmp_path: Path) -> None:
    assert run_folders(a_run) == {"": a_run}
    with started(a_run) as server:
        assert (server.ask("/").status, server.ask("/").headers["location"]) == (303, "/run/")
        assert "0.740" in server.ask("/run/").text
        assert server.tell("/steer/comment/", "text=").status == 400
        taken = in_a_process("serve", a_run, "--port", server.port, cwd=tmp_path)
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert "cannot be used" in taken.stderr


def test_a_folder_whose_name_is_no_text_spoils_no_page(a_run: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    shutil.copytree(os.fsdecode(os.fsencode(a_run)), os.fsdecode(folder))
    shutil.copytree(a_run, tmp_path / "other")
    with started(tmp_path) as server:
        listed = server.ask("/")
        assert (listed.status, listed.text.count('href="/run/')) == (200, 2)
        (address,) = re.findall(r'href="(/run/caf[^"]+)"', listed.text)
        assert server.ask(address).status == 200


def test_connections_that_ask_nothing_keep_nobody_out_and_are_closed(server: Server) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(70)]
    try:
        idle[-1].sendall(b"GET / HTTP/1.1\r\nHost:")  # and no more of it
        server.half_a_request(idle[-2])
        assert server.ask("/").status == 200
        assert [connection.recv(1) for connection in idle] == [b""] * 70
        assert server.ask("/").status == 200
    finally:
        for connection in idle:
            connection.close()


@needs_chromium
def test_a_browser_sees_a_run_go_on_and_can_say_something_to_it(server: Server, a_run: Path) -> None:
    going = server.folder / "going"
    with browsing() as browser:
        for width in (390, 1400):
            browser.open(f"{server.origin}/", width=width)
            assert browser.value("document.documentElement.scrollWidth") <= width
        browser.open(f"{server.origin}/run/going", width=390)
        assert browser.value("document.querySelectorAll('details.attempt').length") == 2
        browser.value("document.getElementById('attempt-1').open = true; window.stays = 1")
        browser.value("document.getElementById('text').value = 'I am writing'")

        for name in ("transcript.jsonl", "attempts.jsonl"):  # the run goes on
            shutil.copyfile(a_run / name, going / name)
        lengthen(going)
        browser.until("document.querySelectorAll('details.attempt').length === 4")
        assert browser.value("window.stays") == 1  # without the page being loaded again
        assert browser.value("document.getElementById('attempt-1').open")
        assert browser.value("document.getElementById('text').value") == "I am writing"
        assert browser.value("document.querySelector('.headline').textContent") == "0.740"

        browser.value("document.getElementById('text').value = 'Mind the <b>ice</b>'")
        browser.value("document.querySelector('form.say button').click()")
        browser.until("document.querySelector('.standing .told')?.textContent === 'Mind the <b>ice</b>'")
        assert [comment.text for comment in Steering(going).read().comments] == ["Mind the <b>ice</b>"]
        browser.value("document.querySelector('.standing button').click()")
        browser.until("!document.querySelector('.standing')")
        browser.value("document.querySelector('#steering button').click()")
        browser.until("document.querySelector('#steering button').textContent === 'Continue'")
        assert Steering(going).read().paused
        assert browser.value("document.title") == "frozenlake: 0.740"
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
        assert {address[: len(server.origin)] for address in browser.requests} == {server.origin}


@pytest.mark.parametrize(("port", "status"), [(80, 200), (8080, 403)])
def test_only_on_port_80_a_host_needs_no_port(port: int, status: int) -> None:
    browser = TestClient(Guard(PlainTextResponse("in"), port), base_url="http://localhost")
    assert browser.get("/").status_code == status
    assert browser.post("/", headers={"Origin": "http://localhost"}).status_code == status
    assert browser.get("/", headers={"Host": "rebound.example"}).status_code == 403
