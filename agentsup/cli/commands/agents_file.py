"""``agentsup agents validate``, ``add``, ``bot``, ``remove`` and ``edit``: the file agents.json."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from agentsup.cli.commands import agents
from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, submit
from agentsup.cli.output.options import AgentName, AsJson, MaybeAgent, client_of, location_of
from agentsup.cli.output.show import CommandOutput, when
from agentsup.kit.terminal import clean
from agentsup.model.errors import MayNotManageBots

app = agents.app


@app.command()
def validate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check agents.json, config.toml, roles and scripts; exit code 1 where something is wrong."""
    from dataclasses import asdict

    from agentsup.cli.commands.agents_editor import check_home
    from agentsup.cli.commands.home_files import require_home

    home = location_of(ctx).home
    require_home(home)
    found = check_home(home)
    errors = sum(one.is_error for one in found)
    document = {"ok": not errors, "home": str(home.root), "findings": [*map(asdict, found)]}
    screen = CommandOutput.unless_json(document, as_json, code=1 if errors else 0)
    for one in found:
        screen.finding(one, one.severity.value, "red" if one.is_error else "yellow")
    if not found:
        screen.say(f"{home.agents_json} and {home.config_toml.name} are right.")
    if errors:
        raise typer.Exit(1)


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    prompt: Annotated[str | None, typer.Option(help="How it should work.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, scripted, llm …")] = None,
    model: Annotated[str | None, typer.Option(help="The model that it uses.")] = None,
    telegram_token: Annotated[
        str | None, typer.Option(help='Better "env:NAME" or "file:PATH" than the token itself.')
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field; JSON or text."),
    ] = None,
) -> None:
    """Add an agent to agents.json; a running daemon starts it at once."""
    from agentsup.cli.commands.home_files import change_file
    from agentsup.config import with_entry

    entry: dict[str, Any] = {"name": name}
    given = {
        "description": description,
        "prompt": prompt,
        "engine": engine,
        "model": model,
        "telegram_token": telegram_token,
    }
    entry |= {key: value for key, value in given.items() if value is not None}
    entry |= dict(_field(each) for each in field or ())
    home = location_of(ctx).home
    backup = change_file(home, lambda text: with_entry(text, entry))
    _edited(ctx, f"added {name}", backup)
    if telegram_token is None:
        _offer_after_adding(ctx, name)


def _offer_after_adding(ctx: typer.Context, name: str) -> None:
    """Show the offer, or the switch that is missing for it; nothing without main's bot."""
    from agentsup.cli.connect.client import DaemonRefused
    from agentsup.cli.connect.failure import DaemonUnreachable

    screen = CommandOutput()
    try:
        _show_offer(screen, client_of(ctx).post(f"/agents/{segment(name)}/bot"))
    except DaemonUnreachable:
        return
    except DaemonRefused as refused:
        if refused.code == MayNotManageBots.code:
            screen.prose(str(refused))


def _show_offer(screen: CommandOutput, offer: dict[str, Any]) -> None:
    from agentsup.cli.commands.people import show_qr

    screen.prose(
        f"Open this link in Telegram and press Create there: it makes the bot of {offer['agent']}. "
        f"It holds until {when(offer['expires_at'])}."
    )
    screen.say(clean(offer["link"]))
    if screen.width is not None:
        show_qr(screen, offer["link"], screen.width)


@asks(_show_offer, app)
def bot(agent: AgentName) -> Request:
    """Create an agent's Telegram bot with one tap: a link that you open in Telegram.

    main's bot must be allowed to manage bots. The token comes by itself, and the agent's bot is up
    within seconds.
    """
    return submit(f"/agents/{segment(agent)}/bot")


def _field(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CommandFailed(f"--set takes KEY=VALUE, not {text!r}", exit_code=2)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@app.command()
def remove(ctx: typer.Context, agent: AgentName) -> None:
    """Take an agent out of agents.json; its memory and its mail stay for when it comes back."""
    from agentsup.cli.commands.home_files import change_file
    from agentsup.config import without_entry

    backup = change_file(location_of(ctx).home, lambda text: without_entry(text, agent))
    _edited(ctx, f"removed {agent}", backup)


@app.command("edit")
def edit_(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    gives_up: Annotated[
        bool, typer.Option("--give-up", help="Do not ask to edit again after an error.")
    ] = False,
) -> None:
    """Edit agents.json, or one entry, in your editor (EDITOR); nothing wrong is written."""
    from agentsup.cli.chat import is_in_terminal
    from agentsup.cli.commands.agents_editor import edit, in_editor

    screen = CommandOutput()

    def again(problem: str) -> bool:
        screen.finding(problem)
        if gives_up or not is_in_terminal():
            return False
        try:
            return input("Edit again? [Y/n] ").strip().casefold() not in ("n", "no")
        except (EOFError, KeyboardInterrupt):
            return False

    done = edit(location_of(ctx).home, agent, in_editor, again)
    if done is None:
        screen.say("Nothing was changed.")
        return
    screen.difference(done.lines)
    for line in done.effects:
        screen.prose(clean(line))
    if done.backup:
        screen.say(f"The file before is {done.backup}")


def _edited(ctx: typer.Context, what: str, backup: str) -> None:
    from agentsup.cli.commands.home_files import errors_of

    home = location_of(ctx).home
    before = f"; the file before is {backup}" if backup else ""
    CommandOutput().say(f"{what} in {home.agents_json}{before}")
    if errors := errors_of(home):
        raise CommandFailed(f"the file is not applied: {clean(errors[0])}")
