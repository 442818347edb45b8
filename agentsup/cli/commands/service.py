"""``service``: the daemon as a service of systemd or launchd."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import record
from agentsup.cli.output.options import AsJson, group, home_location, location_of
from agentsup.cli.output.show import CommandOutput, all_of

if TYPE_CHECKING:
    from agentsup.cli.service.unit import ServiceFile

service = group("Keep the daemon running, over a reboot too: a service of systemd or launchd.")
OfMachine = Annotated[
    bool, typer.Option("--system", help="A service of the whole machine; needs root.")
]
AsUser = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="With --system: who it runs as (else SUDO_USER)."),
]

FIELDS: Final = record(
    (
        *("service", "state", "since", "pid", "restarts", "file", "runs"),
        ("at boot", "at_boot"),
        ("to mend", all_of("problems")),
    )
)


@service.command()
def install(
    ctx: typer.Context,
    is_system: OfMachine = False,
    user: AsUser = None,
    shows: Annotated[
        bool, typer.Option("--print", help="Print the service's file and change nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace a file that somebody changed; it is kept as FILE~."),
    ] = False,
) -> None:
    """Install the service and start it; it takes over from a daemon of up."""
    file = _file(ctx, is_system, user)
    screen = CommandOutput()
    if shows:
        screen.say(file.wanted)
        return
    from agentsup.cli.commands.service_install import install as install_now

    install_now(file, location_of(ctx), screen, force=force)


@service.command()
def uninstall(
    ctx: typer.Context,
    is_system: OfMachine = False,
    user: AsUser = None,
    force: Annotated[
        bool, typer.Option("--force", help="Remove the file though somebody changed it.")
    ] = False,
) -> None:
    """Stop the service and remove what install wrote, nothing else. The home stays."""
    from agentsup.cli.commands.service_install import uninstall as uninstall_now

    uninstall_now(_file(ctx, is_system, user), CommandOutput(), force=force)


@service.command()
def status(
    ctx: typer.Context, is_system: OfMachine = False, user: AsUser = None, as_json: AsJson = False
) -> None:
    """Show what runs, since when, from which file, and whether that still fits; 1 if it does not
    run."""
    from agentsup.cli.commands.service_install import report

    one = report(_file(ctx, is_system, user), location_of(ctx))
    screen = CommandOutput.unless_json(one, as_json, code=0 if one["is_running"] else 1)
    FIELDS(screen, one)
    if not one["is_running"]:
        raise typer.Exit(1)


@service.command()
def logs(
    ctx: typer.Context,
    is_system: OfMachine = False,
    follow: Annotated[bool, typer.Option(help="Go on as it grows.")] = True,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many.")] = 50,
) -> None:
    """Follow what the service printed: the journal, or the log of the home where there is none."""
    from agentsup.cli.service.systemd import is_macos

    file = _file(ctx, is_system, None)
    journal = shutil.which("journalctl")
    if journal is None or is_macos() or not file.path.exists():
        from agentsup.cli.commands.control import logs as home_logs

        home_logs(ctx, follow=follow, lines=lines)
        return
    scope = ["--unit"] if is_system else ["--user-unit"]
    words = [journal, *scope, file.unit, f"--lines={lines}", *(["--follow"] if follow else [])]
    os.execv(journal, words)  # noqa: S606 - it shows, we have no more to do


def _file(ctx: typer.Context, is_system: bool, user: str | None) -> ServiceFile:
    """The file of the service of this home. Raises ``CommandFailed``."""
    from agentsup.cli.service.unit import file_of

    location = home_location(ctx, "a service runs a home")
    if user is not None and not is_system:
        raise CommandFailed("--as is for --system; a service of your own runs as you")
    given = ctx.find_root().params.get("home")
    return file_of(location, is_system=is_system, user=user, is_home_given=bool(given))
