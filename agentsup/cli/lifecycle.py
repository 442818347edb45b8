"""`init`, `run`, `up`, `demo`, `status`, `stop`, `restart`: a home and its daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsup.cli.failure import Failed, Unreachable
from agentsup.cli.options import AsJson, client_of, place_of
from agentsup.cli.reads import status_of
from agentsup.cli.show import Screen, clean, duration
from agentsup.kit.loading import loading

if TYPE_CHECKING:
    from agentsup.cli.client import Client
    from agentsup.cli.locate import Place

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


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command()(init)
    app.command()(run)
    app.command()(up)
    app.command()(demo)
    app.command()(status)
    app.command()(stop)
    app.command()(restart)


def init(ctx: typer.Context, home: HomeHere = None) -> None:
    """Make a home with example agents; never overwrites a file."""
    del home  # read before the command: --home may stand anywhere
    from agentsup.cli.home_files import create_home

    place = place_of(ctx)
    made = create_home(place.home)
    screen = Screen()
    if not made:
        screen.say(f"{place.home.root} is complete already; nothing was changed.")
    for path in made:
        screen.say(f"made {path}")
    screen.prose(
        f"Next: `{place.command('up')}` starts the daemon in the background and opens a chat; "
        f"`{place.command('run')}` keeps it in this terminal. The agents are in "
        f"{place.home.agents_json.name}; edits apply at once."
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
        from agentsup.daemon.main import run_daemon

    raise typer.Exit(run_daemon(place_of(ctx).home.root, port=port, accept_store=accept_store))


def up(
    ctx: typer.Context,
    home: HomeHere = None,
    port: Port = None,
    chat: Annotated[bool, typer.Option(help="Open a chat with main afterwards.")] = True,
    accept_store: AcceptStore = False,
) -> None:
    """Make the home if there is none, start the daemon in the background, chat."""
    del home
    from agentsup.cli.background import ensure_running
    from agentsup.cli.home_files import create_home

    place = place_of(ctx)
    if place.url:
        raise Failed("`up` starts a daemon for a home; unset AGENTSUP_URL or give --home")
    screen = Screen()
    if not place.home.root.is_dir() or not any(path.exists() for path in place.home.watched):
        create_home(place.home)
        screen.say(f"made the home {place.home.root}")
    client = ensure_running(place, screen, port=port, accept_store=accept_store)
    _tell_engines(screen, client, place)
    # Where it goes to a file, it would be kept there; `agentsup link` makes another.
    if screen.is_terminal or not chat:
        from agentsup.cli.web import fresh_link

        screen.say(f"Web page, for one browser within 10 minutes: {fresh_link(client)['url']}")
    if not chat:
        return
    from agentsup.cli.chat import is_in_terminal, run_chat

    if is_in_terminal():
        raise typer.Exit(run_chat(place, "main", "local", warns=False))
    # Nobody is there to talk: cron, CI, a service, a pipe.
    screen.say(f"The daemon is up at {client.address.url}. To chat: `{place.command('chat')}`.")


def _tell_engines(screen: Screen, client: Client, place: Place) -> None:
    """What main thinks with, and whoever else answers offline though a model was wanted."""
    from agentsup.cli.agents import is_offline, offline_notes

    agents = client.get("/agents")["agents"]
    main = next(one for one in agents if one["is_main"])
    notes = offline_notes(agents)
    for note in notes:
        screen.prose(f"{note}. When that is set: `{place.command('restart')}`.")
    if not is_offline(main):
        model = f" with {main['model']}" if main["model"] else ""
        screen.say(f"The engine {main['engine']} answers{model}.")
    elif not main["engine_reason"]:
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
    from agentsup.cli.demo import run_demo

    # Never the home of the environment: a demo must not touch the agents somebody lives with.
    given = home or ctx.find_root().params.get("home")
    raise typer.Exit(run_demo(given, port))


def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The daemon at a glance; exit code 1 where it doesn't run or does not take work."""
    one = status_of(client_of(ctx))
    failing = one["failing"]
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.facts(
            [
                ("state", one["state"] + ("" if one["ready"] else " (not ready)")),
                ("agents", f"{one['agents_up']} of {one['agents_total']} up"),
                ("up", duration(one["uptime_s"])),
                ("url", one["url"]),
                ("pid", one["pid"]),
                ("home", one["home"]),
                ("version", one["version"]),
                ("not ready", "\n".join(f"{p['name']}: {p.get('detail', '')}" for p in failing)),
                ("edit refused", one["config_error"]),
                ("warnings", "\n".join(one["warnings"])),
            ]
        )
    if not one["ready"]:
        raise typer.Exit(1)


def stop(ctx: typer.Context, timeout_s: StopTimeout = STOP_S) -> None:
    """Let running turns end, then end the daemon; waits until it is gone."""
    from agentsup.cli.background import stop_daemon

    place = place_of(ctx)
    try:
        ended = stop_daemon(place, timeout_s)
    except Unreachable as failure:
        raise Failed(f"{failure}; nothing was stopped") from None
    Screen().say(f"The daemon{f' (pid {ended})' if ended else ''} has ended.")


def restart(ctx: typer.Context, timeout_s: StopTimeout = STOP_S, port: Port = None) -> None:
    """Stop the daemon and start it anew in the background."""
    from agentsup.cli.background import (
        ensure_running,
        is_supervised,
        restart_daemon,
        stop_daemon,
    )

    place = place_of(ctx)
    if place.url:
        raise Failed("a daemon known by its URL alone can't be restarted from here; use --home")
    screen = Screen()
    if is_supervised(place):
        if port is not None:
            raise Failed("what runs this daemon decides on its port; leave --port out")
        client = restart_daemon(place, timeout_s)
    else:
        try:
            stop_daemon(place, timeout_s)
            screen.say("stopped")
        except Unreachable:
            screen.say(f"no daemon was running for {place.home.root}")
        client = ensure_running(place, screen, port=port)
    screen.say(clean(f"The daemon is up at {client.address.url}."))
    _tell_engines(screen, client, place)
