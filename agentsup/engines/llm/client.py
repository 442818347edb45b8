"""Clients of providers: one per endpoint, without retries of their own, closed together.

How often a failed message is tried again is decided by the mailbox; a client that also retried
would multiply the two.
"""

from __future__ import annotations

import importlib
import ssl
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.providers import Provider

from agentsup.engines.llm.settings import Dialect, Endpoint, LlmSettings
from agentsup.kit.outbound.httpx_client import BoundedClient
from agentsup.kit.outbound.limits import MIB, AnswerLimits

_TURN_S = 3600.0
"""The time limit of one answer; the limits of turns are meant to come first."""


def http_client(endpoint: Endpoint, tls: ssl.SSLContext) -> BoundedClient:
    """Return the HTTP client for a provider's client; it limits the answers of the endpoint."""
    limits = AnswerLimits(
        body_bytes=32 * MIB,
        headers_s=endpoint.timeout_s,
        idle_s=endpoint.timeout_s,
        total_s=_TURN_S,
    )
    return BoundedClient(limits, tls, follow_redirects=True)


class Clients:
    """The open clients, by endpoint."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        """``tls`` has the certificates that all of them trust."""
        self._tls = tls
        self._open: dict[Endpoint, tuple[Provider[Any], Any]] = {}

    def model(self, settings: LlmSettings) -> Model:
        """A model object on a shared client; makes no request."""
        endpoint = settings.endpoint
        if endpoint not in self._open:
            http = http_client(endpoint, self._tls)
            self._open[endpoint] = _module(endpoint.dialect).make_client(endpoint, http)
        provider, _ = self._open[endpoint]
        model: Model = _module(endpoint.dialect).make_model(settings.model, provider)
        return model

    async def close(self) -> None:
        """Close every client; a later ``model`` opens a new one."""
        clients = [client for _, client in self._open.values()]
        self._open.clear()
        for client in clients:
            await client.close()


def _module(dialect: Dialect) -> Any:
    """Anthropic's is imported only where it is configured: it costs another second and 20 MB."""
    return importlib.import_module(f"agentsup.engines.llm.{dialect}_client")
