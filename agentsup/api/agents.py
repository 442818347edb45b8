"""`/agents` and `/stop_all`: the operator sees and steers the running set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from agentsup.api import bodies, documents, shapes
from agentsup.api.access import Access
from agentsup.api.route import Call, Endpoint, Route, reply
from agentsup.model.control import AgentView, Control
from agentsup.model.principal import Principal

Change = Callable[[Control, str, Principal], Awaitable[AgentView]]


async def listing(call: Call) -> web.Response:
    """Every agent with its state."""
    views = await call.deps.control.agents()
    return reply({"agents": [documents.agent(view.seen_by(call.by)) for view in views]})


async def show(call: Call) -> web.Response:
    """One agent."""
    view = await call.deps.control.agent(call.named("name"))
    return reply(documents.agent(view.seen_by(call.by)))


async def explain(call: Call) -> web.Response:
    """Every value of an agent with where it came from."""
    name = call.named("name")
    return reply({"agent": name, "values": await call.deps.control.explain(name)})


async def overrides(call: Call) -> web.Response:
    """The fields of an agent that may be set without an edit of a file, as they are now."""
    fields = await call.deps.control.overridable(call.named("name"))
    name = fields[0].agent if fields else call.named("name")
    return reply({"agent": name, "fields": [documents.overridable(each) for each in fields]})


async def override(call: Call) -> web.Response:
    """Set a field of an agent, or let the files say it again."""
    body = call.body
    found = await call.deps.control.set_override(
        call.named("name"), body.field, body.value, call.by
    )
    return reply(documents.overridden(found))


async def diff(call: Call) -> web.Response:
    """What an edit has left pending, overrides, the standing complaint."""
    return reply(await call.deps.control.diff())


async def stop_all(call: Call) -> web.Response:
    """Stop everything that runs, waits or is queued; the agents stay up."""
    report = await call.deps.control.stop("all", call.by)
    return reply(documents.stopped(report))


def _changing(change: Change) -> Endpoint:
    async def endpoint(call: Call) -> web.Response:
        view = await change(call.deps.control, call.named("name"), call.by)
        return reply({"success": True, **documents.agent(view)})

    return endpoint


def _change_route(verb: str, change: Change, summary: str, *, takes_work: bool) -> Route:
    return Route(
        "POST",
        f"/agents/{{name}}/{verb}",
        _changing(change),
        summary,
        {200: shapes.AgentChanged},
        access=Access.STEER,
        body=bodies.Nothing,
        body_optional=True,
        takes_work=takes_work,
        refusals=(404, 409, 410),
    )


ROUTES = (
    Route(
        "GET",
        "/agents",
        listing,
        "Every agent with its state",
        {200: shapes.AgentList},
        access=Access.LOOK,
    ),
    Route(
        "GET",
        "/agents/{name}",
        show,
        "One agent",
        {200: shapes.Agent},
        access=Access.LOOK,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/agents/{name}/explain",
        explain,
        "Every value of an agent with where it came from",
        {200: shapes.Explained},
        access=Access.STEER,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/agents/{name}/overrides",
        overrides,
        "The fields that may be set without an edit of a file",
        {200: shapes.OverridableList},
        access=Access.STEER,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/agents/{name}/overrides",
        override,
        "Set a field of an agent; null lets the files say it again",
        {200: shapes.Overridden},
        access=Access.STEER,
        body=bodies.OverrideBody,
        refusals=(404, 409, 410),
    ),
    _change_route(
        "start",
        lambda control, name, by: control.start_agent(name, by),
        "Start an agent; a failed one is revived",
        takes_work=True,
    ),
    _change_route(
        "stop",
        lambda control, name, by: control.stop_agent(name, by),
        "Stop an agent until it is started again",
        takes_work=False,
    ),
    _change_route(
        "restart",
        lambda control, name, by: control.restart_agent(name, by),
        "Drain an agent and build it anew",
        takes_work=True,
    ),
    Route(
        "GET",
        "/diff",
        diff,
        "What an edit has left pending",
        {200: "application/json"},
        access=Access.STEER,
    ),
    Route(
        "POST",
        "/stop_all",
        stop_all,
        "Stop everything that runs, waits or is queued; the agents stay up",
        {200: shapes.Stopped},
        access=Access.STEER,
        body=bodies.Nothing,
        body_optional=True,
    ),
)
