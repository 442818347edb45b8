"""``init``, ``run``, ``up``, ``demo``, ``status``, ``stop``, ``restart``: a home and its daemon."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.output.declared import record
from agentsup.cli.output.options import AsJson, home_location, location_of
from agentsup.cli.output.reads import status_at
from agentsup.cli.output.show import Cell, CommandOutput, all_of, duration
from agentsup.kit.loading import loading
from agentsup.kit.terminal import clean

if TYPE_CHECKING:
    from agentsup.cli.connect.client import DaemonClient
    from agentsup.cli.connect.locate import DaemonLocation

Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Listen there instead of at the port of config.toml."),
]
HomeHere = Annotated[
    str | None, typer.Option("--home", metavar="PATH", help="The home; see `agentsup --help`.")
]
StopTimeout = Annotated[
    float, typer.Option("--timeout", min=0, help="Seconds to wait until it has ended.")
]
AcceptStore = Annotated[
    bool,
    typer.Option(
        "--accept-store",
        help="Take the store as it is, also where it is gone or older than it was.",
    ),
]
STOP_S = 60.0
"""A drain takes at most 30 s, then cancelling and closing."""


def init(ctx: typer.Context, home: HomeHere = None) -> None:
    """Make a home with example agents; never overwrites a file."""
    del home  # read before the command: --home may stand anywhere
    from agentsup.cli.commands.home_files import create_home

    location = location_of(ctx)
    made = create_home(location.home)
    screen = CommandOutput()
    if not made:
        screen.say(f"{location.home.root} is complete already; nothing was changed.")
    for path in made:
        screen.say(f"made {path}")
    screen.prose(
        f"Next: `{location.command('up')}` starts the daemon in the background and opens a chat; "
        f"`{location.command('run')}` keeps it in this terminal. The agents are in "
        f"{location.home.agents_json.name}; edits apply at once."
    )


def run(
    ctx: typer.Context,
    home: HomeHere = None,
    port: Port = None,
    accept_store: AcceptStore = False,
) -> None:
    """Run the daemon in the foreground until it is stopped; ends with the daemon's exit code."""
    del home
    with loading():
        from agentsup.daemon import run_daemon

    raise typer.Exit(run_daemon(location_of(ctx).home.root, port=port, accept_store=accept_store))


def up(
    ctx: typer.Context,
    home: HomeHere = None,
    port: Port = None,
    chat: Annotated[bool, typer.Option(help="Open a chat with main afterwards.")] = True,
    accept_store: AcceptStore = False,
) -> None:
    """Make the home if there is none, start the daemon in the background, chat."""
    del home
    from agentsup.cli.commands.background import ensure_running
    from agentsup.cli.commands.home_files import create_home
    from agentsup.cli.connect.keeping import keeping_of

    location = home_location(ctx, "`up` starts a daemon for a home")
    screen = CommandOutput()
    if not location.home.root.is_dir() or not any(path.exists() for path in location.home.watched):
        create_home(location.home)
        screen.say(f"made the home {location.home.root}")
    client = ensure_running(location, screen, port=port, accept_store=accept_store)
    _tell_engines(screen, client)
    screen.prose(f"Kept running {keeping_of(location, client.address.pid).text}.")
    _tell_program(screen)
    _tell_page(screen, client, location, shows=not chat)
    if not chat:
        return
    from agentsup.cli.chat import is_in_terminal, run_chat

    if is_in_terminal():
        run_chat(location, "main", "local", warns=False)
    else:  # cron, CI, a service, a pipe
        chat_line = location.command("chat")
        screen.say(f"The daemon is up at {client.address.url}. To chat: `{chat_line}`.")


def _tell_program(screen: CommandOutput) -> None:
    """Say where the program is, if its bare name would not be found."""
    program = Path(sys.executable).with_name("agentsup")
    if shutil.which(program.name) is None and program.is_file():
        screen.say(f"`agentsup` is not on your PATH. It is {program}")


def _tell_page(
    screen: CommandOutput, client: DaemonClient, location: DaemonLocation, *, shows: bool = False
) -> None:
    """Print a link to the page. If the output may go to a file, which would store the link, print
    how to get one instead, unless ``shows``."""
    if not screen.is_terminal and not shows:
        screen.say(f"Web page: `{location.command('link')}` prints a link to it.")
        return
    link = client.post("/web/links")["url"]
    screen.say(f"Web page, for one browser within 10 minutes:\n{link}")


def _tell_engines(
    screen: CommandOutput, client: DaemonClient, before: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Print main's engine, and why engines are worse than what the files name, or than ``before``."""
    from agentsup.cli.commands.agents import is_offline
    from agentsup.cli.output.reads import engine_notes, lost_engines

    agents = client.get("/agents")["agents"]
    main = next(one for one in agents if one["is_main"])
    for lost in lost_engines(before, agents):
        mark = screen.paint("WORSE THAN BEFORE", "red")
        screen.prose(f"{mark}: {clean(lost)}")
    for note in engine_notes(agents):
        screen.prose(clean(note))
    if main["engine_problem"]:
        return  # told above
    if not is_offline(main):
        model = f" with {main['model']}" if main["model"] else ""
        screen.say(f"The engine {main['engine']} answers{model}.")
    else:
        screen.say("The offline engine answers, as the entry of main says.")


def demo(
    ctx: typer.Context,
    home: HomeHere = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the page; without it 8780 or any free one."),
    ] = None,
) -> None:
    """Try Telegram without a token: two agents, a fake Telegram here, a chat page in the browser.

    Nothing is kept, unless --home names a directory for it.
    """
    from agentsup.cli.commands.demo import run_demo

    # Never the home of the environment: a demo must not touch a person's real agents.
    given = home or ctx.find_root().params.get("home")
    raise typer.Exit(run_demo(given, port))


def _waiting(member: str, what: str, command: str) -> Cell:
    """What waits for a person, with the command that lists it; empty if nothing does."""

    def shown(one: Mapping[str, Any]) -> str:
        count = one[member]
        number = f"{count} or more" if count >= 500 else str(count)
        return f"{number} {what}: `agentsup {command}`" if count else ""

    return shown


STATUS = record(
    (
        ("state", lambda one: one["state"] + ("" if one["ready"] else " (not ready)")),
        ("agents", "{agents_up} of {agents_total} up".format_map),
        ("up", lambda one: duration(one["uptime_s"])),
        *("url", "pid"),
        ("kept running", lambda one: one["keeper"]["text"] if one["keeper"] else ""),
        *("home", "version"),
        (
            "not ready",
            lambda one: "\n".join(
                f"{each['name']}: {each.get('detail', '')}" for each in one["failing"]
            ),
        ),
        ("edit refused", "config_error"),
        ("warnings", all_of("warnings")),
        ("engines", all_of("engines")),
        ("agents degraded", all_of("degraded")),
        ("questions", _waiting("questions", "open", "questions list")),
        ("failed messages", _waiting("failed_messages", "in all", "failed list")),
    )
)


def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The daemon at a glance; exit code 1 where it doesn't run or does not take work."""
    one = status_at(location_of(ctx))
    STATUS(CommandOutput.unless_json(one, as_json, code=0 if one["ready"] else 1), one)
    if not one["ready"]:
        raise typer.Exit(1)


def stop(ctx: typer.Context, timeout_s: StopTimeout = STOP_S) -> None:
    """Let running turns end, then end the daemon; waits until it is gone."""
    from agentsup.cli.commands.background import stop_daemon

    location = location_of(ctx)
    try:
        ended = stop_daemon(location, timeout_s)
    except DaemonUnreachable as failure:
        raise CommandFailed(f"{failure}; nothing was stopped") from None
    CommandOutput().say(f"The daemon{f' (pid {ended})' if ended else ''} has ended.")


def restart(ctx: typer.Context, timeout_s: StopTimeout = STOP_S, port: Port = None) -> None:
    """Stop the daemon and start it anew in the background, at the same port if it had one by --port."""
    from agentsup.cli.commands.background import (
        ensure_running,
        is_supervised,
        restart_daemon,
        stop_daemon,
    )
    from agentsup.cli.connect.client import listed_now
    from agentsup.cli.connect.keeping import port_for_restart

    location = location_of(ctx)
    if location.url:
        raise CommandFailed(
            "a daemon known by its URL alone can't be restarted from here; use --home"
        )
    screen = CommandOutput()
    before = listed_now(location, "/agents", "agents", timeout_s=5.0)
    if is_supervised(location):
        if port is not None:
            raise CommandFailed("what runs this daemon decides on its port; leave --port out")
        client = restart_daemon(location, timeout_s)
    else:
        port = port_for_restart(location, port)
        try:
            stop_daemon(location, timeout_s)
            screen.say("stopped")
        except DaemonUnreachable:
            screen.say(f"no daemon was running for {location.home.root}")
        client = ensure_running(location, screen, port=port)
    screen.say(clean(f"The daemon is up at {client.address.url}."))
    _tell_engines(screen, client, before)
    _tell_page(screen, client, location)
