"""The app factory of the internal listener, and the one route table it serves."""

from __future__ import annotations

from functools import cache
from typing import Final

from aiohttp import web

from agentsup.api import agents, chat_socket, interagent, messages, openapi, streams, system
from agentsup.api.access import HostRules
from agentsup.api.connections import Connections
from agentsup.api.gate import dress, gate, handler_of
from agentsup.api.ports import ApiDeps
from agentsup.api.problems import encode
from agentsup.api.route import Api, Route

ROUTES: Final[tuple[Route, ...]] = (
    *system.ROUTES,
    *interagent.ROUTES,
    *agents.ROUTES,
    *messages.ROUTES,
    *streams.ROUTES,
    *chat_socket.ROUTES,
)
API: Final = web.AppKey("api", Api)


def build_app(deps: ApiDeps, *, port: int = 0) -> web.Application:
    """The application over `deps`.

    `port` is the port that `Host` headers must name; `ApiServer` sets it to the one it is bound
    to. Whoever serves the app otherwise passes it here.
    """
    connections = Connections(deps.limits)
    api = Api(
        deps=deps,
        connections=connections,
        rules=HostRules.of(port, deps.allowed_hosts),
        document=cache(lambda: encode(openapi.document(ROUTES, version=deps.version))),
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
