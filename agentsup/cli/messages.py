"""`agentsup messages|dead …`: look into the mailbox and steer what lies in it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.client import segment
from agentsup.cli.options import AsJson, client_of, group
from agentsup.cli.reads import PAGE
from agentsup.cli.show import Screen, duration, shortened, when

messages = group("Messages of all agents: list, show, cancel, reprioritise, replay, reassign.")
dead = group("Dead letters: messages that could not be finished.")

MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]
Cursor = Annotated[int | None, typer.Option(help="next_cursor of the page before.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Of this agent only.")]


def _listing(document: dict[str, Any], key: str, *, as_json: bool, empty: str) -> None:
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (
            one["id"],
            one["agent"],
            one["state"] + (" (failed)" if one["outcome"] == "failed" else ""),
            one["kind"],
            when(one["accepted_at"]),
            shortened(one["error"] or one["text"], 200),
        )
        for one in document[key]
    ]
    screen.table(("id", "agent", "state", "kind", "accepted", "text"), rows, empty=empty)
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
    _shown(client_of(ctx).get(f"/messages/{segment(message_id)}"), as_json=as_json)


def _shown(one: dict[str, Any], *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.json(one)
        return
    place = one.get("position")
    eta = duration(one["eta_s"]) if one.get("eta_s") is not None else ""
    screen.facts(
        [
            ("id", one["id"]),
            ("agent", one["agent"]),
            ("from", one["sender"]),
            ("state", one["state"] + (f", {one['outcome']}" if one["outcome"] else "")),
            ("waits", "" if place is None else f"{place} before it" + (eta and f", about {eta}")),
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
    if as_json:
        Screen().json(document)
    else:
        _listing({"messages": document["messages"]}, "messages", as_json=False, empty="Empty.")


@messages.command()
def cancel(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """End a message before it is answered."""
    one = client_of(ctx).post(f"/messages/{segment(message_id)}/cancel")
    _done(one, f"{message_id} is {one['state']}", as_json=as_json)


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
    _done(one, f"{message_id} has priority {one['priority']}", as_json=as_json)


@messages.command()
def replay(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """Run an ended message once more, as a new message."""
    _replayed(ctx, message_id, as_json=as_json)


def _replayed(ctx: typer.Context, message_id: str, *, as_json: bool) -> None:
    one = client_of(ctx).post(f"/messages/{segment(message_id)}/replay")
    _done(one, f"sent again as {one['message_id']}", as_json=as_json)


@messages.command()
def reassign(
    ctx: typer.Context,
    message_id: MessageId,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Who is to do it instead.")],
    as_json: AsJson = False,
) -> None:
    """Give what waits for one agent, or is dead, to another."""
    one = client_of(ctx).post(f"/messages/{segment(message_id)}/reassign", {"to": agent})
    _done(one, f"given to {one['agent']} as {one['message_id']}", as_json=as_json)


def _done(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.json(document)
    else:
        screen.say(text)


@dead.command("list")
def list_dead(
    ctx: typer.Context,
    agent: OfAgent = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Messages that could not be finished, newest first."""
    document = client_of(ctx).get("/dead", {"agent": agent, "limit": limit, "cursor": cursor})
    _listing(document, "dead", as_json=as_json, empty="There are no dead letters.")


@dead.command("show")
def show_dead(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """One dead letter, with its last error."""
    _shown(client_of(ctx).get(f"/messages/{segment(message_id)}"), as_json=as_json)


@dead.command()
def requeue(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """Put a dead letter back into its queue."""
    one = client_of(ctx).post(f"/dead/{segment(message_id)}/requeue")
    _done(one, f"{message_id} is {one['state']}", as_json=as_json)


@dead.command("replay")
def replay_dead(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """Run a dead letter once more, as a new message."""
    _replayed(ctx, message_id, as_json=as_json)


@dead.command()
def drop(ctx: typer.Context, message_id: MessageId, as_json: AsJson = False) -> None:
    """Give a dead letter up for good."""
    one = client_of(ctx).post(f"/dead/{segment(message_id)}/drop")
    _done(one, f"{message_id} is {one['state']}", as_json=as_json)
