"""A request ends in time, whatever a server does with its bytes, and leaves nothing behind."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from services import ANTHROPIC, GEMINI, OPENAI, Asked, Service

from policygen.errors import ProviderError, TransientProviderError
from policygen.llm import transport


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request's first bytes and lets `answer` speak; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=speak, args=(connection,), daemon=True).start()

        def speak(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.recv(65536)
                    answer(connection)
                except OSError:
                    pass

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def dripping(beginning: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(beginning)
        while True:
            connection.sendall(b"a")
            time.sleep(0.02)

    return answer


DRIPS = {
    "in the first line": b"",
    "in the headers": b"HTTP/1.1 200 OK\r\nx-slow: ",
    "in the body": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{"a": "',
    "in a body without end": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"a": "',
}


@pytest.mark.parametrize(
    ("one", "where"),
    [*((OPENAI, where) for where in DRIPS), (GEMINI, "in the body"), (ANTHROPIC, "in the body")],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.usefixtures("keys")
def test_a_server_that_drips_does_not_hold_a_request(one: Service, where: str, asked: Asked) -> None:
    with serving(dripping(DRIPS[where])) as url:
        with pytest.raises(ProviderError, match=r"gave up after 1 try: .* gave no answer within 0\.2 s"):
            asked(one.connect(url, timeout_seconds=0.2), max_retries=0)
        for _ in range(200):
            if not [one for one in threading.enumerate() if one.name == "request to a model"]:
                break
            time.sleep(0.01)
        assert not [one for one in threading.enumerate() if one.name == "request to a model"]


def test_a_body_without_end_is_given_up_for_its_size(
    service: Service, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LONGEST_BODY", 2**20)

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while True:
            connection.sendall(b" " * 65536)

    with serving(flood) as url, pytest.raises(ProviderError, match="longer than 1 MB") as failure:
        asked(service.connect(url))
    assert not isinstance(failure.value, TransientProviderError)
    assert asked.waits == []


def test_an_answer_that_cannot_be_read_is_final(service: Service, asked: Asked) -> None:
    page = b"content-type: text/html\r\ncontent-length: 20\r\n\r\n<html>welcome</html>"
    for answer in (b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd", page):
        sent = b"HTTP/1.1 200 OK\r\n" + answer
        with (
            serving(lambda to, sent=sent: to.sendall(sent)) as url,  # type: ignore[misc]
            pytest.raises(ProviderError, match=url) as failure,
        ):
            asked(service.connect(url))
        assert not isinstance(failure.value, TransientProviderError)
    assert asked.waits == []
