"""The commands `prompt` and `templates`, for editing prompts."""

# Imports inside functions keep the start-up time short.

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click

from policygen.cli.options import BUDGETS, RUN_SETTINGS, TRUST, say
from policygen.errors import UsageError


@click.command()
@click.argument("task", metavar="TASK|RUN")
@RUN_SETTINGS
@BUDGETS
@TRUST
def prompt(task: str, config_file: Path | None, assignments: tuple[str, ...], trust: bool, **options: Any) -> None:
    """Print the prompt that a model would get: the first one of TASK, or the next one of RUN."""
    from policygen.search.preview import preview

    shown = preview(task, config_file, assignments, options, trust=trust)
    for message in shown.prompt.messages:
        say(f"--- {message.role} ---\n{message.content}")
    say(shown.remark, err=True)


@click.group(invoke_without_command=True)
@click.pass_context
def templates(context: click.Context) -> None:
    """List, show, copy and compare the templates that prompts are rendered from.

    A copy in ./templates replaces the shipped template of its name; `policygen prompt TASK` shows the result.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_templates)


@templates.command("list")
def list_templates() -> None:
    """List the templates with their origin and content."""
    from policygen.prompts.catalogue import IN_CHECKOUT, TemplateEntry, catalogue, in_checkout

    one_folder = in_checkout()

    def place(entry: TemplateEntry) -> str:
        if not entry.own:
            return "templates/" if one_folder else "shipped"
        if entry.changed is None:
            return "yours"
        like = "shipped" if entry.origin == entry.name else entry.origin
        lines = f"{entry.changed} line{'' if entry.changed == 1 else 's'}"
        return f"yours, {lines} from {like}" if entry.changed else f"yours, as {like}"

    entries = catalogue()
    width = max((len(entry.name) for entry in entries), default=0) + 2
    places = [place(entry) for entry in entries]
    wide = max(map(len, places), default=0) + 2
    for entry, where in zip(entries, places, strict=True):
        say(f"{entry.name.ljust(width)}{where.ljust(wide)}{entry.about}")
    if one_folder:
        say(f"\nNote: {IN_CHECKOUT}")
    change = "policygen templates copy improve_table --as mine, then edit templates/mine.j2"
    say(f"{'' if one_folder else chr(10)}Change one: {change} and name it: --template mine")


@templates.command("show")
@click.argument("name")
@click.option("--shipped", is_flag=True, help="Print the shipped one, even if a copy of yours replaces it.")
@click.option("--variables", is_flag=True, help="Print its variables instead: name, type, an example value.")
def show_template(name: str, shipped: bool, variables: bool) -> None:
    """Print template NAME as used here."""
    from policygen.prompts.catalogue import parts_of, text_of

    if variables:
        read, others = _variables(name)
        widths = [max((len(row[i]) for row in read), default=0) + 2 for i in range(2)]
        for path, kind, example in read:
            say(f"{path.ljust(widths[0])}{kind.ljust(widths[1])}{example}")
        if others:
            say(f"(given too, but not used here: {', '.join(others)})", err=True)
        return
    say(text_of(name, as_shipped=shipped).rstrip("\n"))
    if not shipped and (parts := parts_of(name)):
        say(f"(it uses {', '.join(parts)})", err=True)


def _variables(name: str) -> tuple[list[list[str]], list[str]]:
    """Return the variables that a template and its parts read, as path, type and example; and the names of the others.

    A template of one's own is given what the shipped one is that it is most like.
    """
    from policygen.prompts.catalogue import catalogue
    from policygen.prompts.templates import mentions, used_templates

    texts = list(used_templates([name]).values())
    rows: dict[str, list[list[str]]] = {}
    names: list[str] = []
    # Which templates are given what is found by `tests/given.py`.
    for line in Path(__file__).with_name("variables.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            names = line.strip("[]").split()
        elif line:
            for one in names:
                rows.setdefault(one, []).append(line.split("\t"))
    stem = name.removesuffix(".j2")
    like = next((entry.origin for entry in catalogue() if entry.name == stem), "")
    given = rows.get(stem) or rows.get(like) or rows["improve_linear"]
    variables = {path: re.split(r"[.\[]", path)[0] for path, _, _ in given}
    read = {variable for variable in set(variables.values()) if mentions(texts, variable)}
    others = [variable for variable in dict.fromkeys(variables.values()) if variable not in read]
    return [row for row in given if variables[row[0]] in read], others


@templates.command("copy")
@click.argument("name")
@click.option("--as", "other", default="", metavar="OTHER", help="Name of the copy, for --template OTHER.")
def copy(name: str, other: str) -> None:
    """Copy template NAME into ./templates, to edit it."""
    from policygen.prompts.catalogue import copy_template

    path = copy_template(name, other)
    use = f"--template {path.stem}" if path.stem != name.removesuffix(".j2") else "every run here uses it from now on"
    say(f"{path}: edit it; {use}")


@templates.command("diff")
@click.argument("names", metavar="[NAME [OTHER]]", nargs=-1)
def diff(names: tuple[str, ...]) -> None:
    """Show how your templates differ from the shipped ones, or NAME from OTHER; NAME's lines are those with a plus.

    A template without a shipped namesake is compared with the most similar shipped one.
    """
    from policygen.prompts.catalogue import IN_CHECKOUT, difference, in_checkout

    if len(names) > 2:
        raise UsageError(f"compare two templates at a time: policygen templates diff {shlex.join(names[:2])}")
    text = difference(names).rstrip("\n")
    say(text or (IN_CHECKOUT if len(names) < 2 and in_checkout() else "nothing differs"))
