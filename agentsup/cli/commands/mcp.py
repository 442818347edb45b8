"""``agentsup mcp``: the tool servers of agents, and their states."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from agentsup.cli.output.options import AsJson, client_of
from agentsup.cli.output.show import CommandOutput, when
from agentsup.kit.terminal import clean


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
