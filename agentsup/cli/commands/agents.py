"""``agentsup agents …``: look at agents, start and stop them, set their fields; the commands that edit
agents.json are in ``agents_file``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, read, record
from agentsup.cli.output.options import AgentName, AsJson, client_of, group, location_of
from agentsup.cli.output.reads import agents_of, engine_notes
from agentsup.cli.output.show import Columns, CommandOutput, all_of, at, duration
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
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="Remove the override; the value from the files applies again."
        ),
    ] = False,
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
    columns: Columns = (
        "field",
        ("value", lambda each: _shown(each["value"])),
        ("from", "origin"),
        ("change", "takes"),
        ("values", lambda each: ", ".join(each["choices"]) or "-"),
    )
    screen.listing(found, columns, empty="There is nothing to set.")
    for each in found if field is not None else ():
        screen.prose(clean(each["doc"]))


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)


app = group("Look at agents, start and stop them, edit agents.json.")


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every agent with its state; exit code 1 where the file of a role is broken."""
    document, findings = agents_of(client_of(ctx))
    screen = CommandOutput.unless_json(document, as_json, code=1 if findings else 0)
    columns: Columns = (
        "name",
        ("state", lambda one: _state(one, elsewhere=str(one["engine_problem"]))),
        ("engine", _engine),
        ("up", lambda one: duration(one["uptime"])),
        *("queued", "running"),
        ("last reason", _last_reason),
    )
    screen.listing(document["agents"], columns, empty="There are no agents.")
    for note in engine_notes(document["agents"]):
        screen.prose(clean(note))
    for finding in findings:
        screen.finding(finding)
    if findings:
        raise typer.Exit(1)


def _engine(one: dict[str, Any]) -> str:
    """The engine and its model; the offline engine uses none."""
    return str(one["engine"]) if is_offline(one) else f"{one['engine']} {one['model']}"


def is_offline(one: Mapping[str, Any]) -> bool:
    """Whether this agent answers by rules, without a model."""
    from agentsup.model.agent import OFFLINE  # not for every short command

    return bool(one["engine"] == OFFLINE)


def _last_reason(one: dict[str, Any]) -> str:
    """Why its life ended last; what keeps its engine from work is told below the table."""
    reason = str(one["last_reason"])
    return "-" if reason in ("", one["engine_problem"]) else reason


def _state(one: dict[str, Any], *, elsewhere: str = "") -> str:
    """Its state, with the first warning that is not told ``elsewhere``."""
    warnings = [each for each in one["warnings"] if each != elsewhere]
    if one["status"] == "degraded" and warnings:
        return f"degraded: {warnings[0]}"
    return str(one["status"]) + (" (stopped by you)" if one["desired"] == "down" else "")


FIELDS: Columns = (
    "name",
    ("state", _state),
    "role",
    ("engine", lambda one: " - ".join(filter(None, (one["engine"], one["engine_reason"])))),
    "model",
    ("up", lambda one: duration(one["uptime"])),
    "restarts",
    ("last reason", "last_reason"),
    ("last crash", "last_crash_error"),
    ("next try", at("next_retry_at", "")),
    ("mail", "{running} running, {queued} queued, {parked} waiting for an answer".format_map),
    "pending",
    ("work", all_of("work")),
    ("warnings", all_of("warnings")),
    *("agent_id", "instance_id"),
)


@asks(record(FIELDS), app)
def show(agent: AgentName) -> Request:
    """One agent: state, engine, restarts, work."""
    return read(f"/agents/{segment(agent)}")


def _now(screen: CommandOutput, one: dict[str, Any]) -> None:
    screen.say(f"{one['name']} is {one['status']}" + (f"; {p}" if (p := one["pending"]) else ""))


def _add_change(verb: str, about: str) -> None:
    @asks(_now, app, verb, help=about)
    def change(agent: AgentName) -> Request:
        # A stop or rebuild may drain for its whole grace.
        return Request(f"/agents/{segment(agent)}/{verb}", body={}, timeout_s=180.0)


_add_change("start", "Start an agent; a failed one is started again.")
_add_change("stop", "Stop an agent until it is started again; its mail waits.")
_add_change("restart", "Drain an agent and rebuild it.")
app.command("set")(set_field)


_HEADS = {"process": "needs a restart", "config_error": "edit refused"}


def _outline(key: str, value: Any, indent: str = "") -> list[str]:
    """A JSON value as indented lines; what is empty is left out."""
    if value in (None, "", [], {}, ()):
        return []
    if isinstance(value, dict):
        below = [x for k, v in value.items() for x in _outline(str(k), v, indent + "  ")]
        return [f"{indent}{key}:", *below]
    if isinstance(value, list):
        below = []
        for one in value:
            text = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
            below.append(f"{indent}  {text}")
        return [f"{indent}{key}:", *below]
    return [f"{indent}{key}: {value}"]


def _unapplied(screen: CommandOutput, one: dict[str, Any]) -> None:
    lines = [x for key, value in one.items() for x in _outline(_HEADS.get(key, key), value)]
    screen.say(clean("\n".join(lines)) if lines else "Nothing is pending.")


@asks(_unapplied, app)
def diff() -> Request:
    """Show edits that were not applied, overrides, and the current complaint."""
    return read("/diff")


@app.command()
def explain(
    ctx: typer.Context,
    agent: AgentName,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what differs from the default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Every value of an agent with where it came from; secrets stay hidden."""
    values = _explained(ctx, agent)
    if changed:
        from agentsup.config import differing

        values = differing(agent, values)
    screen = CommandOutput.unless_json({"agent": agent, "values": values}, as_json)
    columns: Columns = (
        "field",
        ("from", "origin"),
        ("change", lambda one: _change_of(one["field"])),
        ("value", lambda one: json.dumps(one["value"], ensure_ascii=False)),
    )
    screen.listing(values, columns, empty="Every value is the default.")


def _explained(ctx: typer.Context, agent: str) -> list[dict[str, Any]]:
    """The values from the daemon, which knows overrides too; from the files if none answers."""
    from agentsup.cli.connect.client import DaemonRefused
    from agentsup.cli.connect.failure import DaemonUnreachable

    try:
        document = client_of(ctx).get(f"/agents/{segment(agent)}/explain")
        return list(document["values"])
    except DaemonUnreachable:
        if location_of(ctx).url:
            raise
    except DaemonRefused as refused:
        if refused.status not in {404, 503} or location_of(ctx).url:
            raise
    from agentsup.config import explain_agent, load

    found = explain_agent(load(location_of(ctx).home), agent)
    return [{"field": v.field, "value": v.value, "origin": v.origin} for v in found]


def _change_of(field: str) -> str:
    """The ``FieldClass`` of ``field``; empty if unknown."""
    from agentsup.model.agent import field_info

    try:
        return field_info(field).cls.value
    except KeyError:
        return ""
