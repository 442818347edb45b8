"""The request of ``web_fetch``: one connection to an address that was checked before."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from agentsup.kit.outbound.aiohttp_client import new_session, pieces
from agentsup.kit.outbound.limits import AnswerLimits

_HEADERS = {"User-Agent": "agentsup", "Accept": "text/*, application/json;q=0.9, */*;q=0.1"}


@asynccontextmanager
async def asked(
    url: str, address: str, limits: AnswerLimits
) -> AsyncIterator[tuple[aiohttp.ClientResponse, AsyncGenerator[bytes]]]:
    """The answer to a GET of ``url`` from ``address``, and its body; no redirection is followed.

    Without an ``address`` the proxy of ``url`` is asked, which looks the name up."""
    connector = aiohttp.TCPConnector(
        resolver=_Pinned(address) if address else None,
        use_dns_cache=False,
        force_close=True,
        limit=1,
    )
    async with (
        new_session(limits, connector=connector, headers=_HEADERS) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        yield answer, pieces(answer, limits)


class _Pinned(AbstractResolver):
    """A resolver that returns one address for every name."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        kind = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return [
            ResolveResult(
                hostname=host,
                host=self._address,
                port=port,
                family=kind,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        return
