"""``export``: an agent or chats as a file to keep or to take along."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AgentName, group, home_location
from agentsup.cli.output.show import CommandOutput

if TYPE_CHECKING:
    from agentsup.agents.memory import ExportedSession
    from agentsup.config import Home
    from agentsup.store import Reader

export = group("Write an agent or chats into a file to keep or to take along.")
_MAX_FILE: Final = 16 * 1024**2


@export.command()
def agent(
    ctx: typer.Context,
    agent: AgentName,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Where to; without it AGENT.agent.tar.gz here."),
    ] = None,
) -> None:
    """Write one agent into FILE: entry, memories, workspace and role, to import elsewhere.

    No key and no token of its entry is in it: references stay, and what was written in clear
    becomes one. Files of its workspace go as they are.
    """
    from agentsup.cli.archives.agent import export_agent
    from agentsup.cli.commands.backups import refusing_to_write, tell_left_out
    from agentsup.kit.clock import SystemClock

    home = _home(ctx)
    entry = declared(home, agent)
    target = Path(file or f"{entry['name']}.agent.tar.gz").expanduser()
    with refusing_to_write(target):
        made = export_agent(home, entry, target, at_ms=SystemClock().now_ms())
    screen = CommandOutput()
    screen.say(f"made {target}, and read it back")
    screen.prose(
        f"It holds {entry['name']} with {made.facts['memories']} memories and {len(made.entries)} files "
        f"and folders. `agentsup import {target}` brings it into another home."
    )
    if made.facts["replaced"]:
        screen.prose(
            "Secrets that were written in clear are not in it; a reference stands for them:"
        )
        for each in made.facts["replaced"]:
            screen.say(f"  {each}")
    tell_left_out(screen, made.left_out)


@export.command()
def chats(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Where to; without it to standard output."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Of this agent alone.")
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation", metavar="CHANNEL:ID", help="This one alone, as telegram:4711."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="md or json; without it as FILE ends."),
    ] = None,
) -> None:
    """Write chats as Markdown or JSON, whether or not the daemon runs."""
    from agentsup.agents.memory import chat_export
    from agentsup.cli.commands.backups import refusing_to_write
    from agentsup.kit.clock import SystemClock
    from agentsup.store import glance, whole_file

    home, now = _home(ctx), SystemClock().now_ms()
    chosen = _form(form, file)
    if not home.state_db.is_file():
        raise CommandFailed(f"there is no store at {home.state_db}")

    def read(reader: Reader) -> int:
        found = _sessions(reader, agent, conversation)
        texts = chat_export.pieces(reader, found, chosen, at_ms=now)
        if file is None:
            for text in texts:
                sys.stdout.write(_shown(text))
            return len(found)
        target = Path(file).expanduser()
        with refusing_to_write(target):
            if target.exists():
                raise FileExistsError
            with whole_file(target) as partial, partial.open("w", encoding="utf-8") as out:
                for text in texts:
                    out.write(text.encode("utf-8", "replace").decode())
        return len(found)

    count = glance(home.state_db, read)
    if file is not None:
        CommandOutput().say(f"made {Path(file).expanduser()} with {count} chats")


def _shown(text: str) -> str:
    from agentsup.kit.terminal import clean

    if not sys.stdout.isatty():
        return text.encode("utf-8", "replace").decode()
    return "\n".join(map(clean, text.split("\n")))


def _form(given: str | None, file: str | None) -> Any:
    from agentsup.agents.memory import ChatForm

    name = given or ("json" if file is not None and file.endswith(".json") else "md")
    if name not in set(ChatForm):
        raise CommandFailed(f"--format is {' or '.join(ChatForm)}, not {name!r}", exit_code=2)
    return ChatForm(name)


def _sessions(reader: Reader, agent: str | None, conversation: str | None) -> list[ExportedSession]:
    from agentsup.agents.memory import ExportedSession
    from agentsup.config import did_you_mean
    from agentsup.mailbox.messages import chat_of_key, sessions
    from agentsup.store import agents

    names = agents.names(reader)
    chosen = {
        key: name
        for key, name in names.items()
        if agent is None or name.casefold() == agent.casefold()
    }
    if agent is not None and not chosen:
        hint = did_you_mean(agent, names.values())
        raise CommandFailed(f"there is no agent called {agent!r}" + (f"; {hint}" if hint else ""))
    found = []
    for agent_id, name in chosen.items():
        for each in sessions.in_chats(reader, agent_id):
            channel, name_there = chat_of_key(each.key)
            if conversation in (None, f"{channel}:{name_there}"):
                found.append(ExportedSession(each, name, channel, name_there))
    if conversation is not None and not found:
        raise CommandFailed(
            f"nobody has written in {conversation!r}; --format json lists all chats"
        )
    return found


def declared(home: Home, name: str) -> dict[str, Any]:
    """The entry of an agent as the files have it. Raises ``CommandFailed``."""
    from agentsup.cli.commands.home_files import EMPTY
    from agentsup.config import decode, did_you_mean, listed
    from agentsup.kit.safe_files import read_plain
    from agentsup.model.agent import MAIN

    try:
        text = EMPTY
        if home.agents_json.exists():
            text = decode(read_plain(home.agents_json, _MAX_FILE), home.agents_json.name)
        found = {str(each["name"]).casefold(): dict(each) for each in listed(text).values}
        entry = found.get(name.casefold())
        if name.casefold() == MAIN:
            settings = {}
            if home.config_toml.exists():
                settings = tomllib.loads(read_plain(home.config_toml, _MAX_FILE).decode())
            entry = {**settings.get(MAIN, {}), **(entry or {}), "name": MAIN}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"the files of {home.root} can't be read: {error}") from None
    if entry is None:
        hint = did_you_mean(name, found)
        raise CommandFailed(f"there is no agent called {name!r}" + (f"; {hint}" if hint else ""))
    return entry


def _home(ctx: typer.Context) -> Home:
    home = home_location(ctx, "`export` reads a home").home
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}")
    return home
