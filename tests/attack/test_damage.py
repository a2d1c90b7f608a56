"""Damaged run folders: a command that reads one ends well or with a sentence that names a file, without a traceback."""

from __future__ import annotations

import io
import json
import random
import shutil
import tomllib
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from attacks import Tallies, amount
from searched import made
from support import ALWAYS_DOWN, LEANING, NO_POLICY, Line, Written, lake

import policygen

pytestmark = pytest.mark.usefixtures("workplace")

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**40, 2**70, 1e308, -1e308, float("nan"), float("inf"), "", "x", "\x1b[2J\x00", "../../x"),
    *([], {}, [[]], [None], {"a": 1}, [1e9] * 3, "1" * 5000),
)
DEEP = "[" * 60_000 + "]" * 60_000
COMMANDS = ("show", "eval", "plot", "resume", "prompt")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two finished runs, one of a linear policy, and an interrupted one."""
    out = tmp_path_factory.mktemp("runs")
    small: dict[str, Any] = {"iterations": 3, "episodes": 3, "warmup_episodes": 3, "final_episodes": 2, "jobs": 1}
    small["fragility"] = False
    written = Written([LEANING, NO_POLICY, NO_POLICY, NO_POLICY, LEANING])
    lakes = Written([ALWAYS_DOWN, lake("| * | * | up |"), ALWAYS_DOWN])
    found = {
        "table": made("cartpole", out, written, **small),
        "exact": made("frozenlake", out, lakes, **small),
        "linear": made("cartpole", out, policy="linear", refine="cma:12", **small),
    }
    found["unfinished"] = unfinished = policygen.run("cartpole", out=out, **small).folder
    (unfinished / "summary.json").unlink()
    lines = (unfinished / "attempts.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "attempts.jsonl").write_text("".join(lines[:-1]))
    for folder in found.values():
        settings = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(settings.replace('llm = "written:by-hand"', 'llm = "builtin"'))
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def exchanged(value: Any, rng: random.Random) -> Any:
    """The JSON value with something in it replaced, deleted or doubled."""
    path = rng.choice(list(places(value)))
    if not path:
        return rng.choice(VALUES)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    how = rng.random()
    if how < 0.25:
        del parent[path[-1]]
    elif how < 0.35 and isinstance(parent, list):
        parent.append(parent[path[-1]])
    elif how < 0.4 and isinstance(parent, dict):
        parent["\x1b]0;title\x07"] = parent.pop(path[-1])
    else:
        parent[path[-1]] = rng.choice(VALUES)
    return value


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file somehow; returns how."""
    how = rng.choice(("cut", "flip", "flips", "exchange", "exchange", "exchange", "gone", "empty", "deep", "link"))
    content = path.read_bytes()
    if how in ("gone", "link"):
        path.unlink()
        if how == "link":
            path.symlink_to(path.parent.parent / "outside.txt")
        return how
    if how == "cut":
        changed = content[: rng.randrange(len(content))]
    elif how in ("flip", "flips"):
        flipped = bytearray(content)
        for _ in range(1 if how == "flip" else 40):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        changed = bytes(flipped)
    elif how == "exchange":
        try:
            changed = with_a_value_exchanged(path.suffix, content, rng)
        except (TypeError, ValueError):  # what this format cannot say
            changed = b"\xff\xfe" + content
    else:
        changed = DEEP.encode() if how == "deep" else b""
    path.write_bytes(changed)
    return how


def with_a_value_exchanged(suffix: str, content: bytes, rng: random.Random) -> bytes:
    if suffix == ".npz":
        return content[::-1]
    if suffix == ".toml":
        changed = exchanged(tomllib.loads(content.decode()), rng)
        return tomli_w.dumps(changed if isinstance(changed, dict) else {}).encode()
    lines = content.decode().split("\n") if suffix == ".jsonl" else [content.decode()]
    at = rng.randrange(max(1, len(lines) - 1))
    lines[at] = json.dumps(exchanged(json.loads(lines[at]), rng))
    return "\n".join(lines).encode()


# A changed setting may ask for much work: that is no damage, and not what is tried here.
MODEST = {"jobs": 1, "iterations": 4, "episodes": 3, "warmup_episodes": 3, "final_episodes": 3}


def modest(folder: Path) -> None:
    path = folder / "config.toml"
    try:
        settings = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return
    if path.is_symlink():
        return
    for name, most in MODEST.items():
        if isinstance(settings.get(name), int):
            settings[name] = min(settings[name], most)
    if isinstance(settings.get("refine"), str) and settings["refine"] != "none":
        settings["refine"] = "cma:12"
    settings.pop("max_steps", None)
    path.write_text(tomli_w.dumps(settings))


@pytest.mark.parametrize("part", range(4))
def test_damage_ends_in_a_sentence(
    part: int, folders: dict[str, Path], line: Line, tally: Tallies, tmp_path: Path
) -> None:
    held = tally("a damaged file of a run folder gives an error message")
    outside = tmp_path / "outside.txt"
    for seed in range(part, amount(28, 1_200), 4):
        rng = random.Random(seed)
        name = rng.choice(sorted(folders))
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(folders[name], folder)
        outside.write_text("precious")
        victims = [p for p in sorted(folder.iterdir()) if p.suffix in (".json", ".jsonl", ".toml", ".npz")]
        victim = rng.choice(victims)
        how = damage(victim, rng)
        modest(folder)
        command = rng.choice(COMMANDS)
        more = {"eval": ("--episodes", 2), "plot": ("-o", tmp_path / "curves.png")}.get(command, ())
        with held.each(f"seed {seed}: {command} after {how} of {victim.name} in {name}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = line(command, folder, *more)
            assert "Traceback" not in said.err
            assert "\x1b" not in said.err
            if said.code:
                assert said.err.strip()
                assert len(said.err) < 4_000
            assert outside.read_text() == "precious"
    held.check()


def test_an_archive_that_blows_up_is_refused(tmp_path: Path, folders: dict[str, Path], line: Line) -> None:
    folder = tmp_path / "bomb"
    shutil.copytree(folders["unfinished"], folder)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    for compression, body in ((zipfile.ZIP_DEFLATED, b"\0" * 50_000_000), (zipfile.ZIP_STORED, b"\0" * 100)):
        with zipfile.ZipFile(folder / "episodes.npz", "w", compression) as archive:
            archive.writestr("rewards.npy", header.getvalue() + body)
        said = line("resume", folder)
        assert said.code == 1
        assert "episodes.npz is damaged" in said.err
        assert "delete it, and its episodes are played again" in said.err


@pytest.mark.parametrize("lines", [None, 1])
def test_a_run_whose_transcript_is_gone_or_cut_does_not_begin_to_spend_anew(
    lines: int | None, tmp_path: Path, folders: dict[str, Path], line: Line
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folders["unfinished"], folder)
    path = folder / "transcript.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    path.unlink()
    if lines is not None:
        path.write_bytes(b"".join(kept))
    said = line("resume", folder)
    assert said.code == 1
    assert "transcript.jsonl is missing or damaged: it has" in said.err
    assert "restore it from a copy, or start a new run" in said.err
