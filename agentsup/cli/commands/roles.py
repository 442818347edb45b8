"""``agentsup roles list``, ``route`` and ``mcp``: what agents are for, and their tool servers."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from agentsup.cli.connect.failure import DaemonUnreachable
from agentsup.cli.output.declared import Request, asks, submit
from agentsup.cli.output.options import AsJson, client_of, group, location_of
from agentsup.cli.output.show import Columns, CommandOutput, at
from agentsup.kit.terminal import clean

roles = group("Roles: what agents are for, and the most they may use meanwhile.")


@roles.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every role; exit code 1 where a file is broken. Without a daemon: what the files say."""
    document = _found(ctx)
    screen = CommandOutput.unless_json(document, as_json, code=1 if document["findings"] else 0)
    columns: Columns = (
        *("name", "source"),
        ("state", _state),
        ("tools", lambda one: " ".join(one["tools"]) or "-"),
        ("description", lambda one: one["description"] or "-"),
    )
    screen.listing(document["roles"], columns, empty="There are no roles.")
    for finding in document["findings"]:
        screen.finding(finding)
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


SCORES: Columns = (
    *("role", "points"),
    ("because", lambda one: ", ".join(map("{kind} {text} {points:+d}".format_map, one["signs"]))),
)


def _routed(screen: CommandOutput, one: dict[str, Any]) -> None:
    screen.say(f"{one['role'] or 'nobody'} ({one['complexity']})")
    screen.listing(one["scores"], SCORES, empty="No role fits.")


@asks(_routed)
def route(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What somebody might ask.")],
) -> Request:
    """Show the role that fits a text, and why."""
    return submit("/route", text=text)


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
    columns: Columns = (
        "agent",
        ("server", "name"),
        "type",
        ("state", lambda one: one["state"].replace("_", " ")),
        ("since", at("since")),
        ("tools", lambda one: len(one["tools"])),
        ("errors", lambda one: "; ".join(filter(None, (one["error"], *one["notes"]))) or "-"),
    )
    servers = [{"agent": each["agent"], **one} for each in found for one in each["servers"]]
    empty = "No agent has tool servers: `mcp` of an entry names them."
    screen.listing(servers, columns, empty=empty)
    if agent is not None:
        for one in found[0]["servers"]:
            for tool in one["tools"]:
                screen.say(clean(tool))
