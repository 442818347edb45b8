"""``agentsup agents …``: look at agents, start and stop them, set their fields, edit agents.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AgentName, AsJson, MaybeAgent, client_of, group, location_of
from agentsup.cli.output.reads import agents_of, engine_notes
from agentsup.cli.output.show import Column, CommandOutput, duration, when
from agentsup.kit.terminal import clean
from agentsup.model.errors import MayNotManageBots


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


app = group("Look at agents, start and stop them, edit agents.json.")


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Every agent with its state; exit code 1 where the file of a role is broken."""
    document, findings = agents_of(client_of(ctx))
    screen = CommandOutput()
    if as_json:
        screen.json(document)
        raise typer.Exit(1 if findings else 0)
    columns: dict[str, Column] = {
        "name": "name",
        "state": lambda one: _state(one, elsewhere=str(one["engine_problem"])),
        "engine": _engine,
        "up": lambda one: duration(one["uptime"]),
        "queued": "queued",
        "running": "running",
        "last reason": _last_reason,
    }
    screen.listing(document["agents"], columns, empty="There are no agents.")
    for note in engine_notes(document["agents"]):
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


@app.command()
def show(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """One agent: state, engine, restarts, work."""
    one = client_of(ctx).get(f"/agents/{segment(agent)}")
    screen = CommandOutput.unless_json(one, as_json)
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
            (
                "mail",
                f"{one['running']} running, {one['queued']} queued, {one['parked']} waiting for an answer",
            ),
            ("pending", one["pending"]),
            ("work", "\n".join(one["work"])),
            ("warnings", "\n".join(one["warnings"])),
            ("agent_id", one["agent_id"]),
            ("instance_id", one["instance_id"]),
        ]
    )


def _add_change(verb: str, about: str) -> None:
    def change(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
        # A stop or rebuild may drain for its whole grace.
        one = client_of(ctx).post(f"/agents/{segment(agent)}/{verb}", timeout_s=180.0)
        text = f"{one['name']} is {one['status']}" + (f"; {p}" if (p := one["pending"]) else "")
        CommandOutput().done(one, text, as_json=as_json)

    app.command(verb, help=about)(change)


_add_change("start", "Start an agent; a failed one is started again.")
_add_change("stop", "Stop an agent until it is started again; its mail waits.")
_add_change("restart", "Drain an agent and rebuild it.")
app.command("set")(set_field)


@app.command()
def diff(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show edits that were not applied, overrides, and the current complaint."""
    document = client_of(ctx).get("/diff")
    screen = CommandOutput.unless_json(document, as_json)
    lines = [x for key, value in document.items() for x in _outline(_HEADS.get(key, key), value)]
    screen.say(clean("\n".join(lines)) if lines else "Nothing is pending.")


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
    columns: dict[str, Column] = {
        "field": "field",
        "from": "origin",
        "change": lambda one: _change_of(one["field"]),
        "value": lambda one: json.dumps(one["value"], ensure_ascii=False),
    }
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


@app.command()
def validate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check agents.json, config.toml, roles and scripts; exit code 1 where something is wrong."""
    from dataclasses import asdict

    from agentsup.cli.commands.agents_editor import check_home
    from agentsup.cli.commands.home_files import require_home

    home = location_of(ctx).home
    require_home(home)
    found = check_home(home)
    errors = sum(one.is_error for one in found)
    screen = CommandOutput()
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
    model: Annotated[str | None, typer.Option(help="The model that it uses.")] = None,
    telegram_token: Annotated[
        str | None, typer.Option(help='Better "env:NAME" or "file:PATH" than the token itself.')
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field; JSON or text."),
    ] = None,
) -> None:
    """Add an agent to agents.json; a running daemon starts it at once."""
    from agentsup.cli.commands.home_files import change_file
    from agentsup.config import with_entry

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
    home = location_of(ctx).home
    backup = change_file(home, lambda text: with_entry(text, entry))
    _edited(ctx, f"added {name}", backup)
    if telegram_token is None:
        _offer_after_adding(ctx, name)


@app.command()
def bot(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Create an agent's Telegram bot with one tap: a link that you open in Telegram.

    main's bot must be allowed to manage bots. The token comes by itself, and the agent's bot is up
    within seconds.
    """
    offer = client_of(ctx).post(f"/agents/{segment(agent)}/bot")
    _show_offer(CommandOutput.unless_json(offer, as_json), offer)


def _offer_after_adding(ctx: typer.Context, name: str) -> None:
    """Show the offer, or the switch that is missing for it; nothing without main's bot."""
    from agentsup.cli.connect.client import DaemonRefused
    from agentsup.cli.connect.failure import DaemonUnreachable

    screen = CommandOutput()
    try:
        _show_offer(screen, client_of(ctx).post(f"/agents/{segment(name)}/bot"))
    except DaemonUnreachable:
        return
    except DaemonRefused as refused:
        if refused.code == MayNotManageBots.code:
            screen.prose(str(refused))


def _show_offer(screen: CommandOutput, offer: dict[str, Any]) -> None:
    from agentsup.cli.commands.people import show_qr

    screen.prose(
        f"Open this link in Telegram and press Create there: it makes the bot of {offer['agent']}. "
        f"It holds until {when(offer['expires_at'])}."
    )
    screen.say(clean(offer["link"]))
    if screen.width is not None:
        show_qr(screen, offer["link"], screen.width)


def _field(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CommandFailed(f"--set takes KEY=VALUE, not {text!r}", exit_code=2)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@app.command()
def remove(ctx: typer.Context, agent: AgentName) -> None:
    """Take an agent out of agents.json; its memory and its mail stay for when it comes back."""
    from agentsup.cli.commands.home_files import change_file
    from agentsup.config import without_entry

    backup = change_file(location_of(ctx).home, lambda text: without_entry(text, agent))
    _edited(ctx, f"removed {agent}", backup)


@app.command("edit")
def edit_(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    gives_up: Annotated[
        bool, typer.Option("--give-up", help="Do not ask to edit again after an error.")
    ] = False,
) -> None:
    """Edit agents.json, or one entry, in your editor (EDITOR); nothing wrong is written."""
    from agentsup.cli.chat import is_in_terminal
    from agentsup.cli.commands.agents_editor import edit, in_editor

    screen = CommandOutput()

    def again(problem: str) -> bool:
        screen.say(f"{screen.paint('error', 'red')}: {clean(problem)}")
        if gives_up or not is_in_terminal():
            return False
        try:
            return input("Edit again? [Y/n] ").strip().casefold() not in ("n", "no")
        except (EOFError, KeyboardInterrupt):
            return False

    done = edit(location_of(ctx).home, agent, in_editor, again)
    if done is None:
        screen.say("Nothing was changed.")
        return
    for line in done.lines:
        screen.say(screen.paint(clean(line), "red" if line[0] == "-" else "green"))
    for line in done.effects:
        screen.prose(clean(line))
    if done.backup:
        screen.say(f"The file before is {done.backup}")


def _edited(ctx: typer.Context, what: str, backup: str) -> None:
    from agentsup.cli.commands.home_files import errors_of

    home = location_of(ctx).home
    before = f"; the file before is {backup}" if backup else ""
    CommandOutput().say(f"{what} in {home.agents_json}{before}")
    if errors := errors_of(home):
        raise CommandFailed(f"the file is not applied: {clean(errors[0])}")
