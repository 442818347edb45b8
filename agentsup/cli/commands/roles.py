"""``agentsup roles list`` and ``agentsup route``: roles, and which of them a text is for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.connect.failure import DaemonUnreachable
from agentsup.cli.output.options import AsJson, client_of, group, location_of
from agentsup.cli.output.show import Column, CommandOutput
from agentsup.kit.terminal import clean

roles = group("Roles: what agents are for, and the most they may use meanwhile.")


@roles.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every role; exit code 1 where a file is broken. Without a daemon: what the files say."""
    document = _found(ctx)
    screen = CommandOutput()
    if as_json:
        screen.json(document)
    else:
        columns: dict[str, Column] = {
            "name": "name",
            "source": "source",
            "state": _state,
            "tools": lambda one: " ".join(one["tools"]) or "-",
            "description": lambda one: one["description"] or "-",
        }
        screen.listing(document["roles"], columns, empty="There are no roles.")
        for finding in document["findings"]:
            screen.say(f"{screen.paint('error', 'red')}: {clean(finding)}")
    if document["findings"]:
        raise typer.Exit(1)


def _found(ctx: typer.Context) -> dict[str, Any]:
    """The roles from the daemon, which knows the tools; from the files if none answers."""
    try:
        return dict(client_of(ctx).get("/roles"))
    except DaemonUnreachable:
        if location_of(ctx).url:
            raise
    from agentsup.agents.roles import read_roles

    registry = read_roles(location_of(ctx).home.roles)
    listed = [{**role.to_json(), "served": None, "tools": []} for role in registry.all()]
    return {"roles": listed, "findings": [str(each) for each in registry.findings]}


def _state(one: dict[str, Any]) -> str:
    if one["status"] != "active" or one["served"] is None:
        return str(one["status"])
    return "active" if one["served"] else "no tools"


def route(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What somebody might ask.")],
    as_json: AsJson = False,
) -> None:
    """Show the role that fits a text, and why."""
    document = client_of(ctx).post("/route", {"text": text})
    screen = CommandOutput.unless_json(document, as_json)
    rows = [
        (
            score["role"],
            str(score["points"]),
            ", ".join(f"{s['kind']} {s['text']} {s['points']:+d}" for s in score["signs"]),
        )
        for score in document["scores"]
    ]
    screen.say(f"{document['role'] or 'nobody'} ({document['complexity']})")
    screen.table(("role", "points", "because"), rows, empty="No role fits.")
