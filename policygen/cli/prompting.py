"""The command `templates`, for editing prompts."""

from __future__ import annotations

import shlex

import click

from policygen.cli.options import say
from policygen.errors import UsageError


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
        from policygen.cli.variables import variables_of

        rows, others = variables_of(name)
        widths = [max((len(row[i]) for row in rows), default=0) + 2 for i in range(2)]
        for path, kind, example in rows:
            say(f"{path.ljust(widths[0])}{kind.ljust(widths[1])}{example}")
        if others:
            say(f"(given too, but not used here: {', '.join(others)})", err=True)
        return
    say(text_of(name, as_shipped=shipped).rstrip("\n"))
    if not shipped and (parts := parts_of(name)):
        say(f"(it uses {', '.join(parts)})", err=True)


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
