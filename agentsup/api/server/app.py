"""The app factory of the internal listener, and the one route table it serves."""

from __future__ import annotations

from functools import cache
from typing import Final

from aiohttp import web

from agentsup.api.chat import socket
from agentsup.api.completions import front
from agentsup.api.http.access import HostRules
from agentsup.api.http.connections import Connections, ConnectionTable
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.gate import dress, gate, handler_of
from agentsup.api.http.problems import encode
from agentsup.api.http.route import Api, routes_of
from agentsup.api.http.upload_sweeps import UploadSweeps
from agentsup.api.http.web_sessions import WebSessions
from agentsup.api.routes import (
    agents,
    approvals,
    cost,
    events,
    interagent,
    mcp,
    memory,
    messages,
    pairing,
    quarantine,
    roles,
    setup,
    system,
    tasks,
    traces,
)
from agentsup.api.server import openapi
from agentsup.api.web import chats, files, login, static, views

_MODULES: Final = (
    *(system, interagent, mcp, agents, memory, cost, approvals, messages),
    *(quarantine, roles, tasks, traces, events, pairing, setup),
    *(socket, login, static, chats, files, views),  # of the page
    front,  # /v1, for chat clients
)
ROUTES: Final = tuple(route for module in _MODULES for route in routes_of(module))
"""Every route, in the order in which the modules are listed."""
API: Final = web.AppKey("api", Api)


def build_app(deps: ApiDependencies, *, port: int = 0, host: str = "127.0.0.1") -> web.Application:
    """Build the application over ``deps``.

    ``port`` is the port that ``Host`` headers must name, ``host`` the address to bind.
    ``ApiServer`` replaces both by what it has bound; another server must pass the right values.
    """
    connections = Connections(deps.limits)
    sessions = WebSessions(
        database=deps.database,
        clock=deps.clock,
        entropy=deps.entropy,
        people=deps.web.people,
        language=deps.web.language,
        operator_key=deps.web.operator_key,
    )

    api = Api(
        deps=deps,
        connections=connections,
        rules=HostRules.of(port, deps.allowed_hosts, (host,)),
        web=sessions,
        peers=ConnectionTable(deps.limits.connections),
        sweeps=UploadSweeps(connections.work),
        document=cache(lambda: encode(openapi.document(ROUTES, version=deps.version))),
    )
    # The gate finds the route of a request by its handler.
    handlers = {handler_of(route, api): route for route in ROUTES}
    app = web.Application(middlewares=[gate(api, handlers)], client_max_size=deps.limits.body_bytes)
    app[API] = api
    for handler, route in handlers.items():
        app.router.add_route(route.method, route.path, handler)
    app.on_response_prepare.append(dress)

    async def close(_: web.Application) -> None:
        await connections.close(deps.limits.close_s)

    app.on_shutdown.append(close)
    return app
