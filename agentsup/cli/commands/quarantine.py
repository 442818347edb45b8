"""``agentsup quarantine …``: updates of chat platforms that could not be handled."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.output.options import AsJson, Limit, client_of, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import CommandOutput, shortened, when
from agentsup.kit.terminal import clean

quarantine = group("Updates of chat platforms that could not be handled and are kept apart.")

UpdateId = Annotated[str, typer.Argument(metavar="ID", help="Its id, such as telegram.12.")]


@quarantine.command("list")
def list_(ctx: typer.Context, limit: Limit = PAGE, as_json: AsJson = False) -> None:
    """List quarantined updates, newest first."""
    document = client_of(ctx).get("/poison", {"limit": limit})
    screen = CommandOutput.unless_json(document, as_json)
    rows = [
        (one["id"], one["account"], when(one["at"]), shortened(one["error"], 200))
        for one in document["poison"]
    ]
    screen.table(("id", "account", "came", "error"), rows, empty="Nothing is in quarantine.")


@quarantine.command()
def show(ctx: typer.Context, update_id: UpdateId, as_json: AsJson = False) -> None:
    """One of them: why, and as it came."""
    one = client_of(ctx).get(f"/poison/{segment(update_id)}")
    screen = CommandOutput.unless_json(one, as_json)
    screen.say(f"{one['id']} of {clean(one['account'])}, {when(one['at'])}: {one['state']}")
    screen.say(clean(one["error"]))
    screen.say(clean(json.dumps(one["raw"], ensure_ascii=False, indent=2)))


def _add_end(verb: str, outcome: str, about: str) -> None:
    def end(ctx: typer.Context, update_id: UpdateId, as_json: AsJson = False) -> None:
        one = client_of(ctx).post(f"/poison/{segment(update_id)}/{verb}")
        CommandOutput().done(one, f"{update_id} {outcome}", as_json=as_json)

    quarantine.command(verb, help=about)(end)


_add_end("retry", "is tried again", "Handle it as if it came now.")
_add_end("drop", "was dropped", "Give it up for good.")
