"""``agentsup approvals …``: calls that need not be asked about."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsup.cli.output.options import AsJson, client_of, group
from agentsup.cli.output.show import Column, CommandOutput, when
from agentsup.kit.terminal import clean

approvals = group("Grants that people gave for dangerous calls.")

_ENDS = {"run": "its run", "always": "until revoked"}


@approvals.command("list")
def list_(
    ctx: typer.Context,
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent.")] = None,
    as_json: AsJson = False,
) -> None:
    """The grants in force, newest first."""
    document = client_of(ctx).get("/approvals", {"agent": agent})
    screen = CommandOutput.unless_json(document, as_json)
    columns: dict[str, Column] = {
        "agent": "agent",
        "tool": lambda one: ": ".join(filter(None, (one["tool"], one["pattern"]))),
        "for": lambda one: when(one["until_at"]) if one["until_at"] else _ENDS[one["scope"]],
        "used": lambda one: (
            f"{one['uses']}×, {when(one['last_used_at'])}" if one["uses"] else "never"
        ),
        "given by": "granted_by",
        "given": lambda one: when(one["granted_at"]),
        "id": "id",
    }
    empty = "Nothing is pre-approved; you are asked before every dangerous call."
    screen.listing(document["approvals"], columns, empty=empty)


@approvals.command()
def revoke(
    ctx: typer.Context,
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The id shown by `list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a grant; the tool is asked about again."""
    one = client_of(ctx).post("/approvals/revoke", {"id": grant_id})
    CommandOutput().done(one, clean(f"{one['approval']['id']} is taken back"), as_json=as_json)
