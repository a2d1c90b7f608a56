"""The command line: commands that parse options, call the library and print its results."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import warnings
from typing import Any

import click

from policygen import __version__
from policygen.cli.experiments import compare, finetune, sweep
from policygen.cli.options import code_of, fail, installed, say
from policygen.cli.preparing import doctor, new, prompt, tasks, templates
from policygen.cli.results import evaluate, export, film, plot, report, show, simplify
from policygen.cli.running import mcp, resume, run
from policygen.cli.seats import drive, mediate
from policygen.errors import PolicygenError, UntrustedError
from policygen.notices import notices
from policygen.portable import escape_unprintable

GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Search for a policy": (run, resume, sweep, drive, mediate, mcp),
    "Look at results": (show, evaluate, plot, compare, film, report),
    "Use a policy elsewhere": (export, simplify, finetune),
    "Prepare": (new, tasks, prompt, doctor, templates),
}
# Errors of writing to a stream; code that writes files reports its own errors.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF)
# The extension that each command needs, if any.
NEEDS = {
    **{name: name for name in ("compare", "film", "export", "simplify")},
    **{"sweep": "sweeps", "drive": "seats", "mediate": "seats", "mcp": "mcp_server", "plot": "plots"},
    **{"finetune": "training", "report": "page"},
}


class GroupedCommands(click.Group):
    """The commands whose extensions are installed; `--help` lists them under headings, in the order of `GROUPS`."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command; None if it or its extension is missing."""
        return super().get_command(context, name) if name not in NEEDS or installed(NEEDS[name]) else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading."""
        for heading, group in GROUPS.items():
            names = [str(command.name) for command in group]
            found = [(name, self.get_command(context, name)) for name in names]
            rows = [(name, command.get_short_help_str(200)) for name, command in found if command is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def main() -> None:
    """Run the command line and exit; an error is printed as one sentence, and the exit code is not 0."""
    escape_unprintable()
    warnings.showwarning = _warn
    notices.say_exit = lambda sentence: say(f"Error: {sentence}", err=True)
    notices.say = lambda line: say(line, err=True)
    try:
        code = commands.main(prog_name="policygen", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = fail("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        message = error.format_message()
        if isinstance(error, click.NoSuchOption):
            close = " or ".join(error.possibilities or ())
            message = f"there is no option {error.option_name}" + (f"; did you mean {close}?" if close else "")
        code = fail(message, error.exit_code)
    except UntrustedError as error:
        code = fail(f"{error}: policygen {shlex.join(sys.argv[1:])} --trust", code_of(error))
    except PolicygenError as error:
        code = fail(str(error), code_of(error))
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        # Python writes its buffer again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = fail(f"the output cannot be written: {error.strerror}", 1)
    finally:
        notices.say = notices.say_exit = None
    sys.exit(code or 0)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"Warning: {message}", err=True)


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="policygen")
def commands() -> None:
    """Search for small, readable control policies with a language model.

    Start with `policygen run cartpole`: it needs no key. With a key: `policygen run cartpole --llm openai:gpt-5-mini`.
    Exit codes: 0 success; 1 the command failed, or no policy was found; 2 invalid input; 130 interrupted.
    """


for _group in GROUPS.values():
    for _command in _group:
        commands.add_command(_command)
