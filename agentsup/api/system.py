"""Health, status, drain, metrics, the OpenAPI document, and routes whose part is not enabled."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from aiohttp import web

from agentsup.api import bodies, shapes
from agentsup.api.access import Access
from agentsup.api.route import Call, Route, reply
from agentsup.supervision.policy import REBUILD_CODE

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DRAIN_BEGINS_S = 1.0


async def healthz(call: Call) -> web.Response:
    """The loop turns: this answer is computed in it."""
    return reply({"status": "ok", "version": call.deps.version})


async def readyz(call: Call) -> web.Response:
    """Whether the daemon takes work. Details of probes are for the operator alone."""
    control = call.deps.control
    report = await control.health()
    shows_detail = call.identity is not None and call.identity.principal.is_operator
    ready = report.ok and not control.draining
    document = {
        "ready": ready,
        "draining": control.draining,
        "probes": [
            {"name": p.name, "ok": p.ok, **({"detail": p.detail} if shows_detail else {})}
            for p in report.probes
        ],
    }
    return reply(document, 200 if ready else 503)


async def status(call: Call) -> web.Response:
    """The daemon at a glance."""
    view = await call.deps.control.status()
    return reply(asdict(view.seen_by(call.by)))


async def drain(call: Call) -> web.Response:
    """Begin the end: no new work, running turns finish, the process ends."""
    task = call.api.connections.work.spawn(call.deps.control.drain(call.by), name="command:drain")
    # Whether `drain` returns at once or after the last turn, the caller hears that it has begun.
    await asyncio.wait({task}, timeout=_DRAIN_BEGINS_S)
    if task.done():
        task.result()
    return reply({"success": True, "state": "draining"}, 202)


async def restart(call: Call) -> web.Response:
    """End with 42: running turns finish, and the process begins anew."""
    await call.deps.control.exit(REBUILD_CODE, call.by)
    return reply({"success": True, "state": "restarting"}, 202)


async def metrics(call: Call) -> web.Response:
    """Prometheus text."""
    return web.Response(body=await call.deps.metrics(), headers={"Content-Type": METRICS_TYPE})


async def hooks(call: Call) -> web.Response:
    """The stages that a call passes, from the live registry."""
    return reply({"hooks": [dict(row) for row in call.deps.hooks()]})


async def openapi(call: Call) -> web.Response:
    """This API as an OpenAPI 3.1 document."""
    return web.Response(
        body=await asyncio.to_thread(call.api.document), content_type="application/json"
    )


ROUTES = (
    Route(
        "GET",
        "/healthz",
        healthz,
        "The event loop turns",
        {200: shapes.Alive},
        access=Access.OPEN,
    ),
    Route(
        "GET",
        "/readyz",
        readyz,
        "Whether the daemon takes work",
        {200: shapes.Ready, 503: shapes.Ready},
        access=Access.OPEN,
    ),
    Route(
        "GET",
        "/status",
        status,
        "The daemon at a glance",
        {200: shapes.Status},
        access=Access.LOOK,
    ),
    Route(
        "POST",
        "/drain",
        drain,
        "Take no new work, let turns end, then end the process",
        {202: shapes.Draining},
        body=bodies.Nothing,
        body_optional=True,
    ),
    Route(
        "POST",
        "/restart",
        restart,
        "Take no new work, let turns end, then begin anew (exit code 42)",
        {202: shapes.Restarting},
        body=bodies.Nothing,
        body_optional=True,
    ),
    Route(
        "GET",
        "/hooks",
        hooks,
        "The stages that every call passes, in their order",
        {200: shapes.HookList},
    ),
    Route("GET", "/metrics", metrics, "Metrics for Prometheus", {200: "text/plain"}),
    Route(
        "GET",
        "/openapi.json",
        openapi,
        "This API as an OpenAPI 3.1 document",
        {200: "application/json"},
        access=Access.ANY,
    ),
)
