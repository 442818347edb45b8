"""`GET /events`: the durable events as a server-sent stream, resumable and bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from agentsup.api import bodies, documents, privacy
from agentsup.api.access import Access
from agentsup.api.problems import encode
from agentsup.api.route import Call, Route
from agentsup.model.errors import BadRequest, Unauthorised
from agentsup.model.event import Event, EventType
from agentsup.model.principal import Principal

LAST_EVENT_ID: Final = "Last-Event-ID"
PAGE: Final = 200
MISSED: Final = 1000
"""Events that a page catches up with one by one; it looks anew after more of them."""
RETRY_MS: Final = 2000
_MAX_SEQ = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one stream is about."""

    after: int
    agent_id: str | None
    conversation: str | None
    types: tuple[EventType, ...] | None


async def events(call: Call) -> web.StreamResponse:
    """Stream events until the reader leaves, stalls, or the listener closes."""
    limits = call.deps.limits
    log = call.deps.events
    with call.admit("event streams"), log.subscribe() as subscription:
        wanted = await _wanted(call)
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
            contextlib.suppress(ConnectionError, TimeoutError, Unauthorised),
        ):
            await _write(response, f"retry: {RETRY_MS}\n\n".encode(), limits.stall_s)
            seen = await _tell_gap(call, response, wanted.after)
            while not ended.is_set():
                page = await log.page(
                    seen,
                    agent_id=wanted.agent_id,
                    conversation=wanted.conversation,
                    types=wanted.types,
                    limit=PAGE,
                )
                by = call.still_by()
                for event in page.events:
                    frame = _frame(_document(call, by, event), is_named=call.session is None)
                    await _write(response, frame, limits.stall_s)
                seen = page.next_seq
                if len(page.events) < PAGE and not await subscription.wait(limits.heartbeat_s):
                    await _write(response, b": alive\n\n", limits.stall_s)
            return response
    _cut(call.request)
    return response


def _document(call: Call, by: Principal, event: Event) -> dict[str, Any]:
    entry = call.deps.directory.by_id(event.agent_id) if event.agent_id else None
    document = {**documents.event(event), "agent": entry.name if entry else ""}
    return privacy.shown_event(by, event, document)


async def _wanted(call: Call) -> Wanted:
    query: bodies.EventsQuery = call.query
    entry = call.deps.directory.lookup(query.agent) if query.agent else None
    if query.conversation is not None:
        # Which events are of a conversation tells something of it, even without their words.
        channel, _, name = query.conversation.partition(":")
        privacy.check_enter(call.by, channel, name)
    newest = await call.deps.events.last_seq()
    after = _last_event_id(call.request)
    if after is None:
        after = query.after
    return Wanted(
        # Nobody can have seen what was not written yet: such a number is from another store.
        after=newest if after is None or after > newest else after,
        agent_id=entry.agent_id if entry else None,
        conversation=query.conversation,
        types=_types(query.types),
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
    """A reader that asks for events which retention has removed is told so, and a page that was
    away for long is told to look anew; where the stream goes on."""
    first = await call.deps.events.first_seq()
    newest = await call.deps.events.last_seq()
    oldest = first or newest + 1
    if call.session is not None and newest - after > MISSED:
        oldest = newest + 1
    if oldest <= after + 1:
        return after
    gap = {"type": "gap", "missing_from": after + 1, "missing_to": oldest - 1}
    await _write(response, _frame(gap, is_named=call.session is None), call.deps.limits.stall_s)
    return oldest - 1


def _frame(document: Mapping[str, Any], *, is_named: bool) -> bytes:
    """One event. A page hears all types with one listener, so there they have no names."""
    seq, kind = document.get("seq"), document["type"]
    head = (b"id: %d\n" % seq if seq else b"") + (
        b"event: %s\n" % str(kind).encode() if is_named else b""
    )
    return head + b"data: %s\n\n" % encode(document)


async def _write(response: web.StreamResponse, data: bytes, stall_s: float) -> None:
    """Write within `stall_s` seconds; a reader that takes nothing raises `TimeoutError`."""
    async with asyncio.timeout(stall_s):
        await response.write(data)


def _cut(request: web.Request) -> None:
    """End the connection of a reader that left or stalls, without waiting for it."""
    if request.transport is not None:
        request.transport.abort()


ROUTES = (
    Route(
        "GET",
        "/events",
        events,
        "Durable events as server-sent events; `event: gap` names what retention removed",
        {200: "text/event-stream"},
        access=Access.LOOK,
        query=bodies.EventsQuery,
        refusals=(404, 410, 429),
        headers={LAST_EVENT_ID: "id of the last event seen; the stream goes on after it"},
    ),
)
