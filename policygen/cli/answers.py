"""The command `cache`."""

from __future__ import annotations

from pathlib import Path

import click

from policygen.cli.options import PATH, say


@click.command("cache")
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--clear", "wanted", is_flag=True, help="Remove the cache, even if it is damaged.")
def cache_command(folder: Path, wanted: bool) -> None:
    """Describe the cache of replies in DIR (see `run --cache`), or clear it."""
    from policygen.llm.cache import clear, content

    if wanted:
        freed = clear(folder)
        say(f"cleared, {_size(freed)} freed" if freed else f"there was nothing to clear in {folder}")
        return
    held = content(folder)
    number = sum(count for _, count, _ in held.answers)
    say(f"{number} repl{'ies' if number != 1 else 'y'} in {held.path}, {_size(held.size)}")
    for spec, count, usd in held.answers:
        say(f"  {spec}: {count}, {'cost unknown' if usd is None else f'${usd:.4f} when asked'}")


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MB" if count >= 2**20 else f"{-(-count // 2**10)} KB"
