"""Text that is printed or written holds no secrets, and no characters that control a terminal."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from chat_server import ChatServer
from hypothesis import given
from hypothesis import strategies as st
from support import ALWAYS_DOWN

import policygen
from policygen.files import append_line, read_lines, write_atomically
from policygen.outgoing import json_safe, plain, redacted, shown

pytestmark = pytest.mark.usefixtures("workplace")

KEY = "sk-proj-canary-0123456789"
NASTY = "\x1b]0;title\x07 \x1b[2J \x9b31m \u202eevil\u2066 \x08\x7f \r\n\ttab"


def test_every_key_that_is_set_is_hidden_and_a_stand_in_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{KEY}-and-more")
    assert redacted(f"a {KEY} b {KEY}-and-more c{KEY}d") == "a *** b *** c***d"
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "none")
    assert redacted("none of them") == "none of them"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at http://me:pa55@host:8000/v1 now", "at http://***@host:8000/v1 now"),
        ("https://token@host and https://a:b@c", "https://***@host and https://***@c"),
        ("http://me:p@ss@host/", "http://***@host/"),
        ("http://host/v1?mail=me@there", "http://host/v1?mail=me@there"),
        ("write to me@there", "write to me@there"),
    ],
)
def test_user_and_password_in_an_address_are_hidden(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_the_login_of_an_address_is_hidden_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policygen.outgoing._LOGINS", set())
    login = base64.b64encode(b"me:pa55?word>").decode()
    with ChatServer([f"{ALWAYS_DOWN}\nYou sent Basic {login}, pa55?word> and me:pa55?word>."]) as server:
        address = server.openai_url.replace("://", "://me:pa55%3Fword%3E@")
        folder = policygen.run("frozenlake", llm=f"compatible:m@{address}", iterations=1).folder
        assert server.chats[0].headers["authorization"] == f"Basic {login}"
    for path in folder.rglob("*"):
        for secret in (login.rstrip("=").encode(), b"pa55"):
            assert secret not in path.read_bytes(), path
    assert "You sent Basic ***" in (folder / "transcript.jsonl").read_text()


def test_what_a_terminal_obeys_becomes_visible() -> None:
    assert plain("\x1b]8;;http://x\x07link") == "\\x1b]8;;http://x\\x07link"
    assert shown("x\udcff\ud83d").encode() == rb"x\udcff\ud83d"  # half a character by its number
    assert plain("a\u202eb\x9bc\U000e0041") == "a\\u202eb\\x9bc\\U000e0041"
    assert plain("lines\nand\ttabs, é, 漢字, 🙂, −") == "lines\nand\ttabs, é, 漢字, 🙂, −"


@given(st.text())
def test_nothing_shown_is_a_control_character(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown(text))


@given(st.text())
def test_a_line_of_json_reads_back_as_it_was(text: str) -> None:
    line = json_safe(json.dumps(text, ensure_ascii=False))
    assert json.loads(line) == text
    assert plain(line) == line


def test_files_hold_no_secret_and_logs_no_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    append_line(tmp_path / "log", {"text": NASTY + KEY})
    write_atomically(tmp_path / "text", f"{KEY} http://me:pa55@host")
    assert list(read_lines(tmp_path / "log")) == [{"text": f"{NASTY}***"}]
    raw = (tmp_path / "log").read_text()
    assert plain(raw) == raw
    assert (tmp_path / "text").read_text() == "*** http://***@host"


def test_the_command_line_prints_nothing_on_another_way() -> None:
    text = "".join(path.read_text() for path in (Path(policygen.__file__).parent / "cli").glob("*.py"))
    assert text.count("click.echo(") == 1  # in `say`
    assert not re.search(r"\bprint\(", text)
