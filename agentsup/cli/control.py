"""`send`, `chat`, `stop-all`, `logs`, `doctor`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.failure import Failed
from agentsup.cli.options import AgentName, AsJson, MaybeAgent, client_of, place_of
from agentsup.cli.show import Screen, clean, when

SEND_S = 300.0


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command()(chat)
    app.command()(send)
    app.command("stop-all")(stop_all)
    app.command()(logs)
    app.command()(doctor)
    app.command()(hooks)


def hooks(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The stages that every call of a tool passes, as they are in the running daemon."""
    document = client_of(ctx).get("/hooks")
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (one["phase"], one["name"], _switch(one), clean(one["about"])) for one in document["hooks"]
    ]
    screen.table(("phase", "stage", "", "what it does"), rows, empty="There are no stages.")


def _switch(one: dict[str, Any]) -> str:
    return "always" if one["fixed"] else "on" if one["on"] else "off"


def chat(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    conversation: Annotated[
        str, typer.Option(help="Its name; each is a chat of its own.")
    ] = "local",
) -> None:
    """Talk to an agent (main, if none is named); reads lines from a pipe too."""
    from agentsup.cli.chat import run_chat

    raise typer.Exit(run_chat(place_of(ctx), agent or "main", conversation))


def send(
    ctx: typer.Context,
    agent: AgentName,
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    wait: Annotated[bool, typer.Option(help="Wait for the answer, or only queue it.")] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait.")] = SEND_S,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: sent again with it, it counts once.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="critical, high, normal or low.")] = None,
    new_session: Annotated[bool, typer.Option("--new-session", help="Begin afresh.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message to an agent and print its answer."""
    body: dict[str, Any] = {
        "to": agent,
        "message": sys.stdin.read() if text == "-" else text,
        "new_session": new_session,
    }
    if key is not None:
        body["idempotency_key"] = key
    if priority is not None:
        body["priority"] = priority
    client = client_of(ctx)
    screen = Screen()
    if not wait:
        queued = client.post("/interagent/send_async", body)
        if as_json:
            screen.json(queued)
        else:
            screen.say(queued["message_id"])
        return
    from agentsup.cli.sending import ask

    answer = ask(client, body, timeout)
    if as_json:
        screen.json(answer)
    else:
        screen.say(clean(answer["text"]) if screen.is_terminal else answer["text"])


def stop_all(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Stop everything that runs, waits or is queued; the agents stay up."""
    one = client_of(ctx).post("/stop_all")
    screen = Screen()
    if as_json:
        screen.json(one)
        return
    total = one["running"] + one["queued"] + one["parked"]
    if not total and not one["processes"]:
        screen.say("Nothing was running or waiting.")
    else:
        screen.prose(
            f"Stopped {one['running']} running, {one['queued']} queued and {one['parked']} parked "
            f"messages and {one['processes']} processes of {one['agents']} agents in "
            f"{one['elapsed_ms']:.0f} ms."
        )
    if not one["durable"]:
        screen.say("It could not be written to the store: it holds until the daemon ends.")
    for each in one["schedules"]:
        screen.say(f"The schedule of {clean(each['name'])} stays: next {when(each['next_at'])}.")


def logs(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The lines as they are stored.")] = False,
) -> None:
    """The latest lines of the log, of one agent or of all."""
    from agentsup.cli.log_lines import follow_log, refuse_unknown, tail_log, text_of

    place = place_of(ctx)
    path = place.home.logs / "agentsup.log"
    if not path.exists():
        raise Failed(f"there is no log at {path}; has a daemon run for this home?")
    screen = Screen()

    def show(line: str) -> None:
        screen.say(line if as_json else text_of(line, plain=screen.plain))

    found = tail_log(path, lines, agent)
    if agent is not None and not found:
        refuse_unknown(place.home, agent)
    for line in found:
        show(line)
    if follow:
        try:
            follow_log(path, agent, show)
        except KeyboardInterrupt:
            return


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check this machine and the home; exit code 1 where something must be mended."""
    from dataclasses import asdict

    from agentsup.cli.doctor import FAIL, examine

    screen = Screen()
    found = examine(place_of(ctx))
    failed = any(one.result == FAIL for one in found)
    if as_json:
        screen.json({"ok": not failed, "checks": [*map(asdict, found)]})
    else:
        from agentsup.cli.show import painted, wrapped

        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for one in found:
            text = f"{one.name}: {one.text}" + (f" → {one.advice}" if one.advice else "")
            first, *rest = wrapped(clean(text), screen.width and screen.width - 6)
            mark = painted(f"{one.result:<4}", colours[one.result], plain=screen.plain)
            screen.say("\n".join([f"{mark}  {first}", *(f"      {line}" for line in rest)]))
    if failed:
        raise typer.Exit(1)
