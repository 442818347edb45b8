"""``/poison``: updates of chat platforms that could not be handled."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Self

from pydantic import Field

from agentsup.api.documents import bodies
from agentsup.api.documents.document import Document
from agentsup.api.http.route import Call, get, post
from agentsup.channels.core.receiving import QuarantinedUpdate, quarantine


class QuarantinedDocument(Document):
    id: str
    channel: str
    account: str = Field(description="the bot's id on the platform")
    state: str = Field(description="quarantined; received once it is tried again")
    at: int
    error: str
    raw: dict[str, Any] = Field(description="what the platform gave")

    @classmethod
    def of(cls, update: QuarantinedUpdate) -> Self:
        """A quarantined update; what is no JSON object is shown as its text."""
        try:
            raw = json.loads(update.raw)
        except ValueError:
            raw = None
        is_object = isinstance(raw, dict)
        return cls.from_value(
            update, id=update.update_id, raw=raw if is_object else {"text": update.raw}
        )


class QuarantinedList(Document):
    poison: list[QuarantinedDocument]


@get("/poison")
async def listing(call: Call, query: bodies.QuarantineQuery) -> QuarantinedList:
    """Updates of chat platforms that could not be handled, newest first."""
    found = await call.deps.database.read(
        partial(quarantine.latest, limit=query.limit), name="api.poison"
    )
    return QuarantinedList(poison=[QuarantinedDocument.of(each) for each in found])


@get("/poison/{id}", refusals=(404,))
async def show(call: Call) -> QuarantinedDocument:
    """One update that could not be handled, as it came."""
    found = await call.deps.database.read(quarantine.find, call.named("id"), name="api.poison")
    return QuarantinedDocument.of(found)


@post("/poison/{id}/retry", takes_work=True, refusals=(404, 409))
async def retry(call: Call) -> QuarantinedDocument:
    """Handle an update of the quarantine once more."""
    return await _end(call, quarantine.retry_tx)


@post("/poison/{id}/drop", refusals=(404, 409))
async def drop(call: Call) -> QuarantinedDocument:
    """Give an update of the quarantine up for good."""
    return await _end(call, quarantine.drop_tx)


async def _end(call: Call, step: Any) -> QuarantinedDocument:
    one = await call.deps.database.write(step, call.named("id"), name="api.poison_end")
    return QuarantinedDocument.of(one)
