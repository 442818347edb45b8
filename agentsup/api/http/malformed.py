"""One connection of the listener: it is counted, and input that is no HTTP request is answered.

Neither the answer nor the log line repeats the input. A header that can't be parsed may hold a
secret, and aiohttp's own answer and traceback show the faulty line.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from aiohttp import web

from agentsup.api.http.access_log import Refusals
from agentsup.api.http.connection_table import ConnectionTable
from agentsup.api.http.gate import SECURITY_HEADERS
from agentsup.api.http.problems import PROBLEM_TYPE, problem
from agentsup.api.http.route import reply
from agentsup.kit.log import get_logger
from agentsup.model.errors import AgentsupError, BadRequest

_log = get_logger(__name__)


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
