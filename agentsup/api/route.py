"""A route as data: what the listener registers, checks and documents from one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from aiohttp import hdrs, web
from pydantic import BaseModel

from agentsup.api.access import Access, HostRules, shown_token
from agentsup.api.bodies import Body, NoQuery, Query
from agentsup.api.connections import Connections
from agentsup.api.peers import Peers
from agentsup.api.ports import ApiDeps
from agentsup.api.problems import encode
from agentsup.api.web.book import WebBook, WebSession
from agentsup.api.web.sweeps import UploadSweeps
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import Unauthorised
from agentsup.model.principal import Principal

T = TypeVar("T")
Answers = Mapping[int, type[BaseModel] | str]
"""Status → the document answered, or a media type where it is no JSON."""


@dataclass(slots=True)
class Api:
    """The state of one listener. `rules` are fixed once its port is known."""

    deps: ApiDeps
    connections: Connections
    rules: HostRules
    web: WebBook
    peers: Peers
    sweeps: UploadSweeps
    document: Callable[[], bytes] = bytes
    """Renders the OpenAPI document; the first call takes some 25 ms."""


@dataclass(frozen=True, slots=True)
class Call:
    """One checked request: who asks, and the parsed body and query."""

    request: web.Request
    api: Api
    identity: TokenIdentity | None
    body: Any
    query: Any
    session: WebSession | None = None
    """The browser's session, where a cookie and no token was shown."""

    @property
    def deps(self) -> ApiDeps:
        """What the API speaks to."""
        return self.api.deps

    @property
    def who(self) -> TokenIdentity:
        """The identity; only for routes that need a token."""
        assert self.identity is not None
        return self.identity

    @property
    def by(self) -> Principal:
        """Who acts; only for routes that need a token."""
        return self.who.principal

    def still_by(self) -> Principal:
        """Who acts now; for what outlives its request. Raises `Unauthorised` once the session or the
        token has ended."""
        if self.session is None:
            identity = self.deps.tokens.identify(self._token)
            if identity is None:
                raise Unauthorised("the token has ended; show the one that counts now")
            return identity.principal
        principal = self.api.web.principal(self.session)
        if principal is None:
            raise Unauthorised("you are signed out; sign in again")
        return principal

    def used(self) -> None:
        """A socket's browser is used now, which no request tells of."""
        if self.session is not None:
            self.api.web.seen(self.session)

    @property
    def language(self) -> str:
        """What who acts reads, as [people] says, else as their browser does; empty if unknown."""
        said = self.request.headers.get(hdrs.ACCEPT_LANGUAGE, "")
        return self.by.language or said.partition(",")[0].partition(";")[0].strip()[:20]

    def admit(self, kind: str) -> AbstractContextManager[None]:
        """One place among the open things of `kind`; a browser's is of its person's share. Raises
        `Overloaded`."""
        who = f"person:{self.session.subject}" if self.session is not None else ""
        return self.api.connections.admit(kind, who, is_operator=self.by.is_operator)

    async def wait(
        self, start: Callable[[], Coroutine[Any, Any, T]], *, name: str, is_kept: bool = False
    ) -> T:
        """Await what `start` begins as one counted wait, given up once the client has left, unless
        `is_kept`. Raises as `Connections.wait` does."""
        return await self.api.connections.wait(
            start, name=name, is_gone=lambda: not is_kept and self.request.transport is None
        )

    def signed_out(self, then: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `then` if the browser's session, or the token, is ended during the block."""
        if self.session is not None:
            return self.session.watched_by(then)
        return self.deps.tokens.watched_by(self._token, then)

    @property
    def _token(self) -> str:
        header = self.request.headers.get(hdrs.AUTHORIZATION)
        return shown_token(self.request.path, header) or ""

    def named(self, part: str) -> str:
        """A part of the path."""
        return self.request.match_info[part]


Endpoint = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route table."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    answers: Answers
    access: Access = Access.OPERATOR
    body: type[Body] | None = None
    query: type[Query] = NoQuery
    body_optional: bool = False
    """The body may be left out; then its defaults hold."""
    takes_bytes: bool = False
    """The body is a file of any type, read by the endpoint within its own limit."""
    takes_work: bool = False
    """Refused with 503 while draining."""
    offered: Callable[[ApiDeps], None] | None = None
    """Raises the refusal where this daemon does not offer it; asked before the body is read."""
    refusals: tuple[int, ...] = ()
    """Statuses of its own refusals, beside those every route has."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Request headers it reads, with what they mean."""


def reply(document: Mapping[str, Any], status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=encode(document), status=status, content_type="application/json")
