"""What commands share: their place, their screen and the options that mean the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsup.cli.client import Client
from agentsup.cli.locate import Place

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    """Agents whose name begins so, for the shell; nothing where no daemon answers."""
    from agentsup.cli.failure import Failed

    home = ctx.find_root().params.get("home")
    try:
        client = Client.to(Place.of(home))
        names = client.get("/interagent/agents", timeout_s=1.0)["agents"]
    except (Failed, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name.", autocompletion=complete_agent)
]
MaybeAgent = Annotated[
    str | None,
    typer.Argument(metavar="[AGENT]", help="Its name.", autocompletion=complete_agent),
]


def place_of(ctx: typer.Context) -> Place:
    """The home or address that this command line is about."""
    place = ctx.find_object(Place)
    return place if place is not None else Place.of(None)


def client_of(ctx: typer.Context) -> Client:
    """The daemon this command line is about. Raises `Failed` where none is known."""
    return Client.to(place_of(ctx))


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands; alone it prints its help. `completion`: offer it for the shell."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
