"""``agentsup agents set …``: a field of an agent, changed without an edit of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AgentName, AsJson, client_of
from agentsup.cli.output.show import Column, CommandOutput
from agentsup.kit.terminal import clean


def set_field(
    ctx: typer.Context,
    agent: AgentName,
    field: Annotated[
        str | None, typer.Argument(help="Which, such as model; without it: all there are.")
    ] = None,
    value: Annotated[
        str | None, typer.Argument(help="The value; without it: what it is now.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Let the files say it again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or change a field of a running agent without an edit of a file."""
    if clear and (field is None or value is not None):
        raise CommandFailed("--clear takes a FIELD and no VALUE", exit_code=2)
    path = f"/agents/{segment(agent)}/overrides"
    if field is None or (value is None and not clear):
        _show(client_of(ctx).get(path), field, as_json=as_json)
        return
    from agentsup.config import read_value  # not for every short command

    # A change that rebuilds the agent may first drain its turns.
    body = {"field": field, "value": None if value is None else read_value(field, value)}
    done = client_of(ctx).post(path, body, timeout_s=60.0)
    CommandOutput().done(done, clean(change_text(done)), as_json=as_json)


def change_text(done: Mapping[str, Any]) -> str:
    """The answer to a change, as a sentence."""
    lines = [f"{done['field']} of {done['agent']} is {_shown(done['value'])} ({done['origin']})"]
    if done["raises_rights"]:
        lines.append(f"it may now do more without asking than before ({_shown(done['before'])})")
    if done["takes"] == "rebuild" and done["value"] != done["before"]:
        lines.append("the agent is built anew for it; running turns end first or go on afterwards")
    return "; ".join(lines)


def _show(document: Mapping[str, Any], field: str | None, *, as_json: bool) -> None:
    found = [each for each in document["fields"] if field in (None, each["field"])]
    if field is not None and not found:
        from agentsup.config import field_problem

        raise CommandFailed(field_problem(field) or f"the daemon knows no field {field!r}")
    screen = CommandOutput.unless_json(document if field is None else found[0], as_json)
    columns: dict[str, Column] = {
        "field": "field",
        "value": lambda each: _shown(each["value"]),
        "from": "origin",
        "change": "takes",
        "values": lambda each: ", ".join(each["choices"]) or "-",
    }
    screen.listing(found, columns, empty="There is nothing to set.")
    for each in found if field is not None else ():
        screen.prose(clean(each["doc"]))


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)
