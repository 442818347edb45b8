"""``agentsup messages …``, ``failed …`` and ``quarantine …``: what is in the mailbox, and what could
not get there."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.output.declared import Request, asks, listing, read, record, submit
from agentsup.cli.output.options import Limit, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Columns, CommandOutput, at, brief, duration, shortened, when
from agentsup.kit.terminal import clean

messages = group("Messages of all agents: list, show, cancel, reprioritise, replay, reassign.")
failed = group("Failed messages: given up after their last attempt, and kept.")

MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
Cursor = Annotated[int | None, typer.Option(help="next_cursor of the page before.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Of this agent only.")]


def _waits(one: dict[str, Any]) -> str:
    """The position of a message that waits, and how long that may take."""
    if one["position"] is None:
        return ""
    eta = "" if one["eta_s"] is None else f", about {duration(one['eta_s'])}"
    return f"{one['position']} before it{eta}"


COLUMNS: Columns = (
    *("id", "agent"),
    ("state", lambda one: one["state"] + (" (failed)" if one["outcome"] == "failed" else "")),
    "kind",
    ("accepted", at("accepted_at")),
    ("text", lambda one: shortened(one["error"] or one["text"], 200)),
)
FIELDS: Columns = (
    *("id", "agent"),
    ("from", "sender"),
    ("state", lambda one: one["state"] + (f", {one['outcome']}" if one["outcome"] else "")),
    ("waits", _waits),
    ("kind", "{kind}, {lane}, {priority}".format_map),
    ("accepted", at("accepted_at")),
    ("started", at("started_at", "")),
    ("finished", at("finished_at", "")),
    ("attempts", lambda one: one["attempts"] if one["attempts"] > 1 else ""),
    *("error", "session"),
    ("thread", "thread_id"),
    ("reply to", "in_reply_to"),
    "text",
    ("result", "result_text"),
)


@asks(listing("messages", COLUMNS, "There are no such messages."), messages, "list")
def list_(
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
) -> Request:
    """The latest messages."""
    page = {"limit": limit, "cursor": cursor, "removed": "true" if removed else None}
    return read("/messages", agent=agent, state=state, session=session, thread=thread, **page)


@asks(record(FIELDS), messages)
def show(message_id: MessageId) -> Request:
    """One message; while it waits, with its position."""
    return read(f"/messages/{segment(message_id)}")


@asks(listing("messages", COLUMNS, "Empty."), messages)
def thread(
    thread_id: Annotated[str, typer.Argument(metavar="ID", help="The thread's id.")],
) -> Request:
    """All messages of a thread, oldest first."""
    return read(f"/threads/{segment(thread_id)}")


def _add_change(group: typer.Typer, path: str, text: str, about: str) -> None:
    """Add a command that changes one message; ``path`` ends with its name."""

    @asks(text, group, path.rpartition("/")[2], help=about)
    def change(message_id: MessageId) -> Request:
        return submit(path.format(segment(message_id)))


_IS_NOW = "{message_id} is {state}"
_SENT = "sent again as {message_id}"
_REPLAY = "/messages/{}/replay"
_add_change(messages, "/messages/{}/cancel", _IS_NOW, "End a message before it is answered.")


@asks("{message_id} has priority {priority}", messages)
def reprioritise(
    message_id: MessageId,
    priority: Annotated[str, typer.Argument(help="critical, high, normal or low.")],
) -> Request:
    """Give a queued message another priority."""
    return submit(f"/messages/{segment(message_id)}/reprioritize", priority=priority)


_add_change(messages, _REPLAY, _SENT, "Run an ended message once more, as a new message.")


@asks("given to {agent} as {message_id}", messages)
def reassign(
    message_id: MessageId,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Who is to do it instead.")],
) -> Request:
    """Give what waits for one agent, or has failed, to another."""
    return submit(f"/messages/{segment(message_id)}/reassign", to=agent)


@asks(listing("dead", COLUMNS, "There are no failed messages."), failed, "list")
def list_failed(agent: OfAgent = None, limit: Limit = PAGE, cursor: Cursor = None) -> Request:
    """Messages that could not be finished, newest first."""
    return read("/dead", agent=agent, limit=limit, cursor=cursor)


failed.command("show", help="One failed message, with its last error.")(show)
_add_change(failed, "/dead/{}/requeue", _IS_NOW, "Put a failed message back into its queue.")
_add_change(failed, _REPLAY, _SENT, "Run a failed message once more, as a new message.")
_add_change(failed, "/dead/{}/drop", _IS_NOW, "Drop a failed message for good.")


quarantine = group("Updates of chat platforms that could not be handled and are kept apart.")

UpdateId = Annotated[str, typer.Argument(metavar="ID", help="Its id, such as telegram.12.")]
QUARANTINED: Columns = ("id", "account", ("came", at("at")), ("error", brief("error")))


@asks(listing("poison", QUARANTINED, "Nothing is in quarantine."), quarantine, "list")
def list_quarantined(limit: Limit = PAGE) -> Request:
    """List quarantined updates, newest first."""
    return read("/poison", limit=limit)


def _update(screen: CommandOutput, one: dict[str, Any]) -> None:
    """An update, why it is kept apart, and what the platform gave."""
    screen.say(f"{one['id']} of {clean(one['account'])}, {when(one['at'])}: {one['state']}")
    screen.say(clean(one["error"]))
    screen.say(clean(json.dumps(one["raw"], ensure_ascii=False, indent=2)))


@asks(_update, quarantine, "show")
def show_quarantined(update_id: UpdateId) -> Request:
    """One of them: why, and as it came."""
    return read(f"/poison/{segment(update_id)}")


@asks("{update_id} is tried again", quarantine)
def retry(update_id: UpdateId) -> Request:
    """Handle it as if it came now."""
    return submit(f"/poison/{segment(update_id)}/retry")


@asks("{update_id} was dropped", quarantine)
def drop(update_id: UpdateId) -> Request:
    """Give it up for good."""
    return submit(f"/poison/{segment(update_id)}/drop")
