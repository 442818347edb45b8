"""`agentsup poison …`: updates of chat platforms that could not be handled."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from agentsup.cli.client import segment
from agentsup.cli.options import AsJson, client_of, group
from agentsup.cli.reads import PAGE
from agentsup.cli.show import Screen, clean, shortened, when

poison = group("Updates of chat platforms that could not be handled and are set aside.")

PoisonId = Annotated[str, typer.Argument(metavar="ID", help="Its id, such as telegram.12.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]


@poison.command("list")
def list_(ctx: typer.Context, limit: Limit = PAGE, as_json: AsJson = False) -> None:
    """What is set aside, newest first."""
    document = client_of(ctx).get("/poison", {"limit": limit})
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (one["id"], one["account"], when(one["at"]), shortened(one["error"], 200))
        for one in document["poison"]
    ]
    screen.table(("id", "account", "came", "error"), rows, empty="Nothing is set aside.")


@poison.command()
def show(ctx: typer.Context, poison_id: PoisonId, as_json: AsJson = False) -> None:
    """One of them: why, and as it came."""
    one = client_of(ctx).get(f"/poison/{segment(poison_id)}")
    screen = Screen()
    if as_json:
        screen.json(one)
        return
    screen.say(f"{one['id']} of {clean(one['account'])}, {when(one['at'])}: {one['state']}")
    screen.say(clean(one["error"]))
    screen.say(clean(json.dumps(one["raw"], ensure_ascii=False, indent=2)))


@poison.command()
def retry(ctx: typer.Context, poison_id: PoisonId, as_json: AsJson = False) -> None:
    """Handle it as if it came now."""
    _end(ctx, poison_id, "retry", "is tried again", as_json=as_json)


@poison.command()
def drop(ctx: typer.Context, poison_id: PoisonId, as_json: AsJson = False) -> None:
    """Give it up for good."""
    _end(ctx, poison_id, "drop", "was dropped", as_json=as_json)


def _end(ctx: typer.Context, poison_id: str, verb: str, told: str, *, as_json: bool) -> None:
    one = client_of(ctx).post(f"/poison/{segment(poison_id)}/{verb}")
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(f"{poison_id} {told}")
