"""The listener: binds, says plainly why it can't, and closes in bounded time."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket

from aiohttp import web

from agentsup.api.access import HostRules
from agentsup.api.app import API, build_app
from agentsup.api.listener import Listener
from agentsup.api.ports import ApiDeps
from agentsup.kit.tasks import OwnerClosed
from agentsup.model.errors import ConfigError

_log = logging.getLogger(__name__)
_LINGER_S = 2.0
"""How long the rest of a body is taken that was refused, so that its sender reads why."""
_READ_BYTES = 32 * 1024
"""What is held of a body that nobody reads yet; twice as much at most."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ApiServer:
    """One listener of the internal API."""

    def __init__(self, deps: ApiDeps, *, host: str = "127.0.0.1", port: int = 8799) -> None:
        """Serve `deps` on `host`:`port`; port 0 takes a free one."""
        self._app = build_app(deps, port=port)
        self._deps = deps
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        """The bound port; the wanted one before `start`."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients of this machine reach it."""
        host = self._host if self._host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    @property
    def connections(self) -> dict[str, int]:
        """How many waits, event streams and sockets are open."""
        return self._app[API].connections.counts

    async def one_time_link(self, person: str = "") -> str:
        """A link that signs a browser in, once. Raises `BadRequest` for an unknown person."""
        issued = await self._app[API].web.issue(person)
        return f"{self.url}/#code={issued.code}"

    def people_changed(self) -> None:
        """[people] is another one: browsers of those who were removed are signed out for good."""
        api = self._app[API]
        forgotten = api.web.people_changed()
        with contextlib.suppress(OwnerClosed):
            api.connections.work.spawn(forgotten, name="web:people")

    async def start(self) -> int:
        """Bind and serve; returns the port. Raises `ConfigError` that names what to change."""
        limits = self._deps.limits
        await self._app[API].web.load()
        runner = web.AppRunner(
            self._app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=limits.close_s,
            keepalive_timeout=limits.idle_s,
            lingering_time=_LINGER_S,
            read_bufsize=_READ_BYTES,
        )
        await runner.setup()
        serve = runner.server
        assert serve is not None
        listener = Listener(self._app[API].peers, serve, clock=self._deps.clock)
        try:
            self._port = await listener.start(self._host, self._port)
        except OSError as error:
            await runner.cleanup()
            raise self._bind_failed(error) from error
        self._runner, self._listener = runner, listener
        self._app[API].rules = HostRules.of(self._port, self._deps.allowed_hosts)
        self._app[API].sweeps.start(self._deps)
        if self._host not in _LOOPBACK:
            _log.warning(
                "the API listens on %s:%d, beyond this machine; only calls with a token and a "
                "listed Host are served (api.allowed_hosts: %s)",
                self._host,
                self._port,
                ", ".join(self._deps.allowed_hosts) or "none",
            )
        return self._port

    async def close(self) -> None:
        """Say goodbye to streams and sockets, end waits, stop listening. Idempotent."""
        runner, self._runner = self._runner, None
        if self._listener is not None:
            await self._listener.close()
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
        elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            setting, hint = "api.bind", "set api.bind in config.toml to an address of this machine"
            said = f"can't listen on {where} (port {self._port}): this machine has no such address"
        else:
            said = f"can't listen on {where} (port {self._port}): {error.strerror or error}"
        return ConfigError(said, field=setting, hint=hint)
