"""The app factory of the internal listener, and the one route table it serves."""

from __future__ import annotations

from functools import cache
from typing import Final

from aiohttp import web

from agentsup.api import (
    agents,
    approvals,
    chat_socket,
    cost,
    interagent,
    mail,
    mcp,
    mcp_servers,
    memory,
    messages,
    openapi,
    poison,
    roles,
    streams,
    system,
    tasks,
    traces,
)
from agentsup.api.access import HostRules
from agentsup.api.completions import front
from agentsup.api.connections import Connections
from agentsup.api.gate import dress, gate, handler_of
from agentsup.api.peers import Peers
from agentsup.api.ports import ApiDeps
from agentsup.api.problems import encode
from agentsup.api.route import Api, Route
from agentsup.api.web import chats, files, login, static, views
from agentsup.api.web.book import WebBook
from agentsup.api.web.sweeps import UploadSweeps

ROUTES: Final[tuple[Route, ...]] = (
    *system.ROUTES,
    *interagent.ROUTES,
    *mcp.ROUTES,
    *agents.ROUTES,
    *mcp_servers.ROUTES,
    *memory.ROUTES,
    *cost.ROUTES,
    *approvals.ROUTES,
    *messages.ROUTES,
    *mail.ROUTES,
    *poison.ROUTES,
    *roles.ROUTES,
    *tasks.ROUTES,
    *traces.ROUTES,
    *streams.ROUTES,
    *chat_socket.ROUTES,
    *login.ROUTES,
    *static.ROUTES,
    *chats.ROUTES,
    *files.ROUTES,
    *views.ROUTES,
    *front.ROUTES,
)
API: Final = web.AppKey("api", Api)


def build_app(deps: ApiDeps, *, port: int = 0) -> web.Application:
    """The application over `deps`.

    `port` is the port that `Host` headers must name; `ApiServer` sets it to the one it is bound
    to. Whoever serves the app otherwise passes it here.
    """
    connections = Connections(deps.limits)
    book = WebBook(
        database=deps.web.database,
        clock=deps.clock,
        entropy=deps.entropy,
        people=deps.web.people,
        language=deps.web.language,
        operator_key=deps.web.operator_key,
        node_id=deps.web.node_id,
    )

    def document() -> bytes:
        return encode(openapi.document(ROUTES, version=deps.version, cookie=book.cookie))

    api = Api(
        deps=deps,
        connections=connections,
        rules=HostRules.of(port, deps.allowed_hosts),
        web=book,
        peers=Peers(deps.limits),
        sweeps=UploadSweeps(connections.work),
        document=cache(document),
    )
    handlers = {handler_of(route, api): route for route in ROUTES}
    app = web.Application(
        middlewares=[gate(api, handlers)],
        client_max_size=deps.limits.body_bytes,
    )
    app[API] = api
    for handler, route in handlers.items():
        app.router.add_route(route.method, route.path, handler)
    app.on_response_prepare.append(dress)

    async def close(_: web.Application) -> None:
        await connections.close(deps.limits.close_s)

    app.on_shutdown.append(close)
    return app
