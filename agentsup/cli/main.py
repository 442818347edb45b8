"""`agentsup`: puts the commands together and turns every failure into one sentence and a code.

Exit codes: 0 done, 1 failed (a sentence on stderr), 2 wrong usage; `run` ends with the daemon's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from agentsup import __version__
from agentsup.cli import agents, control, lifecycle, messages
from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place
from agentsup.cli.options import group
from agentsup.model.errors import AgentsupError

app = group("Run, supervise and talk to your own AI agents.", completion=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"agentsup {__version__}")
        raise typer.Exit


@app.callback(
    epilog="--home may stand anywhere on the line. Without it: AGENTSUP_HOME, else the daemon at "
    "AGENTSUP_URL (with AGENTSUP_TOKEN), else ~/.agentsup."
)
def everything(
    ctx: typer.Context,
    home: Annotated[
        str | None, typer.Option("--home", metavar="PATH", help="The home of the daemon.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run, supervise and talk to your own AI agents."""
    ctx.obj = Place.of(home)


lifecycle.register(app)
control.register(app)
app.add_typer(agents.app, name="agents")
app.add_typer(messages.messages, name="messages")
app.add_typer(messages.dead, name="dead")
app.add_typer(messages.questions, name="questions")


def hoisted(arguments: Sequence[str]) -> list[str]:
    """The same line with `--home` in front, wherever it stood before a `--`."""
    found: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            rest += [word, *waiting]
            break
        if word == "--home" and waiting:
            found = [word, waiting.pop(0)]
        elif word.startswith("--home="):
            found = [word]
        else:
            rest.append(word)
    return found + rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and end the process with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        app(hoisted(given), prog_name="agentsup")
    except Failed as failure:
        _end(str(failure), failure.exit_code)
    except AgentsupError as error:
        _end(str(error), 1)
    except BrokenPipeError:
        # The reader of our output has gone; nothing more can be said to it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _end(text: str, exit_code: int) -> None:
    if text:
        print(f"agentsup: {text}", file=sys.stderr)
    sys.exit(exit_code)
