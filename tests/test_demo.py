"""`make demo` ends with a policy that is read at a glance, its map, its picture, and commands that can be pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support import CHECKOUT, in_a_process

COMMAND = "$(BIN)/policygen "


def recipe() -> list[str]:
    """The lines of the target."""
    found = re.search(r"^demo:.*\n((?:\t.*\n)+)", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return [line.strip() for line in found[1].splitlines()]


def test_the_demo_ends_with_a_policy_to_read_and_commands_to_paste(tmp_path: Path) -> None:
    typed = [line.removeprefix(COMMAND) for line in recipe() if line.startswith(COMMAND)]
    assert typed[0].startswith("run ")
    for words in map(shlex.split, typed):
        done = in_a_process(*words, cwd=tmp_path)
        assert done.returncode == 0, done
        assert "Warning" not in done.stderr
    _, _, sentences = done.stdout.partition(
        '# In words (the first matching line applies; "from a to b" includes a, not b):\n'
    )
    rows = [line for line in sentences.splitlines() if " -> " in line]
    assert 2 <= len(rows) <= 10
    assert rows[-1] == "#   otherwise -> left"
    assert all(
        re.search(r"(angle|spin|position|velocity) .*\d (rad|m)(/s)?.* -> (left|right)$", row) for row in rows[:-1]
    )
    _, _, drawn = sentences.partition("# Map of the actions ")
    assert len(re.findall(r"^#  .* [<>]( +[<>])+$", drawn, re.MULTILINE)) > 2
    picture = Path(drawn.splitlines()[-1].removeprefix("picture: "))
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")

    next_ones = [re.search(r"\$\(BIN\)/policygen (.*)'$", line) for line in recipe() if line.startswith("@echo '  ")]
    model, own, page = (shlex.split(found[1], comments=True) for found in next_ones if found is not None)
    asked = in_a_process(*model, cwd=tmp_path)
    assert (asked.returncode, "OPENAI_API_KEY" in asked.stderr) == (2, True), asked
    assert in_a_process(*page, cwd=tmp_path).returncode == 0
    assert (tmp_path / "report.html").exists()
    assert in_a_process(*own, "--iterations", 1, "--jobs", 1, cwd=tmp_path).returncode == 0
