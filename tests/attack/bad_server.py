"""A server on loopback that misbehaves in one of the `MODES`, in the wire protocols of OpenAI, Gemini and Anthropic.

A mode is a function from the request to what is written: bytes, a number (seconds to wait) or `RESET`. Adding a line to
the table is adding a test.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chat_server import Scripted, _anthropic, _gemini, _openai

Chunk = bytes | float
RESET = -1.0
HANG = 60.0  # as good as for ever: the client's time is over long before
DRIP = 0.02


@dataclass(frozen=True)
class Call:
    """One request as a mode sees it: what came, what a good server would say, and where another server is."""

    path: str
    key: str
    other: str
    good: dict[str, Any]

    def with_text(self, content: object) -> dict[str, Any]:
        """A good reply with something else where the text belongs."""
        body = copy.deepcopy(self.good)
        if "choices" in body:
            body["choices"][0]["message"]["content"] = content
        elif "candidates" in body:
            body["candidates"][0]["content"]["parts"][0]["text"] = content
        else:
            body["content"][0]["text"] = content
        return body

    def with_answers(self, answers: object) -> dict[str, Any]:
        """A good reply with something else where the list of answers belongs."""
        return self.good | {next(name for name in ("choices", "candidates", "content") if name in self.good): answers}

    def with_usage(self, count: object) -> dict[str, Any]:
        """A good reply with other token counts."""
        names = [name for name in ("usage", "usageMetadata") if isinstance(self.good.get(name), dict)]
        return self.good | {name: dict.fromkeys(self.good[name], count) for name in names}


Mode = Callable[[Call], Iterable[Chunk]]


def http(body: object = b"", status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """A response as bytes; `body` is JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", "connection: close", *headers]
    if not any(one.lower().startswith("content-type") for one in headers):
        lines.append("content-type: application/json")
    lines.append(f"content-length: {len(content) if length is None else length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + content


def says(make: Callable[[Call], object], status: str = "200 OK", *headers: str) -> Mode:
    return lambda call: [http(make(call), status, *headers)]


def fails(status: str, message: object = "no", *headers: str) -> Mode:
    return lambda call: [http({"error": {"message": message, "type": "odd", "code": status[:3]}}, status, *headers)]


def redirects(status: str, target: str = "{other}{path}") -> Mode:
    return lambda call: [http(b"", status, f"location: {target.format(other=call.other, path=call.path)}")]


def floods(beginning: bytes, block: bytes, *pauses: float) -> Mode:
    def mode(call: Call) -> Iterator[Chunk]:
        yield beginning
        while True:
            yield block
            yield from pauses

    return mode


def drips(beginning: bytes, byte: bytes = b"a") -> Mode:
    return floods(beginning, byte, DRIP)


_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
_DEEP = b"[" * 200_000 + b"]" * 200_000
_ODD = {
    "null": None,
    "zero": 0,
    "number": 5,
    "word": "5",
    "mapping": {"a": 1},
    "empty list": [],
    "list": ["a", {"text": "b"}, None],
}
_ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"


def _half(call: Call) -> bytes:
    body = json.dumps(call.good).encode()
    return body[: len(body) // 2]


MODES: dict[str, Mode] = {
    # --- statuses
    **{
        f"{status[:3]} elsewhere": redirects(status)
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect")
    },
    "redirect to itself": redirects("307 Temporary Redirect", "{path}"),
    "redirect to a file": redirects("307 Temporary Redirect", "file:///etc/passwd"),
    "redirect to nowhere": redirects("302 Found", ""),
    "300 without a choice": fails("300 Multiple Choices"),
    "304 to a question": fails("304 Not Modified"),
    "204 with nothing": lambda call: [b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"],
    "100 for ever": floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "101 to another protocol": fails("101 Switching Protocols", "no", "upgrade: websocket"),
    "400 that quotes the key": lambda call: [
        http({"error": {"message": f"bad key {call.key}", "type": call.key, "code": call.key}}, "400 Bad Request")
    ],
    "400 that rejects what was not sent": fails("400 Bad Request", "Unsupported parameter: 'messages'"),
    "400 that rejects every limit": fails(
        "400 Bad Request", "Unsupported parameter: 'max_tokens' and 'max_completion_tokens' and 'temperature'"
    ),
    **{
        status[:3]: fails(status)
        for status in ("401 Unauthorized", "402 Payment Required", "403 Forbidden", "404 Not Found", "418 I'm a teapot")
    },
    "422 with a list": fails("422 Unprocessable Entity", [{"loc": ["body"], "msg": "no"}]),
    "429 without a time": fails("429 Too Many Requests"),
    **{
        f"429 {words}": fails("429 Too Many Requests", "later", f"retry-after: {after}")
        for words, after in {
            "for a year": "31536000",
            "for less than no time": "-5",
            "until no number": "nan",
            "until a date that is none": "Fri, 99 Foo 99999 99:99:99",
            "for all eternity": "1e400",
        }.items()
    },
    "500": fails("500 Internal Server Error"),
    "503 with a page": says(lambda call: b"<html>busy</html>", "503 Service Unavailable", "content-type: text/html"),
    "529": fails("529 Overloaded"),
    "999": fails("999 What"),
    "no status": lambda call: [b"HTTP/1.1 abc OK\r\n\r\n"],
    "error with escapes": fails("500 Internal Server Error", _ESCAPES),
    "error that is a number": says(lambda call: 5, "400 Bad Request"),
    "error of errors": fails("400 Bad Request", {"message": {"message": [1, 2, {"a": None}]}}),
    "error with odd codes": says(
        lambda call: {"error": {"message": [], "type": {}, "code": [1], "param": {"a": 1}, "details": {"a": 3}}},
        "400 Bad Request",
    ),
    "error with odd details": says(
        lambda call: {"error": {"code": "x", "message": None, "details": [{"violations": [1], "retryDelay": {}}, 3]}},
        "429 Too Many Requests",
    ),
    "error of a megabyte": fails("500 Internal Server Error", "no " * 300_000),
    "error that nests": lambda call: [http(_DEEP, "400 Bad Request")],
    # --- time
    "silence": lambda call: [HANG],
    "silence after the status": lambda call: [b"HTTP/1.1 200 OK\r\n", HANG],
    "silence in the body": lambda call: [_OK + b"content-length: 1000\r\n\r\n{", HANG],
    "drips from the start": drips(b""),
    "drips in a header": drips(_OK + b"x-slow: "),
    "drips headers": drips(_OK, b"a: b\r\n"),
    "drips in the body": drips(_OK + b"content-length: 100000\r\n\r\n{"),
    "drips chunks": drips(_OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "drips after a whole reply": lambda call: [
        _OK + b"\r\n" + json.dumps(call.good).encode(),
        *(part for _ in range(3000) for part in (b" ", DRIP)),
    ],
    # --- connections
    "closes at once": lambda call: [],
    "resets at once": lambda call: [RESET],
    "resets in the body": lambda call: [_OK + b"content-length: 1000\r\n\r\n{", RESET],
    "half a body": lambda call: [http(_half(call), length=len(json.dumps(call.good)))],
    "half a body, and that is all": lambda call: [http(_half(call))],
    "more than was announced": lambda call: [http(call.good, length=10)],
    "a length below zero": lambda call: [http(call.good, length=-5)],
    "two lengths": lambda call: [http(call.good, "200 OK", "content-length: 3")],
    "length and chunks": lambda call: [http(call.good, "200 OK", "transfer-encoding: chunked")],
    "a chunk of no size": lambda call: [_OK + b"transfer-encoding: chunked\r\n\r\nxyz\r\n"],
    "a chunk of every size": lambda call: [_OK + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{", HANG],
    "two replies": lambda call: [http(call.good) + http(call.good)],
    "another protocol": lambda call: [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "noise": lambda call: [bytes(range(256)) * 50],
    # --- headers
    "headers without end": floods(_OK, b"x-more: " + b"a" * 1000 + b"\r\n"),
    "a header of a megabyte": lambda call: [_OK + b"x: " + b"a" * 2**20 + b"\r\n\r\n{}"],
    "cookies": says(lambda call: call.good, "200 OK", "set-cookie: track=me; Path=/; Max-Age=99999"),
    "escapes in headers": says(lambda call: call.good, "200 OK", "x-request-id: \x9b31m"),
    "a refresh elsewhere": lambda call: [http(call.good, "200 OK", f"refresh: 0; url={call.other}")],
    # --- bodies
    "empty": says(lambda call: b""),
    "a page": says(lambda call: b"<html>welcome</html>", "200 OK", "content-type: text/html"),
    "a page that says it is JSON": says(lambda call: b"<html>welcome</html>"),
    "wrong encoding": says(lambda call: b"not gzip", "200 OK", "content-encoding: gzip"),
    "unknown encoding": says(lambda call: b"\x00\x01", "200 OK", "content-encoding: zip-zap"),
    "a gzip bomb": lambda call: [http(gzip.compress(b" " * 2**25), "200 OK", "content-encoding: gzip")],
    "no text encoding": says(lambda call: b'{"choices": "\xff\xfe\xff"}'),
    "utf-16": says(
        lambda call: json.dumps(call.good).encode("utf-16"), "200 OK", "content-type: application/json; charset=utf-16"
    ),
    "charset of its own": says(lambda call: call.good, "200 OK", "content-type: application/json; charset=rot13"),
    "a body without end": floods(_OK + b"\r\n", b" " * 65536),
    "deep lists": lambda call: [http(_DEEP)],
    "deep mappings": lambda call: [http(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)],
    **{f"a {words}": says(lambda call, value=value: value) for words, value in _ODD.items()},
    "a number of 10,000 digits": lambda call: [http(b'{"usage": ' + b"9" * 10_000 + b"}")],
    "an event stream": says(lambda call: b"data: {}\n\ndata: [DONE]\n\n", "200 OK", "content-type: text/event-stream"),
    # --- answers
    **{f"answers: {words}": says(lambda call, value=value: call.with_answers(value)) for words, value in _ODD.items()},
    **{f"text: {words}": says(lambda call, value=value: call.with_text(value)) for words, value in _ODD.items()},
    **{f"usage: {words}": says(lambda call, value=value: call.with_usage(value)) for words, value in _ODD.items()},
    "text with half characters": says(lambda call: call.with_text("a\ud800b\x00c")),
    "text that quotes the key": says(lambda call: call.with_text(f"your key is {call.key}")),
    "text with escapes": says(lambda call: call.with_text(_ESCAPES)),
    "text longer than asked": says(lambda call: call.with_text("a b c " * 50_000)),
    "text of brackets": says(lambda call: call.with_text("((((" * 20_000)),
    "thoughts without end": says(lambda call: call.with_text("<think>" * 5_000)),
    "usage below zero": says(lambda call: call.with_usage(-5)),
    "usage beyond belief": says(lambda call: call.with_usage(10**30)),
    "usage with a fraction": says(lambda call: call.with_usage(1.5)),
    "usage a number": says(lambda call: {**call.good, "usage": 5, "usageMetadata": 5}),
    "usage a list": says(lambda call: {**call.good, "usage": [1], "usageMetadata": [1]}),
    "model of another kind": says(lambda call: {**call.good, "model": {"a": 1}, "modelVersion": 5}),
    "model that is none": says(lambda call: {**call.good, "model": "builtin", "modelVersion": "builtin"}),
    "model with escapes": says(lambda call: {**call.good, "model": _ESCAPES, "modelVersion": _ESCAPES}),
    "an error in a good reply": says(lambda call: {**call.good, "error": {"code": "x", "message": {"a": 1}}}),
    "an error instead of a reply": says(lambda call: {"error": {"code": True, "message": ["a"]}}),
}


@dataclass
class BadServer:
    """Answers every request as `mode` says; keeps the lines and headers of what it was asked in `requests`.

    Use as a context manager; `other` is the address of a server that no request may reach.
    """

    other: str
    key: str
    mode: str = "500"
    requests: list[bytes] = field(default_factory=list)

    def __enter__(self) -> BadServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        # Connections by the client's port; an event is set when the request is read.
        self._unread: dict[int, threading.Event] = {}
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def begin(self, mode: str) -> None:
        """Answer in another mode from now on, and forget the requests so far, late ones that were given up included."""
        with socket.create_connection(self._listener.getsockname()) as last:
            port, patience = last.getsockname()[1], time.monotonic() + 30
            while port not in self._unread and time.monotonic() < patience:  # it is taken after all that came before
                time.sleep(0.001)
        for read in list(self._unread.values()):
            read.wait(30)
        self._unread.clear()
        self.mode = mode
        self.requests.clear()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            read = self._unread[address[1]] = threading.Event()
            threading.Thread(target=self._answer, args=(connection, read), daemon=True).start()

    def _answer(self, connection: socket.socket, read: threading.Event) -> None:
        with contextlib.suppress(OSError), connection:
            try:
                request = _read(connection)
                if not request:
                    return
                self.requests.append(request)
            finally:
                read.set()
            path = request.split(b" ", 2)[1].decode()
            for chunk in MODES[self.mode](Call(path, self.key, self.other, _good(path))):
                if chunk == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if isinstance(chunk, bytes):
                    connection.sendall(chunk)
                elif _gone(connection, chunk):
                    return
            connection.shutdown(socket.SHUT_WR)
            _gone(connection, 1.0)


def _gone(connection: socket.socket, seconds: float) -> bool:
    """Wait so long, or until the client has gone."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    finally:
        connection.settimeout(None)


def _read(connection: socket.socket) -> bytes:
    """Read a request with its body; empty if the client leaves before its end."""
    request = b""
    while True:
        head, end, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            return request
        block = connection.recv(65536)
        if not block:
            return b""
        request += block


def _good(path: str) -> dict[str, Any]:
    scripted = Scripted("| * | * | down |")
    if path.partition("?")[0].endswith(":generateContent"):
        return _gemini(scripted, "gemini-2.5-flash")
    if path.startswith("/v1/messages"):
        return _anthropic(scripted, "claude-sonnet-4-6")
    return _openai(scripted, "gpt-5-mini")
