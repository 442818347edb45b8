"""``link`` and ``pair``: a person signs a browser in, a stranger with a code is let in."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AsJson, client_of
from agentsup.cli.output.show import CommandOutput
from agentsup.kit.terminal import clean

Code = Annotated[
    str | None,
    typer.Argument(metavar="[CODE]", help="What the stranger was told, such as K7QF-2M9D."),
]
Role = Annotated[
    str | None,
    typer.Option(help="viewer, user (if not said), operator or manager; up to your own."),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="The name under [people]; of somebody who is there, adds this account to them."
    ),
]


def pair(
    ctx: typer.Context,
    code: Code = None,
    role: Role = None,
    name: Name = None,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Refuse them; they get no code for a month.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let somebody in who wrote to a bot; without a code, list who asks.

    A stranger's first private message to a bot is answered with a code, valid for ten minutes. A user
    may talk to that one agent; an operator to all of them, and steer.
    """
    client = client_of(ctx)
    if code is None:
        if refuse or role or name:
            raise CommandFailed("say the code, too; `agentsup pair` lists them", exit_code=2)
        found = client.get("/pairings")
        screen = CommandOutput.unless_json(found, as_json)
        screen.listing(
            found["pairings"],
            {
                "code": "code",
                "agent": "agent",
                "account": lambda one: f"{one['channel']} {one['user_id']}",
                "calls itself": "name",
            },
            empty="Nobody asks to be let in.",
        )
        return
    if refuse:
        done = client.post("/pairings/refuse", {"code": code})
        text = f"Refused: {_who(done)}."
    else:
        done = client.post("/pairings/let_in", {"code": code, "role": role, "name": name})
        where = "every agent" if done["is_everywhere"] else f"{done['pairing']['agent']} alone"
        text = (
            f"{_who(done)} may talk to {where} now, as {done['role']}: [people.{done['person']}] in "
            "config.toml."
        )
    CommandOutput().done(done, clean(text), as_json=as_json)


def _who(done: dict[str, Any]) -> str:
    asked = done["pairing"]
    return f"“{asked['name']}” ({asked['channel']} {asked['user_id']})"


Person = Annotated[
    str | None, typer.Argument(metavar="[PERSON]", help="One of [people]; without it, yourself.")
]
Base = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the browser reaches the daemon, if not as this does."),
]


def link(
    ctx: typer.Context, person: Person = None, base: Base = None, as_json: AsJson = False
) -> None:
    """Print a link to the web page that signs one browser in; it works once, within 10 minutes.

    In a terminal it is shown as a QR code too, for the camera of a phone.
    """
    made = client_of(ctx).post("/web/links", {"person": person, "base": base})
    screen = CommandOutput()
    screen.done(made, clean(made["url"]), as_json=as_json)
    if as_json:
        return
    if screen.width is not None and "here" not in made["doubts"]:
        _show_qr(screen, made["url"], screen.width)
    for warning in made["warnings"]:
        CommandOutput(sys.stderr).prose(clean(warning))


def _show_qr(screen: CommandOutput, url: str, columns: int) -> None:
    """Draw the link for a camera, if there is room and the terminal has the characters."""
    from agentsup.kit import qr

    drawn = qr.half_blocks(url, columns)
    try:
        drawn.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return
    if drawn:
        screen.say(drawn)
