"""``agentsup roles list``, ``route`` and ``mcp``: what agents are for, and their tool servers."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from agentsup.cli.connect.failure import DaemonUnreachable
from agentsup.cli.output.options import AsJson, client_of, group, location_of
from agentsup.cli.output.show import Column, CommandOutput, when
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


def mcp(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="Only this agent's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The tool servers of agents: state, since when, tools, errors."""
    client = client_of(ctx)
    if agent is not None:
        names = [agent]
    else:
        names = [str(one["name"]) for one in client.get("/agents")["agents"]]
    found = [client.get(f"/agents/{quote(name, safe='')}/mcp") for name in names]
    screen = CommandOutput.unless_json(
        found[0] if agent is not None else {"agents": found}, as_json
    )
    rows = [_row(each["agent"], one) for each in found for one in each["servers"]]
    head = ("agent", "server", "type", "state", "since", "tools", "errors")
    screen.table(head, rows, empty="No agent has tool servers: `mcp` of an entry names them.")
    if agent is not None:
        for one in found[0]["servers"]:
            for tool in one["tools"]:
                screen.say(clean(tool))


def _row(agent: str, one: dict[str, Any]) -> tuple[str, ...]:
    amiss = "; ".join([*([one["error"]] if one["error"] else []), *one["notes"]])
    return (
        agent,
        one["name"],
        one["type"],
        one["state"].replace("_", " "),
        when(one["since"]) if one["since"] is not None else "-",
        str(len(one["tools"])),
        clean(amiss) or "-",
    )
