"""The page about models on call, beside figures of the published code."""

from __future__ import annotations

import re
from pathlib import Path

import mediating
import pytest


@pytest.mark.parametrize("name", ["mediating.md", "mediating_chat.md"])
def test_figures_of_the_published_code_stand_beside_the_rows_of_the_command(name):
    committed = (Path(__file__).parent / name).read_text(encoding="utf-8")
    bare = re.sub(r"(?m)^((?:\|[^|\n]*){6}\|)[^|\n]*\|$", r"\1", committed)  # without the seventh column
    bare = re.sub(r"(?s)The last column was.*?\n\n", "", bare)
    bare, command = re.split(r"\n```sh\npython results/benchmarks/mediating.py ", bare.removesuffix("\n```\n"))
    assert mediating.HEADER in bare
    assert "published" not in bare
    assert mediating.beside_published(bare, command.split()) == committed
