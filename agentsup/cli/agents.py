"""`agentsup agents …`: look at agents, start and stop them, and edit agents.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from agentsup.cli.client import segment
from agentsup.cli.failure import Failed
from agentsup.cli.options import AgentName, AsJson, client_of, group, place_of
from agentsup.cli.overrides import set_field
from agentsup.cli.reads import agents_of
from agentsup.cli.show import Screen, clean, duration, when

app = group("Look at agents, start and stop them, edit agents.json.")


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every agent with its state; exit code 1 where the file of a role is broken."""
    document, findings = agents_of(client_of(ctx))
    screen = Screen()
    if as_json:
        screen.json(document)
        raise typer.Exit(1 if findings else 0)
    headers = ("name", "state", "engine", "up", "queued", "running", "last reason")
    rows = [
        (
            one["name"],
            _state(one),
            _engine(one),
            duration(one["uptime"]),
            one["queued"],
            one["running"],
            one["last_reason"] or "-",
        )
        for one in document["agents"]
    ]
    screen.table(headers, rows, empty="There are no agents.")
    for note in offline_notes(document["agents"]):
        screen.prose(clean(note))
    for finding in findings:
        screen.say(f"{screen.paint('error', 'red')}: {clean(finding)}")
    if findings:
        raise typer.Exit(1)


def _engine(one: dict[str, Any]) -> str:
    """The engine and its model; the offline engine uses none."""
    return str(one["engine"]) if is_offline(one) else f"{one['engine']} {one['model']}"


def is_offline(one: Mapping[str, Any]) -> bool:
    """Whether this agent answers by rules, without a model."""
    from agentsup.model.agent import OFFLINE  # not for every short command

    return bool(one["engine"] == OFFLINE)


def offline_notes(agents: Iterable[Mapping[str, Any]]) -> list[str]:
    """For each reason for which agents answer offline though nobody chose that: who, and why."""
    found: dict[str, list[str]] = {}
    for one in agents:
        if is_offline(one) and one["engine_reason"]:
            found.setdefault(one["engine_reason"], []).append(one["name"])
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _state(one: dict[str, Any]) -> str:
    return str(one["status"]) + (" (stopped by you)" if one["desired"] == "down" else "")


@app.command()
def show(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """One agent: state, engine, restarts, work."""
    _show(client_of(ctx).get(f"/agents/{segment(agent)}"), as_json=as_json)


def _show(one: dict[str, Any], *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.json(one)
        return
    screen.facts(
        [
            ("name", one["name"]),
            ("state", _state(one)),
            ("role", one["role"]),
            ("engine", " - ".join(x for x in (one["engine"], one["engine_reason"]) if x)),
            ("model", one["model"]),
            ("up", duration(one["uptime"])),
            ("restarts", one["restarts"]),
            ("last reason", one["last_reason"]),
            ("last crash", one["last_crash_error"]),
            ("next try", when(one["next_retry_at"]) if one["next_retry_at"] else ""),
            ("mail", f"{one['running']} running, {one['queued']} queued, {one['parked']} parked"),
            ("pending", one["pending"]),
            ("work", "\n".join(one["work"])),
            ("warnings", "\n".join(one["warnings"])),
            ("agent_id", one["agent_id"]),
            ("instance_id", one["instance_id"]),
        ]
    )


def _change(ctx: typer.Context, agent: str, verb: str, *, as_json: bool) -> None:
    # A stop or rebuild may drain for its whole grace.
    one = client_of(ctx).post(f"/agents/{segment(agent)}/{verb}", timeout_s=180.0)
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(
            f"{one['name']} is {one['status']}" + (f"; {p}" if (p := one["pending"]) else "")
        )


@app.command()
def start(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Start an agent; one that was given up is revived."""
    _change(ctx, agent, "start", as_json=as_json)


@app.command()
def stop(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Stop an agent until it is started again; its mail waits."""
    _change(ctx, agent, "stop", as_json=as_json)


@app.command()
def restart(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Drain an agent and build it anew."""
    _change(ctx, agent, "restart", as_json=as_json)


app.command("set")(set_field)


@app.command()
def diff(ctx: typer.Context, as_json: AsJson = False) -> None:
    """What an edit has left pending, overrides, the standing complaint."""
    document = client_of(ctx).get("/diff")
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    lines = [line for key, value in document.items() for line in _outline(key, value)]
    screen.say(clean("\n".join(lines)) if lines else "Nothing is pending.")


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


@app.command()
def explain(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Every value of an agent with where it came from; secrets stay hidden."""
    values = _explained(ctx, agent)
    screen = Screen()
    if as_json:
        screen.json({"agent": agent, "values": values})
        return
    headers = ("field", "from", "change", "value")
    rows = [
        (
            v["field"],
            v["origin"],
            _change_of(v["field"]),
            json.dumps(v["value"], ensure_ascii=False),
        )
        for v in values
    ]
    screen.table(headers, rows, empty="There is nothing to explain.")


def _explained(ctx: typer.Context, agent: str) -> list[dict[str, Any]]:
    """From the daemon, which knows overrides too; from the files where none answers."""
    from agentsup.cli.client import Refused
    from agentsup.cli.failure import Unreachable

    try:
        document = client_of(ctx).get(f"/agents/{segment(agent)}/explain")
        return list(document["values"])
    except Unreachable:
        if place_of(ctx).url:
            raise
    except Refused as refused:
        if refused.status not in {404, 503} or place_of(ctx).url:
            raise
    from agentsup.config.explain import explain as explain_files

    found = explain_files(place_of(ctx).home, agent)
    return [{"field": v.field, "value": v.value, "origin": v.origin} for v in found]


def _change_of(field: str) -> str:
    """What it takes until a change of `field` is in effect."""
    from agentsup.model.agent import field_info

    try:
        return field_info(field).cls.value
    except KeyError:
        return ""


@app.command()
def validate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check agents.json, config.toml, roles and scripts; exit code 1 where something is wrong."""
    from dataclasses import asdict

    from agentsup.agents.roles.book import read_roles
    from agentsup.cli.scripts import script_findings
    from agentsup.config.explain import finding_of
    from agentsup.config.explain import validate as check

    home = place_of(ctx).home
    if not home.root.is_dir():
        raise Failed(f"there is no home at {home.root}; make one with `agentsup init`")
    found = [
        *check(home, checks=(script_findings,)),
        *map(finding_of, read_roles(home.roles).findings),
    ]
    errors = sum(one.is_error for one in found)
    screen = Screen()
    if as_json:
        screen.json({"ok": not errors, "home": str(home.root), "findings": [*map(asdict, found)]})
    else:
        for one in found:
            mark = screen.paint(one.severity.value, "red" if one.is_error else "yellow")
            screen.say(f"{mark}: {clean(one)}")
        if not found:
            screen.say(f"{home.agents_json} and {home.config_toml.name} are right.")
    if errors:
        raise typer.Exit(1)


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    prompt: Annotated[str | None, typer.Option(help="How it should work.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, scripted, llm …")] = None,
    model: Annotated[str | None, typer.Option(help="The model it thinks with.")] = None,
    telegram_token: Annotated[
        str | None, typer.Option(help='Better "env:NAME" or "file:PATH" than the token itself.')
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field; JSON or text."),
    ] = None,
) -> None:
    """Add an agent to agents.json; a running daemon starts it at once."""
    from agentsup.cli.agents_edit import change_file, with_entry

    entry: dict[str, Any] = {"name": name}
    given = {
        "description": description,
        "prompt": prompt,
        "engine": engine,
        "model": model,
        "telegram_token": telegram_token,
    }
    entry |= {key: value for key, value in given.items() if value is not None}
    entry |= dict(_field(each) for each in field or ())
    home = place_of(ctx).home
    backup = change_file(home, lambda text: with_entry(text, entry))
    _edited(ctx, f"added {name}", backup)


def _field(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise Failed(f"--set takes KEY=VALUE, not {text!r}", exit_code=2)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@app.command()
def remove(ctx: typer.Context, agent: AgentName) -> None:
    """Take an agent out of agents.json; its memory and its mail stay for when it comes back."""
    from agentsup.cli.agents_edit import change_file, without_entry

    backup = change_file(place_of(ctx).home, lambda text: without_entry(text, agent))
    _edited(ctx, f"removed {agent}", backup)


def _edited(ctx: typer.Context, what: str, backup: str) -> None:
    from agentsup.config.explain import validate as check

    home = place_of(ctx).home
    Screen().say(
        f"{what} in {home.agents_json}" + (f"; the file before is {backup}" if backup else "")
    )
    errors = [one for one in check(home) if one.is_error]
    if errors:
        raise Failed(f"the file is not applied as it stands: {clean(errors[0])}")
