"""A route as data: what the listener registers, checks and documents from one table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, TypedDict, TypeVar, Unpack, get_type_hints

from aiohttp import hdrs, web
from pydantic import BaseModel

from agentsup.api.documents.bodies import Body, NoQuery, Nothing, Query
from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access, HostRules, shown_token
from agentsup.api.http.connections import Connections, ConnectionTable, UploadSweeps
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.problems import encode
from agentsup.api.http.web_sessions import WebSession, WebSessions
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import Unauthorised
from agentsup.model.principal import Principal

T = TypeVar("T")
Answers = Mapping[int, type[Document | BaseModel] | str]
"""HTTP status → the document that is answered, or a media type if it is not JSON."""


@dataclass(slots=True)
class Api:
    """The state of one listener. ``rules`` are fixed once its port is known."""

    deps: ApiDependencies
    connections: Connections
    rules: HostRules
    web: WebSessions
    peers: ConnectionTable
    sweeps: UploadSweeps
    document: Callable[[], bytes] = bytes
    """Renders the OpenAPI document; the first call takes some 25 ms."""


@dataclass(frozen=True, slots=True)
class Call:
    """One checked request and its identity."""

    request: web.Request
    api: Api
    identity: TokenIdentity | None
    session: WebSession | None = None
    """The browser's session, if the request has its secret and no token."""

    @property
    def deps(self) -> ApiDependencies:
        """The services that the API calls."""
        return self.api.deps

    @property
    def who(self) -> TokenIdentity:
        """The identity; only for routes that need a token."""
        assert self.identity is not None
        return self.identity

    @property
    def by(self) -> Principal:
        """The principal that acts; only for routes that need a token."""
        return self.who.principal

    def still_by(self) -> Principal:
        """The principal with current rights, for work that outlives its request. Raises
        ``Unauthorised`` once the session or the token has ended."""
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
        """Record that the session is used now; a socket sends no requests that would show it."""
        if self.session is not None:
            self.api.web.seen(self.session)

    @property
    def language(self) -> str:
        """The caller's language: from [people], else from ``Accept-Language``; empty if unknown."""
        said = self.request.headers.get(hdrs.ACCEPT_LANGUAGE, "")
        return self.by.language or said.partition(",")[0].partition(";")[0].strip()[:20]

    def admit(self, kind: str) -> AbstractContextManager[None]:
        """Count one open thing of ``kind``; a browser's counts in the share of its person. Raises
        ``Overloaded``."""
        who = f"person:{self.session.subject}" if self.session is not None else ""
        return self.api.connections.admit(kind, who, is_operator=self.by.is_operator)

    async def wait(
        self, start: Callable[[], Coroutine[Any, Any, T]], *, name: str, goes_on: bool = False
    ) -> T:
        """Await the coroutine of ``start`` as one counted wait.

        Unless it ``goes_on``, the wait is given up once the client has disconnected or may no longer
        read the answer. Raises ``Unauthorised`` as soon as the session or the token has ended, and
        as ``Connections.wait`` does.
        """
        if goes_on:
            return await self.api.connections.wait(start, name=name)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                with self.signed_out(lambda: limit.reschedule(0)):
                    self.still_by()
                    return await self.api.connections.wait(
                        start, name=name, is_gone=lambda: self.request.transport is None
                    )
        except TimeoutError:
            if limit.expired():
                self.still_by()
            raise

    def signed_out(self, then: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``then`` if the browser's session, or the token, is ended during the block."""

        def look() -> None:
            try:
                self.still_by()
            except Unauthorised:
                then()

        return self.rights_changed(look)

    def rights_changed(self, then: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``then`` whenever the caller's rights may have changed during the block: the role of
        a person changed, or the session or the token ended."""
        if self.session is not None:
            return self.session.watched_by(then)
        return self.deps.tokens.watched_by(self._token, then)

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        """Write a piece of a stream. Raises ``TimeoutError`` if the reader takes nothing for
        ``stall_s`` seconds."""
        async with asyncio.timeout(self.deps.limits.stall_s):
            await response.write(data)

    def cut(self) -> None:
        """Cut the connection of a client that has left or stalls, without waiting for it."""
        if self.request.transport is not None:
            self.request.transport.abort()

    @property
    def _token(self) -> str:
        return shown_token(self.request.path, self.request.headers) or ""

    def named(self, part: str) -> str:
        """A parameter of the path."""
        return self.request.match_info[part]

    def agent_id(self, given: str | None) -> str | None:
        """The id of an agent that is given by id or name; None if none is. Raises ``NotFound`` and
        ``Gone``."""
        if not given:
            return None
        directory = self.deps.directory
        return (directory.by_id(given) or directory.lookup(given)).agent_id


Endpoint = Callable[..., Awaitable[web.StreamResponse | Document]]
"""Takes the ``Call``. A parameter ``body`` or ``query`` gets the parsed one, checked by the model
with which it is annotated. A document that is returned is sent with the route's first status."""
Declare = Callable[[Endpoint], Endpoint]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One line of the route table."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    answers: Answers
    access: Access = Access.OPERATOR
    parameters: tuple[str, ...] = ()
    """The parameters ``body`` and ``query`` that the endpoint takes."""
    body: type[Body] | None = None
    query: type[Query] = NoQuery
    body_optional: bool = False
    """The body may be left out; then its defaults hold."""
    takes_bytes: bool = False
    """The body is a file of any type, read by the endpoint within its own limit."""
    takes_work: bool = False
    """Refused with 503 while draining."""
    offered: Callable[[ApiDependencies], object] | None = None
    """Raises the refusal if this daemon does not offer the route; runs before the body is read."""
    refusals: tuple[int, ...] = ()
    """Statuses of its own refusals, beside those every route has."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Request headers it reads, with what they mean."""

    @property
    def status(self) -> int:
        """The status of a document that the endpoint returns."""
        return next(iter(self.answers))


class RouteRules(TypedDict, total=False):
    """The optional fields of an ``ApiRoute`` that its endpoint does not say."""

    access: Access
    body_optional: bool
    takes_bytes: bool
    takes_work: bool
    offered: Callable[[ApiDependencies], object] | None
    refusals: tuple[int, ...]
    headers: Mapping[str, str]


_DECLARED: Final = "__api_routes__"
"""The attribute of an endpoint that holds its routes."""


def get(path: str, answers: int | str | Answers = 200, **rules: Unpack[RouteRules]) -> Declare:
    """Declare that an endpoint serves GET requests to ``path``.

    ``answers`` is the status of the document that the endpoint returns by its annotation, or the
    media type of status 200, or a mapping by status. ``rules`` are further fields of ``ApiRoute``.
    The first line of the endpoint's docstring is the summary.
    """
    return _declared("GET", path, answers, rules)


def post(path: str, answers: int | str | Answers = 200, **rules: Unpack[RouteRules]) -> Declare:
    """Declare that an endpoint serves POST requests to ``path``, like ``get``.

    If the endpoint has no parameter ``body``, the request has none, or an empty object.
    """
    return _declared("POST", path, answers, rules)


def _declared(method: str, path: str, answers: int | str | Answers, rules: RouteRules) -> Declare:
    def declare(endpoint: Endpoint) -> Endpoint:
        hints = get_type_hints(endpoint)
        summary = (endpoint.__doc__ or "").partition("\n")[0].removesuffix(".")
        has_json = method == "POST" and not rules.get("takes_bytes")
        body = hints.get("body", Nothing if has_json else None)
        rules.setdefault("body_optional", body is Nothing)
        route = ApiRoute(
            method,
            path,
            endpoint,
            summary,
            _by_status(answers, hints["return"]),
            parameters=tuple(name for name in ("body", "query") if name in hints),
            body=body,
            query=hints.get("query", NoQuery),
            **rules,
        )
        setattr(endpoint, _DECLARED, (route, *getattr(endpoint, _DECLARED, ())))
        return endpoint

    return declare


def _by_status(answers: int | str | Answers, returned: type[Document | BaseModel]) -> Answers:
    if isinstance(answers, int):
        return {answers: returned}
    return {200: answers} if isinstance(answers, str) else answers


def routes_of(module: ModuleType) -> Iterator[ApiRoute]:
    """The routes that a module declares at its endpoints, in the order of the text."""
    for value in vars(module).values():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield from getattr(value, _DECLARED, ())


def reply(
    document: Mapping[str, Any] | Document, status: int = 200, media: str = "application/json"
) -> web.Response:
    """A JSON answer."""
    return web.Response(body=encode(document), status=status, content_type=media)
