"""``GET /events``: the durable events as a server-sent stream, resumable and bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from agentsup.api.documents import bodies
from agentsup.api.documents.messages import EventDocument
from agentsup.api.http import privacy
from agentsup.api.http.access import Access
from agentsup.api.http.problems import encode
from agentsup.api.http.route import Call, get
from agentsup.model.errors import BadRequest, Forbidden, Unauthorised
from agentsup.model.event import Event, EventType
from agentsup.model.principal import Principal
from agentsup.store import EventPage

LAST_EVENT_ID: Final = "Last-Event-ID"
PAGE: Final = 200
MISSED: Final = 1000
"""Events that a page catches up with one by one; after more, it loads its data again."""
RETRY_MS: Final = 2000
_MAX_SEQ = 2**63 - 1


@get(
    "/events",
    "text/event-stream",
    access=Access.LOOK,
    refusals=(404, 410, 429),
    headers={LAST_EVENT_ID: "id of the last event seen; the stream goes on after it"},
)
async def events(call: Call, query: bodies.EventsQuery) -> web.StreamResponse:
    """Durable events as server-sent events; `event: gap` names what retention removed.

    The stream ends when the reader leaves or stalls, or the listener closes.
    """
    limits = call.deps.limits
    log = call.deps.events
    with call.admit("event streams"), log.subscribe() as subscription:
        after, read_page = await _wanted(call, query)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.headers["X-Accel-Buffering"] = "no"
        await response.prepare(call.request)
        ended = asyncio.Event()

        async def end() -> None:
            ended.set()
            subscription.close()  # wakes the wait below

        with (
            call.api.connections.ended_by(end),
            call.signed_out(subscription.close),
            contextlib.suppress(ConnectionError, TimeoutError, Unauthorised, Forbidden),
        ):
            await call.write(response, f"retry: {RETRY_MS}\n\n".encode())
            seen = await _tell_gap(call, response, after)
            while not ended.is_set():
                page = await read_page(seen)
                for event in page.events:
                    by = _still_here(call, query)  # a slow reader may need long for one page
                    await _send(call, response, _document(call, by, event).members())
                seen = page.next_seq
                _still_here(call, query)
                if len(page.events) < PAGE and not await subscription.wait(limits.heartbeat_s):
                    await call.write(response, b": alive\n\n")
            return response
    call.cut()
    return response


def _still_here(call: Call, query: bodies.EventsQuery) -> Principal:
    """The reader with current rights. Raises ``Unauthorised``, or ``Forbidden`` if the stream is of
    one conversation that this person may not enter."""
    by = call.still_by()
    if query.conversation is not None:
        # The list of a conversation's events reveals something of it, even without their texts.
        channel, _, name = query.conversation.partition(":")
        privacy.check_enter(by, channel, name)
    return by


def _document(call: Call, by: Principal, event: Event) -> EventDocument:
    entry = call.deps.directory.by_id(event.agent_id) if event.agent_id else None
    document = EventDocument.from_value(event, agent=entry.name if entry else "")
    return privacy.shown_event(by, event, document)


async def _wanted(
    call: Call, query: bodies.EventsQuery
) -> tuple[int, Callable[[int], Awaitable[EventPage]]]:
    """The sequence number after which the stream starts, and what reads its events after one."""
    entry = call.deps.directory.lookup(query.agent) if query.agent else None
    if query.conversation is not None:
        _still_here(call, query)
    newest = await call.deps.events.last_seq()
    after = _last_event_id(call.request)
    if after is None:
        after = query.after
    if after is None or after > newest:  # such a number comes from another store
        after = newest
    return after, partial(
        call.deps.events.page,
        agent_id=entry.agent_id if entry else None,
        conversation=query.conversation,
        types=_types(query.types),
        limit=PAGE,
    )


def _last_event_id(request: web.Request) -> int | None:
    text = request.headers.get(LAST_EVENT_ID)
    if text is None or not text.strip():
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or int(text) > _MAX_SEQ:
        raise BadRequest("Last-Event-ID must be the id of an event", field=LAST_EVENT_ID)
    return int(text)


def _types(text: str | None) -> tuple[EventType, ...] | None:
    if text is None:
        return None
    try:
        return tuple(EventType(name.strip()) for name in text.split(","))
    except ValueError as error:
        known = ", ".join(kind.value for kind in EventType)
        raise BadRequest(f"{error}; known are {known}", field="types") from None


async def _tell_gap(call: Call, response: web.StreamResponse, after: int) -> int:
    """Send a gap event if needed; returns the sequence number after which the stream goes on.

    A gap is sent if retention has removed events that the reader asks for, and to a page that has
    missed more than ``MISSED`` events.
    """
    oldest, newest = await call.deps.events.bounds()
    if call.session is not None and newest - after > MISSED:
        oldest = newest + 1
    if oldest <= after + 1:
        return after
    gap = {"type": "gap", "missing_from": after + 1, "missing_to": oldest - 1}
    await _send(call, response, gap)
    return oldest - 1


async def _send(call: Call, response: web.StreamResponse, document: Mapping[str, Any]) -> None:
    """Send one event. A page has one listener for all types, so its events have no names."""
    seq, kind = document.get("seq"), document["type"]
    number = b"id: %d\n" % seq if seq else b""
    name = b"event: %s\n" % str(kind).encode() if call.session is None else b""
    await call.write(response, number + name + b"data: %s\n\n" % encode(document))
