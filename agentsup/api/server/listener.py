"""The listener: binds, reports plainly why it can't, and closes in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import web

from agentsup.api.http.access import HostRules
from agentsup.api.http.access_log import Refusals
from agentsup.api.http.connections import ConnectionTable
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.gate import SECURITY_HEADERS
from agentsup.api.http.problems import PROBLEM_TYPE, problem
from agentsup.api.http.route import reply
from agentsup.api.server.app import API, build_app
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed
from agentsup.model.errors import AgentsupError, BadRequest, ConfigError


class HttpProtocol(web.RequestHandler):
    """One connection as aiohttp serves it, except for its count and the answer to what can't be
    served."""

    __slots__ = ("_connection", "_peers", "_refusals")

    def __init__(
        self, manager: web.Server, *, peers: ConnectionTable, refusals: Refusals, **options: Any
    ) -> None:
        """Count itself in ``peers``; ``refusals`` decides which refusals are logged."""
        super().__init__(manager, **options)
        self._peers = peers
        self._refusals = refusals
        self._connection: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve the connection, or close it or another one if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._connection = transport
        self._peers.add(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        if self._connection is not None:
            self._peers.remove(self._connection)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that did not reach the gate, and close the connection.

        Raises ``ConnectionError`` if an answer has begun already. ``message`` and the text of
        ``exc`` show the input, so the answer does not hold them.
        """
        del message
        kind = type(exc).__name__
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            error: AgentsupError = BadRequest(
                "this is no request that HTTP knows; nothing was done"
            )
            more = self._refusals.line_of(request.remote or "", self._loop.time())
            if more is not None:
                _log.info(f"a malformed request of {request.remote} was refused ({kind}){more}")
        else:
            error = AgentsupError("an unexpected error; the log has the details")
            _log.error(f"a request of {request.remote} failed unexpectedly", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already; only a cut is left")
        document = problem(error, path=request.path, request_id="")
        response = reply(document, error.status, PROBLEM_TYPE)
        response.headers.update(SECURITY_HEADERS)
        response.force_close()
        return response


_log = get_logger(__name__)
_LINGER_S = 2.0
"""Seconds for which the rest of a refused body is read, so that its sender reads the refusal."""
_READ_BYTES = 32 * 1024
"""Bytes of a body that are buffered before it is read; at most twice as many."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ApiServer:
    """One listener of the internal API."""

    def __init__(self, deps: ApiDependencies, *, host: str = "127.0.0.1", port: int = 8799) -> None:
        """Serve ``deps`` on ``host``:``port``; port 0 takes a free one."""
        self._app = build_app(deps, port=port, host=host)
        self._deps = deps
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The bound port; before ``start`` the requested one."""
        return self._port

    @property
    def url(self) -> str:
        """The URL for clients on this machine. It holds a bound address and no name, as a name may
        lead to another program first."""
        return f"http://{self._app[API].rules.own}"

    @property
    def connections(self) -> dict[str, int]:
        """Number of open waits, event streams and sockets."""
        return self._app[API].connections.counts

    async def one_time_link(self, person: str = "") -> str:
        """A link that signs a browser in, once. Raises ``BadRequest`` for an unknown person."""
        issued = await self._app[API].web.issue(person)
        return f"{self.url}/#code={issued.code}"

    def people_changed(self) -> None:
        """Apply a changed [people]: the browsers of removed persons are signed out for good."""
        api = self._app[API]
        forgotten = api.web.people_changed()
        with contextlib.suppress(OwnerClosed):
            api.connections.work.spawn(forgotten, name="web:people")

    async def start(self) -> int:
        """Bind and serve; returns the port. Raises ``ConfigError`` that names what to change."""
        api, limits = self._app[API], self._deps.limits
        runner = web.AppRunner(self._app, handle_signals=False, shutdown_timeout=limits.close_s)
        await runner.setup()
        served = runner.server
        assert served is not None
        loop = asyncio.get_running_loop()
        serve = partial(
            HttpProtocol,
            served,
            peers=api.peers,
            refusals=Refusals(),
            loop=loop,
            access_log=None,  # as its runner passes it: none
            keepalive_timeout=limits.idle_s,
            lingering_time=_LINGER_S,
            read_bufsize=_READ_BYTES,
        )
        self._runner = runner
        try:
            self._server = server = await loop.create_server(
                serve,
                self._host,
                self._port,
                # So many are accepted at once, before any of them is counted.
                backlog=max(16, limits.connections // 4),
                start_serving=False,
            )
            bound = [each.getsockname() for each in server.sockets]
            self._port = bound[0][1]
            api.rules = HostRules.of(
                self._port, self._deps.allowed_hosts, tuple(str(each[0]) for each in bound)
            )
            await api.web.load(self._port)
            await server.start_serving()
        except OSError as error:
            await self.close()
            raise self._bind_failed(error) from error
        except BaseException:
            await self.close()
            raise
        api.sweeps.start(self._deps)
        if self._host not in _LOOPBACK:
            hosts = ", ".join(self._deps.allowed_hosts) or "none"
            _log.warning(
                f"the API listens on {self._host}:{self._port}, beyond this machine; only calls "
                f"with a token and a listed Host are served (api.allowed_hosts: {hosts})"
            )
        return self._port

    async def close(self) -> None:
        """Stop listening, end streams, sockets and waits. Idempotent."""
        runner, self._runner = self._runner, None
        if self._server is not None:
            self._server.close()
        if runner is not None:
            await runner.cleanup()

    def _bind_failed(self, error: OSError) -> ConfigError:
        where = f"{self._host}:{self._port}"
        setting, hint = "api.port", "choose another with --port or api.port in config.toml"
        if error.errno == errno.EADDRINUSE:
            said = f"port {self._port} on {self._host} is in use by another process"
            hint = f"stop that process (`agentsup status` tells whether it is ours), or {hint}"
        elif error.errno == errno.EACCES:
            said = f"port {self._port} on {self._host} may not be bound by this user"
        elif error.errno in (errno.EADDRNOTAVAIL, None) or isinstance(error, socket.gaierror):
            setting, hint = "api.bind", "set api.bind in config.toml to an address of this machine"
            said = f"can't listen on {where} (port {self._port}): this machine has no such address"
        else:
            said = f"can't listen on {where} (port {self._port}): {error.strerror or error}"
        return ConfigError(said, field=setting, hint=hint)
