"""API keys: where they are read, and the hosts that may get them; no file alone may choose a host."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from pathlib import Path

import pytest
from chat_server import ChatServer
from services import ANTHROPIC, GEMINI, OPENAI, Service
from support import ALWAYS_DOWN, the_run, transcript_of

import policygen
from policygen.errors import UsageError
from policygen.llm import LLMOptions, connect
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.search.resume import resume
from policygen.search.run import start
from policygen.tasks.load import load_task

OWN = {
    OPENAI: "https://api.openai.com/v1",
    GEMINI: "https://generativelanguage.googleapis.com",
    ANTHROPIC: "https://api.anthropic.com",
}


def untrusted(folder: Path, settings: str) -> Path:
    """A task file that says where requests are sent."""
    source = (Path(policygen.__file__).parents[1] / "envs" / "frozenlake.toml").read_text()
    path = folder / "stranger.toml"
    path.write_text(f"{source}\n[run]\niterations = 1\nfragility = false\n{settings}\n")
    return path


def test_a_task_file_cannot_send_a_key_elsewhere(service: Service, tmp_path: Path) -> None:
    with ChatServer([ALWAYS_DOWN]) as server:
        path = str(untrusted(tmp_path, f'llm = "{service.at(server.url)}"'))
        task = load_task(path)
        with pytest.raises(UsageError) as refused:
            start(task, effective_config(task, path), Path("results"))
        assert server.requests == []
    said = str(refused.value)
    assert f"{server.url}{service.path}: a file may not" in said
    assert service.variable in said
    assert f"the [run] table of {path} would send" in said
    assert "--trust" in said
    assert f"--llm {service.at(server.url)} or" in said
    assert not Path("results").exists()


def test_a_config_file_cannot_either_until_the_user_says_so(keys: None, tmp_path: Path) -> None:
    task, file = load_task("frozenlake"), tmp_path / "settings.toml"
    url = "http://127.0.0.1:9/v1"
    for text, more in (
        (f'llm = "compatible:m"\nbase_url = "{url}"\n', {"base_url": url}),
        (f'llm = "openai:m@{url}"\n', {"llm": f"openai:m@{url}"}),
        ('llm = "openai:m"\n[extra_body]\nweb_search = true\n', {"extra_body": {"web_search": True}}),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"settings\.toml would send .*key in OPENAI_"):
            start(task, effective_config(task, "frozenlake", file=file), tmp_path)
        words = [f"{name}={json.dumps(value) if name == 'extra_body' else value}" for name, value in more.items()]
        for typed in ({"assignments": words}, {"options": more}):
            start(task, effective_config(task, "frozenlake", file=file, **typed), tmp_path)  # type: ignore[arg-type]
        start(task, effective_config(task, "frozenlake", file=file).trusted(), tmp_path)


def test_a_run_folder_cannot_choose_where_a_key_goes(keys: None) -> None:
    with ChatServer([ALWAYS_DOWN]) as server:
        config = {"llm": OPENAI.at(server.url), "iterations": 1}
        task = load_task("frozenlake")
        folder = start(task, effective_config(task, "frozenlake", options=config), Path("results")).folder
        with pytest.raises(UsageError, match=r"config.toml would send the key in OPENAI_API_KEY to http://127"):
            resume(folder)
        assert server.requests == []
        assert [
            path.name
            for path in folder.iterdir()
            if path.name not in ("config.toml", "task.json", "templates.json", ".lock")
        ] == []
        with pytest.raises(UsageError, match="the run uses openai:gpt-5-mini@http"):
            resume(folder, changes={"llm": "openai:gpt-5-mini@http://127.0.0.1:9/v1"})
        list(resume(folder, changes={"llm": OPENAI.at(server.url)}).attempts())
        assert len(server.chats) == 1
        assert Logbook(folder).config().origin("llm")  # and is a file's word again the next time


@pytest.mark.parametrize("one", [OPENAI, GEMINI, ANTHROPIC], ids=lambda one: one.name)
def test_only_the_providers_own_host_is_its_own(one: Service, keys: None) -> None:
    connect(f"{one.spec}@{OWN[one]}", LLMOptions().chosen_by("a file"))
    for part, other in (
        ("https", "http"),
        ("https://", "https://elsewhere.example/"),
        (".com", ".com.example"),
        (".com", ".com:444"),
        ("https://", "https://me:pw@"),
        (".com", ".com\\@elsewhere.example"),
        (".com", ".com@elsewhere.example"),
    ):
        with pytest.raises(UsageError, match="a file would send"):
            connect(f"{one.spec}@{OWN[one].replace(part, other)}", LLMOptions().chosen_by("a file"))


def test_without_a_key_a_file_may_name_a_server(tmp_path: Path) -> None:
    with ChatServer([ALWAYS_DOWN] * 2) as server:
        for spec in ("compatible:m", "ollama:m"):
            path = untrusted(tmp_path, f'base_url = "{server.openai_url}"')
            policygen.run(str(path), llm=spec, out=tmp_path / spec[:4])
        assert len(server.chats) == 2
        assert {chat.headers["authorization"] for chat in server.chats} == {"Bearer none"}


def test_a_dotenv_file_gives_keys_that_the_environment_lacks_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", GEMINI.key)
    monkeypatch.setenv("ANOTHER_SECRET", "very-secret-indeed")
    taken = {"OPENAI_API_KEY": OPENAI.key, "OPENAI_COMPATIBLE_API_KEY": "${ANOTHER_SECRET}"}
    left = ("GEMINI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE")
    left += ("PYTHONPATH", "LD_PRELOAD", "OPENAI_CUSTOM_HEADERS")
    before = dict(os.environ)
    values = {**dict.fromkeys(left, "http://elsewhere"), **taken}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    connect("builtin", LLMOptions())
    assert {name: value for name, value in os.environ.items() if before.get(name) != value} == taken


@pytest.mark.parametrize("content", [b"\xff\xfe=\x00", b"OPENAI_API_KEY='a\n\nb", b"=\n==\n\x00"])
def test_a_dotenv_file_that_is_none_is_one_sentence_or_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".env").write_bytes(content)
    with contextlib.suppress(UsageError):
        connect("builtin", LLMOptions())


def test_an_echoed_key_is_nowhere_in_what_a_run_leaves(service: Service, tmp_path: Path) -> None:
    with ChatServer([f"{ALWAYS_DOWN}\nyour key is {service.key}"]) as server:
        settings = {"llm": service.at(server.url), "iterations": 1}
        policygen.run("frozenlake", **settings, out=tmp_path / "out", cache=tmp_path / "cache")  # type: ignore[arg-type]
    folder = the_run(tmp_path / "out")
    assert "your key is ***" in transcript_of(folder)[0]["reply"]["text"]
    (answer,) = (tmp_path / "cache").iterdir()
    for path in (answer, *folder.rglob("*")):
        assert service.key.encode() not in path.read_bytes(), path


def test_a_password_in_an_address_is_not_stored_and_asked_for_again(keys: None) -> None:
    with ChatServer([ALWAYS_DOWN]) as server:
        url = server.openai_url.replace("://", "://me:pa55word@")
        task = load_task("frozenlake")
        config = effective_config(task, "frozenlake", options={"llm": "ollama:m", "base_url": url, "iterations": 1})
        folder = start(task, config, Path("results")).folder
        assert all(b"pa55word" not in path.read_bytes() for path in folder.iterdir())
        with pytest.raises(UsageError, match=r"are not stored: replace the stars, .* --base-url"):
            resume(folder)
        with pytest.raises(UsageError, match=r"in openai:m@http://\*\*\*@h/v1 are not stored: .* with --llm"):
            connect("openai:m@http://***@h/v1", LLMOptions())
        list(resume(folder, changes={"base_url": url}).attempts())
        assert len(server.chats) == 1
        assert all(b"pa55word" not in path.read_bytes() for path in folder.iterdir())


def test_the_address_that_a_sentence_offers_to_paste_runs_nothing(keys: None, tmp_path: Path) -> None:
    url = "http://elsewhere/$(touch${IFS}owned);x"
    for spec, option, word in (("openai:m@" + url, "--llm", "openai:m@" + url), ("compatible:m", "--base-url", url)):
        options = LLMOptions(base_url=None if "@" in spec else url).chosen_by("a file")
        with pytest.raises(UsageError, match="a file would send the key") as refused:
            connect(spec, options)
        said = str(refused.value).partition("this server, add ")[2].partition(" or --trust")[0]
        assert shlex.split(said) == [option, word]
