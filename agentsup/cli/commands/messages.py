"""``agentsup messages …``, ``failed …`` and ``quarantine …``: what is in the mailbox, and what could
not get there."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.output.options import AsJson, Limit, client_of, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Column, CommandOutput, duration, shortened, when
from agentsup.kit.terminal import clean

messages = group("Messages of all agents: list, show, cancel, reprioritise, replay, reassign.")
failed = group("Failed messages: given up after their last attempt, and kept.")

MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
Cursor = Annotated[int | None, typer.Option(help="next_cursor of the page before.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Of this agent only.")]


def _listing(document: dict[str, Any], key: str, *, as_json: bool, empty: str) -> None:
    screen = CommandOutput.unless_json(document, as_json)
    columns: dict[str, Column] = {
        "id": "id",
        "agent": "agent",
        "state": lambda one: one["state"] + (" (failed)" if one["outcome"] == "failed" else ""),
        "kind": "kind",
        "accepted": lambda one: when(one["accepted_at"]),
        "text": lambda one: shortened(one["error"] or one["text"], 200),
    }
    screen.listing(document[key], columns, empty=empty)
    if document.get("next_cursor") and screen.is_terminal:
        screen.say(f"More: --cursor {document['next_cursor']}")


@messages.command("list")
def list_(
    ctx: typer.Context,
    agent: OfAgent = None,
    state: Annotated[
        str | None, typer.Option(help="queued, leased, parked, done, dead or cancelled.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
    thread: Annotated[str | None, typer.Option(help="Of this thread only.")] = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Only what waits, or is dead, with removed agents.")
    ] = False,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """The latest messages."""
    query = {
        "agent": agent,
        "state": state,
        "session": session,
        "thread": thread,
        "removed": "true" if removed else None,
        "limit": limit,
        "cursor": cursor,
    }
    document = client_of(ctx).get("/messages", query)
    _listing(document, "messages", as_json=as_json, empty="There are no such messages.")


@messages.command()
def show(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """One message; while it waits, with its position."""
    one = client_of(ctx).get(f"/messages/{segment(message_id)}")
    screen = CommandOutput.unless_json(one, as_json)
    position = one.get("position")
    eta = duration(one["eta_s"]) if one.get("eta_s") is not None else ""
    screen.facts(
        [
            ("id", one["id"]),
            ("agent", one["agent"]),
            ("from", one["sender"]),
            ("state", one["state"] + (f", {one['outcome']}" if one["outcome"] else "")),
            (
                "waits",
                "" if position is None else f"{position} before it" + (eta and f", about {eta}"),
            ),
            ("kind", f"{one['kind']}, {one['lane']}, {one['priority']}"),
            ("accepted", when(one["accepted_at"])),
            ("started", when(one["started_at"]) if one["started_at"] else ""),
            ("finished", when(one["finished_at"]) if one["finished_at"] else ""),
            ("attempts", one["attempts"] if one["attempts"] > 1 else ""),
            ("error", one["error"]),
            ("session", one["session"]),
            ("thread", one["thread_id"]),
            ("reply to", one["in_reply_to"]),
            ("text", one["text"]),
            ("result", one["result_text"]),
        ]
    )


@messages.command()
def thread(
    ctx: typer.Context,
    thread_id: Annotated[str, typer.Argument(metavar="ID", help="The thread's id.")],
    as_json: AsJson = False,
) -> None:
    """All messages of a thread, oldest first."""
    document = client_of(ctx).get(f"/threads/{segment(thread_id)}")
    _listing(document, "messages", as_json=as_json, empty="Empty.")


def _add_change(group: typer.Typer, path: str, text: str, about: str) -> None:
    """Add a command that changes one message; ``path`` ends with its name. ``text`` says what came
    of it, with the id as ``{id}`` and the reply as ``{now}``."""

    def change(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
        now = client_of(ctx).post(path.format(segment(message_id)))
        CommandOutput().done(now, text.format(id=message_id, now=now), as_json=as_json)

    group.command(path.rpartition("/")[2], help=about)(change)


_IS_NOW = "{id} is {now[state]}"
_SENT = "sent again as {now[message_id]}"
_REPLAY = "/messages/{}/replay"
_add_change(messages, "/messages/{}/cancel", _IS_NOW, "End a message before it is answered.")


@messages.command()
def reprioritise(
    ctx: typer.Context,
    message_id: MessageId,
    priority: Annotated[str, typer.Argument(help="critical, high, normal or low.")],
    as_json: AsJson = False,
) -> None:
    """Give a queued message another priority."""
    path = f"/messages/{segment(message_id)}/reprioritize"
    one = client_of(ctx).post(path, {"priority": priority})
    CommandOutput().done(one, f"{message_id} has priority {one['priority']}", as_json=as_json)


_add_change(messages, _REPLAY, _SENT, "Run an ended message once more, as a new message.")


@messages.command()
def reassign(
    ctx: typer.Context,
    message_id: MessageId,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Who is to do it instead.")],
    as_json: AsJson = False,
) -> None:
    """Give what waits for one agent, or has failed, to another."""
    one = client_of(ctx).post(f"/messages/{segment(message_id)}/reassign", {"to": agent})
    CommandOutput().done(one, f"given to {one['agent']} as {one['message_id']}", as_json=as_json)


@failed.command("list")
def list_failed(
    ctx: typer.Context,
    agent: OfAgent = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Messages that could not be finished, newest first."""
    document = client_of(ctx).get("/dead", {"agent": agent, "limit": limit, "cursor": cursor})
    _listing(document, "dead", as_json=as_json, empty="There are no failed messages.")


failed.command("show", help="One failed message, with its last error.")(show)
_add_change(failed, "/dead/{}/requeue", _IS_NOW, "Put a failed message back into its queue.")
_add_change(failed, _REPLAY, _SENT, "Run a failed message once more, as a new message.")
_add_change(failed, "/dead/{}/drop", _IS_NOW, "Drop a failed message for good.")


quarantine = group("Updates of chat platforms that could not be handled and are kept apart.")

UpdateId = Annotated[str, typer.Argument(metavar="ID", help="Its id, such as telegram.12.")]


@quarantine.command("list")
def list_quarantined(ctx: typer.Context, limit: Limit = PAGE, as_json: AsJson = False) -> None:
    """List quarantined updates, newest first."""
    document = client_of(ctx).get("/poison", {"limit": limit})
    screen = CommandOutput.unless_json(document, as_json)
    rows = [
        (one["id"], one["account"], when(one["at"]), shortened(one["error"], 200))
        for one in document["poison"]
    ]
    screen.table(("id", "account", "came", "error"), rows, empty="Nothing is in quarantine.")


@quarantine.command("show")
def show_quarantined(ctx: typer.Context, update_id: UpdateId, as_json: AsJson = False) -> None:
    """One of them: why, and as it came."""
    one = client_of(ctx).get(f"/poison/{segment(update_id)}")
    screen = CommandOutput.unless_json(one, as_json)
    screen.say(f"{one['id']} of {clean(one['account'])}, {when(one['at'])}: {one['state']}")
    screen.say(clean(one["error"]))
    screen.say(clean(json.dumps(one["raw"], ensure_ascii=False, indent=2)))


def _add_end(verb: str, outcome: str, about: str) -> None:
    def end(ctx: typer.Context, update_id: UpdateId, as_json: AsJson = False) -> None:
        one = client_of(ctx).post(f"/poison/{segment(update_id)}/{verb}")
        CommandOutput().done(one, f"{update_id} {outcome}", as_json=as_json)

    quarantine.command(verb, help=about)(end)


_add_end("retry", "is tried again", "Handle it as if it came now.")
_add_end("drop", "was dropped", "Give it up for good.")
