"""All commands put together as one typer application."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup import __version__
from agentsup.cli.commands import (
    agents_file,
    backups,
    config_file,
    control,
    exporting,
    lifecycle,
    memory,
    messages,
    models,
    people,
    questions,
    roles,
    service,
    setup,
    tasks,
    trace,
    upgrade,
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
    *(people.link, people.pair, roles.route, trace.cost, roles.mcp, control.docs, version),
):
    app.command()(_command)
for _group, _name in (
    *((agents_file.app, "agents"), (config_file.config, "config"), (service.service, "service")),
    *((models.models, "models"), (exporting.export, "export"), (memory.memory, "memory")),
    *((questions.approvals, "approvals"), (messages.messages, "messages")),
    *((messages.failed, "failed"), (messages.quarantine, "quarantine"), (roles.roles, "roles")),
    *((questions.questions, "questions"), (tasks.tasks, "tasks"), (trace.trace, "trace")),
):
    app.add_typer(_group, name=_name)
for _group, _former in ((messages.failed, "dead"), (messages.quarantine, "poison")):
    app.add_typer(_group, name=_former, hidden=True)
