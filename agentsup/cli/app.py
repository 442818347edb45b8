"""All commands put together as one typer application."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsup import __version__
from agentsup.cli import (
    agents,
    approvals,
    backups,
    control,
    cost,
    lifecycle,
    mcp,
    memory,
    messages,
    poison,
    questions,
    roles,
    tasks,
    trace,
    web,
)
from agentsup.cli.locate import Place
from agentsup.cli.options import group

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
backups.register(app)
control.register(app)
web.register(app)
app.add_typer(agents.app, name="agents")
app.add_typer(memory.memory, name="memory")
app.add_typer(approvals.approvals, name="approvals")
app.add_typer(messages.messages, name="messages")
app.add_typer(messages.dead, name="dead")
app.add_typer(poison.poison, name="poison")
app.add_typer(roles.roles, name="roles")
app.command()(roles.route)
app.command()(cost.cost)
app.command()(mcp.mcp)
app.add_typer(questions.questions, name="questions")
app.add_typer(tasks.tasks, name="tasks")
app.add_typer(trace.trace, name="trace")
