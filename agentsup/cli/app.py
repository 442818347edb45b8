"""All commands put together as one typer application."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup import __version__
from agentsup.cli.commands import (
    agents,
    approvals,
    backups,
    config_file,
    control,
    cost,
    exporting,
    lifecycle,
    mcp,
    memory,
    messages,
    models,
    pairing,
    quarantine,
    questions,
    roles,
    service,
    setup,
    tasks,
    trace,
    upgrade,
    web,
)
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.moving.command import import_
from agentsup.cli.output.options import group

app = group("Run, supervise and talk to your own AI agents.", completion=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"agentsup {__version__}")
        raise typer.Exit


@app.callback(
    epilog="--home may be anywhere on the line. Without it: AGENTSUP_HOME, else the daemon at "
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
    ctx.obj = DaemonLocation.of(home)


def show_help(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Which; without it, all of them.")
    ] = None,
) -> None:
    """Show what a command does, with its options and examples."""
    root = ctx.find_root()
    named: Any = root.command
    shown = root
    for word in command or ():
        found = getattr(named, "commands", {}).get(word)
        if found is None:
            raise CommandFailed(
                f"there is no command {' '.join(command or ())!r}; see agentsup help", exit_code=2
            )
        named, shown = found, type(root)(found, info_name=word, parent=shown)
    print(named.get_help(shown))


def version() -> None:
    """Print the version."""
    print(f"agentsup {__version__}")


app.command("help")(show_help)
app.command("import")(import_)
for _command in (
    *(setup.setup, lifecycle.init, lifecycle.run, lifecycle.up, lifecycle.demo),
    *(lifecycle.status, lifecycle.stop, lifecycle.restart, backups.backup, backups.restore),
    *(upgrade.upgrade, upgrade.uninstall),
    *(control.chat, control.send, control.stop_all, control.logs, control.doctor, control.hooks),
    *(web.link, pairing.pair, roles.route, cost.cost, mcp.mcp, version),
):
    app.command()(_command)
app.add_typer(agents.app, name="agents")
app.add_typer(config_file.config, name="config")
app.add_typer(service.service, name="service")
app.add_typer(models.models, name="models")
app.add_typer(exporting.export, name="export")
app.add_typer(memory.memory, name="memory")
app.add_typer(approvals.approvals, name="approvals")
app.add_typer(messages.messages, name="messages")
app.add_typer(messages.failed, name="failed")
app.add_typer(messages.failed, name="dead", hidden=True)  # its former name
app.add_typer(quarantine.quarantine, name="quarantine")
app.add_typer(quarantine.quarantine, name="poison", hidden=True)  # its former name
app.add_typer(roles.roles, name="roles")
app.add_typer(questions.questions, name="questions")
app.add_typer(tasks.tasks, name="tasks")
app.add_typer(trace.trace, name="trace")
