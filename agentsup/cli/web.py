"""`link`: a one-time link to the web page, for oneself or for a person of [people]."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.client import Client
from agentsup.cli.options import AsJson, client_of
from agentsup.cli.show import Screen, clean

Person = Annotated[
    str | None, typer.Argument(metavar="[PERSON]", help="One of [people]; without it, yourself.")
]
Base = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the browser reaches the daemon, if not as this does."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command()(link)


def fresh_link(client: Client, person: str | None = None) -> dict[str, Any]:
    """A link that signs one browser in, once. Raises `Failed`."""
    made: dict[str, Any] = client.post("/web/links", {"person": person})
    return made


def link(
    ctx: typer.Context, person: Person = None, base: Base = None, as_json: AsJson = False
) -> None:
    """Print a link to the web page that signs one browser in; it works once, within 10 minutes."""
    made = fresh_link(client_of(ctx), person)
    if base is not None:
        made["url"] = f"{base.rstrip('/')}/#code={made['code']}"
    screen = Screen()
    if as_json:
        screen.json(made)
    else:
        screen.say(clean(made["url"]))
