from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import the_run

from policygen import files
from policygen.errors import LogbookError, UsageError
from policygen.files import (
    append_line,
    check_name,
    json_of,
    read,
    read_lines,
    remove_parts,
    toml_of,
    write_atomically,
    write_named,
)

LONG_KEYS = [
    ".".join([part] * 20_000)
    for part in ("a", '"a b"', "'a#b'", '"a\\"b"', '""', '"é…"', "'a' ", '\t"a=b" ', '"[" . b')
]


@pytest.mark.parametrize("keys", LONG_KEYS, ids=range(len(LONG_KEYS)))
@pytest.mark.parametrize(
    "form", ["{} = 1", "[{}]", "[[{}]]", "x = {{{} = 1}}", 'x = """\n"""\n{} = 1', "x = ''\n{} = 1"]
)
def test_a_key_for_which_the_parser_would_need_very_long_is_refused(keys, form):
    with pytest.raises(ValueError, match="a key has more than 30 parts"):
        toml_of(form.format(keys))


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''", "#"])
def test_texts_with_many_dots_are_no_keys(quote):
    text = "e.g. " * 40 + "a.b" * 40
    read = toml_of(f"a = {quote}{text}{quote if quote != '#' else ''}\n".replace("= #", "= 1 #"))
    assert read["a"] in (text, 1)
    assert toml_of("x = [" + "1.5, " * 50 + "]")["x"] == [1.5] * 50
    assert toml_of(".".join('"p"' for _ in range(30)) + " = 1")
    assert toml_of('[a.b."c d"]\nx = 1.5') == {"a": {"b": {"c d": {"x": 1.5}}}}


LIMITED = """
import resource, signal
from pathlib import Path
from policygen.errors import LogbookError
from policygen.files import append_line, write_atomically

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for write, content in ((write_atomically, "x" * 100_000), (append_line, {"n": "x" * 9999})):
    try:
        write(Path("log.jsonl"), content)
    except LogbookError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_when_the_disk_is_full_the_old_file_stays_and_a_line_costs_only_itself(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"n": 0})
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True, check=False)
    for said in done.stdout.splitlines():
        assert said.startswith("cannot write log.jsonl: File too large; free some space")
    assert len(done.stdout.splitlines()) == 2
    append_line(path, {"n": 1})
    assert [record["n"] for record in read_lines(path)] == [0, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


@pytest.mark.skipif(os.name == "nt", reason="needs links, pipes and devices")
def test_nothing_is_written_or_read_through_a_link_a_pipe_or_a_device(tmp_path):
    target = tmp_path / "target"
    target.write_text('{"n": 1}\n')
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "dangling", tmp_path / "pipe", Path("/dev/full"), Path("/dev/zero")):
        for use in (lambda p: append_line(p, {"n": 2}), lambda p: list(read_lines(p)), lambda p: read(p, bytes)):
            with pytest.raises(LogbookError, match="it is a link, a pipe or a device, not a plain file"):
                use(path)
    write_atomically(tmp_path / "link", "mine")
    assert not (tmp_path / "link").is_symlink()
    assert target.read_text() == '{"n": 1}\n'
    assert not (tmp_path / "new").exists()


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    for name in (".0123456789abcdef.part", ".hidden", "best.json"):
        (tmp_path / name).write_text("")
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "best.json"]


@pytest.mark.parametrize("write", [lambda path: write_atomically(path, "x"), lambda path: append_line(path, {})])
def test_a_place_that_cannot_be_written_is_named_with_what_to_do(tmp_path, write):
    (tmp_path / "taken").write_text("")
    (tmp_path / "folder").mkdir()
    missing = tmp_path / "missing"
    for path, sentence in (
        (tmp_path / "a\0b", "cannot write .*choose another name"),
        (missing / "file", f"^cannot write {missing}/file: the folder {missing} does not exist; make it or"),
        (tmp_path / "taken" / "file", "taken is not a folder; write elsewhere"),
        (tmp_path / "folder", "cannot write .*folder: Is a directory; choose another name"),
    ):
        with pytest.raises(LogbookError, match=sentence):
            write(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "taken"]


@pytest.mark.parametrize(
    "torn", [b'{"n": 1, "te', b'{"n": 1}{"n"', b"\x00\x00\x00", b"\xff\xfe\xff", b"[" * 100_000, b"3", b"null"]
)
def test_a_line_torn_by_a_crash_is_passed_over_and_swallows_no_other(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    append_line(path, {"n": 0})
    with path.open("ab") as file:
        file.write(torn)
    append_line(path, {"n": 2})
    append_line(path, {"n": 3})
    assert [record["n"] for record in read_lines(path)] == [0, 2, 3]


def test_any_text_and_number_survives_the_log_in_one_line(tmp_path):
    path = tmp_path / "log.jsonl"
    texts = ["a\u2028b\u2029c\x85d", "tab\tline\nreturn\r\x0b\x0c\x1c", "–²é漢🙂", '"\\"', "\x00"]
    numbers = [0.1, 1e-300, 1e300, float("inf")]
    cut = json.loads('"cut \\ud83d"')  # half a character, which no file can hold
    for value in (*texts, *numbers, cut):
        append_line(path, {"value": value})
    assert [record["value"] for record in read_lines(path)] == [*texts, *numbers, "cut ?"]
    assert path.read_bytes().count(b"\n") == 10
    write_atomically(path, cut)
    assert path.read_text() == "cut ?"


def test_a_missing_log_is_empty_and_a_folder_or_a_line_without_end_is_an_error(tmp_path, monkeypatch):
    log = tmp_path / "attempts.jsonl"
    assert list(read_lines(log)) == []
    with pytest.raises(LogbookError, match="cannot read"):
        list(read_lines(tmp_path))
    monkeypatch.setattr(files, "LARGEST_FILE", 1_000)
    log.write_text('{"a": 1}\n' + "x" * 5_000)
    with pytest.raises(LogbookError, match=r"attempts\.jsonl is damaged: line 2 has 1,000 bytes or more; restore it"):
        list(read_lines(log, "restore it"))


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
def test_what_a_user_names_is_written_through_a_link_and_not_into_a_pipe_or_a_device(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for content in ("plain", b"again"):
        write_named(tmp_path / "link", content)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").read_text() == "again"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(LogbookError, match=f"^cannot write {path}: it is a pipe or a device; write elsewhere$"):
            write_named(path, "x")


@pytest.mark.parametrize(
    "name", ["a/\udcff", "a\nb", "a\tb", "\x7f", "\x85", "\u2028", "a\0", "a/" + "é" * 128, "ab/" * 1400]
)
def test_a_name_that_no_file_should_have_is_refused_in_one_printable_line(name):
    with pytest.raises(UsageError, match=r"; choose another name$") as refused:
        check_name(name)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("content", "form", "fault"),
    [
        (b"\xff\xfe", str, "is not a UTF-8 text file"),
        (b"{", json_of, "is not JSON: "),
        (b"[" * 100_000, json_of, "is nested too deeply"),
        (b"a = ", toml_of, "is not valid TOML: "),
        (b"a = " + b"[" * 50_000, toml_of, "is nested too deeply"),
        (b'"a!".' * 50_000 + b"b = 1", toml_of, "a key has more than 30 parts"),
        (b"a . 'b c'" * 40_000 + b"b = 1", toml_of, "is not valid TOML: "),
        (b" " * 1_001, str, "it has 1,001 bytes, and at most 1,000 are allowed; shorten it"),
    ],
)
def test_each_damage_is_one_sentence_with_the_path_and_what_to_do(tmp_path, content, form, fault):
    path, most = tmp_path / "file", 1_000 if content.isspace() else 2**20
    path.write_bytes(content)
    with pytest.raises(LogbookError, match=re.escape(fault)) as damage:
        read(path, form, "delete it", most=most)
    assert str(path) in str(damage.value)
    assert "\n" not in str(damage.value)
    assert str(damage.value).endswith(("; delete it", "; shorten it"))
    with pytest.raises(UsageError, match=re.escape(fault)) as refused:
        read(path, form, named=UsageError, most=most)
    assert str(path) in str(refused.value)


def test_files_of_windows_editors_are_read_wherever_text_is(workplace, line):
    """Policies as text and saved, a task file, settings, a template and a run's own files."""
    shipped = files.PACKAGE.parent
    Path("envs").mkdir()
    Path("templates").mkdir()
    for kind, name in (("envs", "cartpole.toml"), ("templates", "improve.j2")):
        Path(kind, name).write_text((shipped / kind / name).read_text(), encoding="utf-8-sig")
    Path("settings.toml").write_text("episodes = 4\nfinal_episodes = 4\n", encoding="utf-8-sig")
    done = line("run", "cartpole", "--iterations", 1, "--config", "settings.toml", "--refine", "none", "--jobs", 1)
    assert done.code == 0, done.err
    folder = the_run(Path("results"))
    for path in [*folder.glob("*.json*"), folder / "config.toml"]:
        path.write_text(path.read_text(), encoding="utf-8-sig")
    Path("lean.txt").write_text("left = 0\nright = angle + spin\n", encoding="utf-8-sig")
    assert line("prompt", "cartpole").code == 0
    for words in (
        ("show", folder),
        ("prompt", folder),
        ("show", folder / "best.json"),
        ("show", "lean.txt", "--task", "cartpole"),
    ):
        said = line(*words)
        assert said.code == 0, said.err
