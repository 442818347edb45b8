"""``link``: a one-time link to the web page, for oneself or for a person of [people]."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentsup.cli.output.options import AsJson, client_of
from agentsup.cli.output.show import CommandOutput
from agentsup.kit.terminal import clean

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
        show_qr(screen, made["url"], screen.width)
    for warning in made["warnings"]:
        CommandOutput(sys.stderr).prose(clean(warning))


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
