"""`agentsup approvals …`: calls that need not be asked about."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsup.cli.options import AsJson, client_of, group
from agentsup.cli.show import Screen, clean, when

approvals = group("Leave that people gave for dangerous calls.")


@approvals.command("list")
def list_(
    ctx: typer.Context,
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent.")] = None,
    as_json: AsJson = False,
) -> None:
    """What stands now, newest first."""
    document = client_of(ctx).get("/approvals", {"agent": agent} if agent is not None else {})
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (
            one["agent"],
            f"{one['tool']}: {one['pattern']}" if one["pattern"] else one["tool"],
            one["scope"],
            one["granted_by"],
            when(one["granted_at"]),
            one["id"],
        )
        for one in document["approvals"]
    ]
    head = ("agent", "tool", "for", "given by", "given", "id")
    screen.table(head, rows, empty="No leave stands: every dangerous call is asked about.")


@approvals.command()
def revoke(
    ctx: typer.Context,
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The id shown by `list`.")],
    as_json: AsJson = False,
) -> None:
    """Take leave back; the tool is asked about again."""
    one = client_of(ctx).post("/approvals/revoke", {"id": grant_id})
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(clean(f"{one['approval']['id']} is taken back"))
