"""`/poison`: updates of chat platforms that could not be handled."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from aiohttp import web

from agentsup.api import bodies, shapes
from agentsup.api.route import Call, Route, reply
from agentsup.channels import poison
from agentsup.channels.poison import Poison


def _document(one: Poison) -> dict[str, Any]:
    try:
        raw = json.loads(one.raw)
    except ValueError:
        raw = None
    return {
        "id": one.poison_id,
        "channel": one.channel,
        "account": one.account,
        "state": one.state,
        "at": one.at,
        "error": one.error,
        "raw": raw if isinstance(raw, dict) else {"text": one.raw},
    }


async def listing(call: Call) -> web.Response:
    """What is set aside, newest first."""
    query: bodies.PoisonQuery = call.query
    found = await call.deps.web.database.read(
        partial(poison.latest, limit=query.limit), name="api.poison"
    )
    return reply({"poison": [_document(each) for each in found]})


async def show(call: Call) -> web.Response:
    """One of them."""
    poison_id = call.named("id")
    found = await call.deps.web.database.read(
        lambda reader: poison.find(reader, poison_id), name="api.poison"
    )
    return reply(_document(found))


async def retry(call: Call) -> web.Response:
    """Handle it as if it came now."""
    return await _end(call, poison.retry_tx)


async def drop(call: Call) -> web.Response:
    """Give it up for good."""
    return await _end(call, poison.drop_tx)


async def _end(call: Call, step: Any) -> web.Response:
    poison_id = call.named("id")
    one = await call.deps.web.database.write(lambda tx: step(tx, poison_id), name="api.poison_end")
    return reply(_document(one))


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/poison",
        listing,
        "Updates of chat platforms that could not be handled, newest first",
        {200: shapes.PoisonList},
        query=bodies.PoisonQuery,
    ),
    Route(
        "GET",
        "/poison/{id}",
        show,
        "One update that could not be handled, as it came",
        {200: shapes.PoisonDocument},
        refusals=(404,),
    ),
    Route(
        "POST",
        "/poison/{id}/retry",
        retry,
        "Handle an update that was set aside once more",
        {200: shapes.PoisonDocument},
        body=bodies.Nothing,
        body_optional=True,
        takes_work=True,
        refusals=(404, 409),
    ),
    Route(
        "POST",
        "/poison/{id}/drop",
        drop,
        "Give an update that was set aside up for good",
        {200: shapes.PoisonDocument},
        body=bodies.Nothing,
        body_optional=True,
        refusals=(404, 409),
    ),
)
