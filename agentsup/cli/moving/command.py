"""``agentsup import``: an agent of another home, or the agents of another product, move here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AsJson, home_location
from agentsup.cli.output.show import CommandOutput
from agentsup.kit.terminal import clean


def import_(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A file of `export agent`, or the home of another product."
        ),
    ],
    product: Annotated[
        str | None,
        typer.Option("--from", metavar="PRODUCT", help="sygen, openclaw, hermes or nanobot."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The name here of an exported agent.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without this it is only told.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring an agent of another home here, or all from Sygen, OpenClaw, Hermes Agent or nanobot.

    Without --apply nothing is changed: it says what comes, and what has no place here and why. What
    is here already stays; the other home is only read. Keys and tokens are put into files that only
    you can read, and are never shown.
    """
    from agentsup.cli.moving.applying import apply_move, check_plan
    from agentsup.cli.moving.detect import read_home
    from agentsup.cli.moving.plan import plan_move
    from agentsup.cli.moving.report import as_json as document
    from agentsup.cli.moving.report import plan_lines
    from agentsup.cli.moving.source import SourceFolder

    location = home_location(ctx, "`import` is for a home")
    screen, file = CommandOutput(), Path(path).expanduser()
    if product is None and file.is_file():
        from agentsup.cli.commands.import_agent import import_archive

        import_archive(location, file, screen, name=name, apply=apply)
        return
    if name is not None:
        raise CommandFailed("--as is for a file that `agentsup export agent` wrote", exit_code=2)
    source = SourceFolder(Path(path))
    home = location.home
    if source.root == home.root or home.root.is_relative_to(source.root):
        raise CommandFailed(f"{path} is the home of agentsup itself, or holds it")
    plan = plan_move(source, read_home(source, product), home)
    check_plan(plan, home)
    brought = apply_move(plan, home) if apply else None
    CommandOutput.unless_json(document(plan, brought), as_json)
    screen.say(f"{source.root} is a home of {plan.found.product}. For {home.root}:")
    for line in plan_lines(plan):
        screen.prose(clean(line), indent=" " * (len(line) - len(line.lstrip()) + 2))
    screen.say("")
    if brought is None:
        command = location.command(f"import {shlex.quote(path)} --apply")
        screen.prose(
            f"Nothing was changed. With the daemon stopped, `{command}` does it. A memory, schedule "
            "or chat that was brought before is not brought again."
        )
        return
    counts = (
        (brought.files, "file", "files"),
        (brought.memories, "memory", "memories"),
        (brought.tasks, "schedule", "schedules"),
        (brought.chats, "chat", "chats"),
    )
    *most, last = (f"{count} {one if count == 1 else many}" for count, one, many in counts)
    screen.prose(f"Brought {', '.join(most)} and {last}.")
    if brought.backup:
        screen.say(f"The agents.json of before is {brought.backup}.")
    screen.prose(
        "Stop the other product before you start here: a bot talks to one program at a time. "
        f"Then `{location.command('doctor')}` checks, and `{location.command('up')}` starts."
    )
