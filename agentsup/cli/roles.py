"""`agentsup roles list` and `agentsup route`: roles, and which of them a text is for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.failure import Unreachable
from agentsup.cli.options import AsJson, client_of, group, place_of
from agentsup.cli.show import Screen, clean

roles = group("Roles: what agents are for, and the most they may use meanwhile.")


@roles.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every role; exit code 1 where a file is broken. Without a daemon: what the files say."""
    document = _found(ctx)
    screen = Screen()
    if as_json:
        screen.json(document)
    else:
        rows = [
            (
                one["name"],
                one["source"],
                _state(one),
                " ".join(one["tools"]) or "-",
                one["description"] or "-",
            )
            for one in document["roles"]
        ]
        head = ("name", "source", "state", "tools", "description")
        screen.table(head, rows, empty="There are no roles.")
        for finding in document["findings"]:
            screen.say(f"{screen.paint('error', 'red')}: {clean(finding)}")
    if document["findings"]:
        raise typer.Exit(1)


def _found(ctx: typer.Context) -> dict[str, Any]:
    """From the daemon, which knows the tools; from the files where none answers."""
    try:
        return dict(client_of(ctx).get("/roles"))
    except Unreachable:
        if place_of(ctx).url:
            raise
    from agentsup.agents.roles.book import read_roles

    book = read_roles(place_of(ctx).home.roles)
    listed = [{**role.to_json(), "served": None, "tools": []} for role in book.all()]
    return {"roles": listed, "findings": [str(each) for each in book.findings]}


def _state(one: dict[str, Any]) -> str:
    if one["status"] != "active" or one["served"] is None:
        return str(one["status"])
    return "active" if one["served"] else "no tools"


def route(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What somebody might ask.")],
    as_json: AsJson = False,
) -> None:
    """Which role a text is for, and why."""
    document = client_of(ctx).post("/route", {"text": text})
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (
            score["role"],
            str(score["points"]),
            ", ".join(f"{s['kind']} {s['text']} {s['points']:+d}" for s in score["signs"]),
        )
        for score in document["scores"]
    ]
    screen.say(f"{document['role'] or 'nobody'} ({document['complexity']})")
    screen.table(("role", "points", "because"), rows, empty="Nothing speaks for any role.")
