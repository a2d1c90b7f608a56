"""The README and docs/ keep to their lengths; what their first pages tell a reader to type works, in this order."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import forks
from support import CHECKOUT, environment, in_a_process

README, CONTRIBUTING, *PAGES = (
    (CHECKOUT / name).read_text(encoding="utf-8")
    for name in ("README.md", "CONTRIBUTING.md", "docs/start.md", "docs/environment.md", "docs/prompts.md")
)
MOST_LINES, MOST_LINES_OF_DOCS = 110, 900
GENERATED = {"commands.md", "settings.md"}
NOT_RUN = "make demo "  # sets up an environment


def blocks(page: str = README) -> list[tuple[str, str]]:
    """The shell and Python blocks: language and text."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    pages = [path for path in (CHECKOUT / "docs").glob("*.md") if path.name not in GENERATED]
    assert sum(len(page.read_text(encoding="utf-8").splitlines()) for page in pages) <= MOST_LINES_OF_DOCS
    assert sum(NOT_RUN in text for _, text in blocks()) == 1


def test_files_and_headings_it_links_to_exist() -> None:
    headings = {re.sub(r"[^a-z -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)", README, re.M)}
    links = re.findall(r"\]\((?!http)([^)]+)\)", README)
    assert links
    for link in links:
        assert link[1:] in headings if link.startswith("#") else (CHECKOUT / link.partition("#")[0]).exists(), link


def test_names_in_the_guide_for_contributors_exist() -> None:
    examples = {"my_file.py"}  # written by the reader
    named = re.findall(r"`([\w/]+\.(?:py|md|toml|j2))`", CONTRIBUTING)
    assert len(named) > 10
    places = (CHECKOUT, CHECKOUT / "policygen")
    missing = {name for name in named if not any((place / name).exists() for place in places) and "NAME" not in name}
    assert missing == examples
    code = "\n".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "policygen").rglob("*.py"))
    words = re.findall(r"`([A-Z]\w+|\w+_\w+)`", CONTRIBUTING)
    assert {"HostedModel", "PROVIDERS", "reason_to_give_up"} <= {*words}
    assert [word for word in words if not re.search(rf"\b{word}\b", code)] == []


def typed(text: str, work: Path, before: set[str]) -> Iterator[subprocess.CompletedProcess[str]]:
    """Carry out a shell block: our commands as forks, split as a shell does it, and what is between them in a shell.

    A command that was typed before, on any page, is not repeated.
    """
    for ours, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith("policygen ")):
        if ours:
            for words in (shlex.split(line, comments=True)[1:] for line in lines):
                if (command := shlex.join(words)) not in before:
                    before.add(command)
                    fewer = ("--iterations", "2") if words[0] == "run" and "--iterations" not in words else ()
                    yield in_a_process(*words, *fewer, cwd=work, timeout=600)
        else:
            shell = ["sh", "-e", "-c", "\n".join(lines)]
            yield subprocess.run(shell, cwd=work, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_what_they_tell_to_type_works(tmp_path: Path) -> None:
    run = []
    for kind, text in blocks(README + "".join(PAGES)):
        if kind == "python" and (file := re.match(r"# (\w+\.py)\n", text)):  # to be saved under this name
            (tmp_path / file[1]).write_text(text, encoding="utf-8")
        elif NOT_RUN not in text:
            run.append((kind, text))
    assert {kind for kind, _ in run} == {"sh", "python"}
    assert (tmp_path / "tank.py").exists()
    before: set[str] = set()
    for kind, text in run:
        ended = typed(text, tmp_path, before) if kind == "sh" else [forks.run(["-c", text], tmp_path, environment())]
        for done in ended:
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr
    assert {"report.html", "simple.json", "tank.toml"} <= {path.name for path in tmp_path.iterdir()}
    runs = [command for command in before if command.startswith("run ")]
    assert len(runs) + sum(text.count("policygen.run(") for _, text in run) == len(
        [*tmp_path.glob("results/*/summary.json")]
    )
