"""Health, status, drain, restart, metrics, hooks and the OpenAPI document."""

from __future__ import annotations

import asyncio
from typing import Literal

from aiohttp import web
from pydantic import Field

from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post, reply
from agentsup.supervision import REBUILD_CODE


class Alive(Document):
    status: Literal["ok"]
    version: str


class Probe(Document):
    name: str
    ok: bool
    detail: str | None = Field(None, description="for the operator's token only")


class Ready(Document):
    ready: bool
    draining: bool
    probes: list[Probe]


class Draining(DoneDocument):
    state: Literal["draining"]


class Restarting(DoneDocument):
    state: Literal["restarting"]


class StatusDocument(Document):
    version: str
    boot_id: str
    node_id: str
    pid: int
    home: str
    started_at: int
    uptime_s: float
    state: str
    url: str
    agents_up: int
    agents_total: int
    config_error: str
    warnings: list[str]
    conservation: dict[str, int]


class HookDocument(Document):
    phase: str
    priority: int = Field(description="lower ones run first within a phase")
    name: str
    on: bool
    fixed: bool = Field(description="it has no switch")
    about: str


class HookList(Document):
    hooks: list[HookDocument]


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DRAIN_BEGINS_S = 1.0


@get("/healthz", access=Access.OPEN)
async def healthz(call: Call) -> Alive:
    """The event loop turns."""
    return Alive.model_construct(status="ok", version=call.deps.version)


@get("/readyz", {200: Ready, 503: Ready}, access=Access.OPEN)
async def readyz(call: Call) -> web.Response:
    """Whether the daemon takes work.

    Details of probes are for the operator alone.
    """
    control = call.deps.control
    report = await control.health()
    shows_detail = call.identity is not None and call.identity.principal.is_operator
    ready = report.ok and not control.draining
    probes = [
        Probe.from_value(each, **({"detail": each.detail} if shows_detail else {}))
        for each in report.probes
    ]
    document = Ready.model_construct(ready=ready, draining=control.draining, probes=probes)
    return reply(document, 200 if ready else 503)


@get("/status", access=Access.LOOK)
async def status(call: Call) -> StatusDocument:
    """The daemon at a glance."""
    view = await call.deps.control.status()
    return StatusDocument.from_value(view.seen_by(call.by))


@post("/drain", 202)
async def drain(call: Call) -> Draining:
    """Take no new work, let turns end, then end the process."""
    task = call.api.connections.work.spawn(call.deps.control.drain(call.by), name="command:drain")
    # ``drain`` may return only after the last turn; the caller is answered once it has begun.
    await asyncio.wait({task}, timeout=_DRAIN_BEGINS_S)
    if task.done():
        task.result()
    return Draining.model_construct(success=True, state="draining")


@post("/restart", 202)
async def restart(call: Call) -> Restarting:
    """Take no new work, let turns end, then begin anew (exit code 42)."""
    await call.deps.control.exit(REBUILD_CODE, call.by)
    return Restarting.model_construct(success=True, state="restarting")


@get("/metrics", "text/plain")
async def metrics(call: Call) -> web.Response:
    """Metrics for Prometheus."""
    return web.Response(body=await call.deps.metrics(), headers={"Content-Type": METRICS_TYPE})


@get("/hooks")
async def hooks(call: Call) -> HookList:
    """The stages that every call passes, in their order."""
    rows = [HookDocument.model_construct(**row) for row in call.deps.hooks()]
    return HookList.model_construct(hooks=rows)


@get("/openapi.json", "application/json", access=Access.ANY)
async def openapi(call: Call) -> web.Response:
    """This API as an OpenAPI 3.1 document."""
    return web.Response(
        body=await asyncio.to_thread(call.api.document), content_type="application/json"
    )
