"""``upgrade`` and ``uninstall``: the program and its home, forwards and away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsup import __version__
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import go_on, home_location
from agentsup.cli.output.show import CommandOutput

if TYPE_CHECKING:
    from agentsup.cli.commands.upgrade_steps import Installation

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]


def upgrade(
    ctx: typer.Context,
    wheel: Annotated[
        str | None, typer.Option("--wheel", metavar="FILE", help="This wheel, not the newest.")
    ] = None,
    checks: Annotated[
        bool, typer.Option("--check", help="Say what is new, and change nothing.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Install the newest version by the way this one came; back again if it does not work.

    Says what is new, backs the home up, ends the daemon, installs, starts it and looks whether all
    agents are up. Otherwise program and store are put back as they were.
    """
    import tempfile

    from agentsup.cli.commands.upgrade_steps import (
        StepFailed,
        fetched,
        install,
        installation,
        news,
        version_of,
    )

    location = home_location(ctx, "`upgrade` is for a home")
    screen, way = CommandOutput(), installation()
    screen.say(f"agentsup {__version__}, installed by {way.way}")
    if not way.upgrade:
        screen.prose(
            f"It is upgraded from outside: {way.advice}. Before that: `agentsup backup FILE`."
        )
        return
    with tempfile.TemporaryDirectory(prefix="agentsup-") as folder:
        log = Path(folder) / "output"
        try:
            chosen = Path(wheel).expanduser() if wheel else fetched(way, Path(folder), log)
        except StepFailed as failure:
            raise CommandFailed(f"the newest version can't be fetched: {failure}") from None
        version = version_of(chosen) if chosen is not None else ""
        if version == __version__:
            screen.say("That is the newest version.")
            return
        if chosen is not None:
            screen.say(f"New is {version}.")
            for section in news(chosen, __version__):
                screen.say(f"\n{section}")
        if checks:
            return
        argv = (*way.takes_wheel, _with_extras(way, chosen)) if chosen else way.upgrade
        install(location, screen, argv, version, yes=yes)


def _with_extras(way: Installation, wheel: Path) -> str:
    name = way.upgrade[-1]
    return f"{wheel.absolute()}{name[name.index('[') :] if '[' in name else ''}"


def uninstall(
    ctx: typer.Context,
    home_too: Annotated[
        bool, typer.Option("--home-too", help="Remove the home as well, after a backup.")
    ] = False,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup", metavar="FILE", help="Where the backup goes; else beside the home."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove the service and the running daemon, and with --home-too the home after a backup.

    It says first what it removes. Last it names the command that removes the program itself.
    """
    from agentsup.cli.archives.home import problem_of, remove_home
    from agentsup.cli.commands.background import STOP_S, stop_daemon
    from agentsup.cli.commands.backups import back_up_home
    from agentsup.cli.commands.service_install import uninstall as remove_service
    from agentsup.cli.commands.upgrade_steps import installation
    from agentsup.cli.connect.failure import DaemonUnreachable
    from agentsup.cli.connect.locate import holder_of
    from agentsup.cli.service.unit import file_of
    from agentsup.kit.clock import SystemClock
    from agentsup.store import stamp

    location, screen = home_location(ctx, "`uninstall` is for a home"), CommandOutput()
    home = location.home
    if backup is not None and not home_too:
        raise CommandFailed(
            "--backup goes with --home-too; else use `agentsup backup`", exit_code=2
        )
    if home_too and (problem := problem_of(home)):
        raise CommandFailed(f"{home.root} is not removed: {problem}")
    service = file_of(location, is_system=False, user=None, is_home_given=True)
    has_service, holder = service.content() is not None, holder_of(home)
    name = f"{home.root.name.lstrip('.') or 'agentsup'}-{stamp(SystemClock().now_ms())}.tar.gz"
    target = Path(backup).expanduser() if backup else home.root.absolute().with_name(name)
    if home_too and target.absolute().is_relative_to(home.root.absolute()):
        raise CommandFailed(
            f"{target} lies in the home, which is removed; name another with --backup"
        )
    screen.say("This is removed:")
    if has_service:
        screen.say(f"  the service {service.name} ({service.path})")
    if holder is not None:
        screen.say(f"  the running daemon (pid {holder}), when its turns have ended")
    if home_too:
        screen.say(f"  {home.root} with all that is in it, after a backup into {target}")
    if not (has_service or holder is not None or home_too):
        screen.say("  nothing: there is no service and no running daemon")
    if not home_too:
        screen.say(f"The home {home.root} stays.")
    go_on(yes=yes)
    if home_too:  # first, so that nothing is gone if there is no room for it
        back_up_home(location, target, screen)
    if has_service:
        remove_service(service, screen, force=False)
    try:
        stop_daemon(location, STOP_S)
        screen.say("ended the daemon")
    except DaemonUnreachable:
        pass  # none runs, or it ended with its service
    if home_too:
        remove_home(home)
        screen.say(f"removed {home.root}")
    screen.say(f"Last: {installation().removal}")
