"""``link`` and ``pair``: a person signs a browser in, a stranger with a code is let in."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, listing, read, submit
from agentsup.cli.output.show import Columns, CommandOutput
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


PAIRINGS: Columns = (
    *("code", "agent"),
    ("account", "{channel} {user_id}".format_map),
    ("calls itself", "name"),
)
REQUESTS = listing("pairings", PAIRINGS, "Nobody asks to be let in.")


def _decided(screen: CommandOutput, one: dict[str, Any]) -> None:
    """Who asks, or what came of the decision about one of them."""
    if one["code"] is None:
        REQUESTS(screen, one)
        return
    asked = one["pairing"]
    who = f"“{asked['name']}” ({asked['channel']} {asked['user_id']})"
    where = "every agent" if one.get("is_everywhere") else f"{asked['agent']} alone"
    if one["refuse"]:
        text = f"Refused: {who}."
    else:
        text = (
            f"{who} may talk to {where} now, as {one['role']}: [people.{one['person']}] in "
            "config.toml."
        )
    screen.say(clean(text))


@asks(_decided)
def pair(
    code: Code = None,
    role: Role = None,
    name: Name = None,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Refuse them; they get no code for a month.")
    ] = False,
) -> Request:
    """Let somebody in who wrote to a bot; without a code, list who asks.

    A stranger's first private message to a bot is answered with a code, valid for ten minutes. A user
    may talk to that one agent; an operator to all of them, and steer.
    """
    if code is None:
        if refuse or role or name:
            raise CommandFailed("say the code, too; `agentsup pair` lists them", exit_code=2)
        return read("/pairings")
    if refuse:
        return submit("/pairings/refuse", code=code)
    return submit("/pairings/let_in", code=code, role=role, name=name)


Person = Annotated[
    str | None, typer.Argument(metavar="[PERSON]", help="One of [people]; without it, yourself.")
]
Base = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the browser reaches the daemon, if not as this does."),
]


def _link(screen: CommandOutput, one: dict[str, Any]) -> None:
    """The link, in a terminal as a QR code too; what is doubtful goes to standard error."""
    screen.say(clean(one["url"]))
    if screen.width is not None and "here" not in one["doubts"]:
        show_qr(screen, one["url"], screen.width)
    for warning in one["warnings"]:
        CommandOutput(sys.stderr).prose(clean(warning))


@asks(_link)
def link(person: Person = None, base: Base = None) -> Request:
    """Print a link to the web page that signs one browser in; it works once, within 10 minutes.

    In a terminal it is shown as a QR code too, for the camera of a phone.
    """
    return submit("/web/links", person=person, base=base)


def show_qr(screen: CommandOutput, url: str, columns: int) -> None:
    """Draw the link for a camera, if there is room and the terminal has the characters."""
    from agentsup.kit import qr

    drawn = qr.half_blocks(url, columns)
    try:
        drawn.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return
    if drawn:
        screen.say(drawn)
