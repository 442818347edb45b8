"""The one middleware: every check of a request, in one fixed order, and every refusal (P7).

Order: token, host, origin, start of the daemon, route and method, permission, whether the route is
offered, draining, content type, size. A refusal is a problem document. An unexpected exception
becomes one too, with a request id by which its log line is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from pydantic import ValidationError

from agentsup.api.documents.bodies import Body
from agentsup.api.documents.document import Document
from agentsup.api.http.access import BROWSER, Access, loggable, may, shown_token
from agentsup.api.http.access_log import AccessLog
from agentsup.api.http.problems import (
    PROBLEM_TYPE,
    NotOurHost,
    bad_body,
    elsewhere,
    is_for_people,
    is_openai,
    openai_error,
    openai_status,
    problem,
    retry_after_s,
)
from agentsup.api.http.route import Api, ApiRoute, Call, reply
from agentsup.api.http.web_sessions import WebSession
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import (
    AgentsupError,
    BadRequest,
    EngineFailed,
    Forbidden,
    NotFound,
    NotReady,
    Refused,
    TooLarge,
    Unauthorised,
)
from agentsup.model.principal import PersonRole

_log = get_logger("agentsup.api.http.access")

REQUEST_ID: Final = "X-Request-Id"
BOOT: Final = "X-Agentsup-Boot"
"""Names the start of the daemon (``boot_id``) that the caller means; another start refuses."""
SECURITY_HEADERS: Final = {
    "Server": "agentsup",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NO_MEDIA: Final = "application/octet-stream"
"""The content type that some clients send without a body."""
_IDENTITY = web.RequestKey("identity", TokenIdentity)
_SESSION = web.RequestKey("session", WebSession)
_SHOWN_CHARS = 100
_REQUEST_ID = web.RequestKey("request_id", str)
_PREPARED = web.RequestKey("prepared", web.StreamResponse)


class MethodNotAllowed(Refused):
    """The route exists and does not take this method."""

    code = "method_not_allowed"
    status = 405


class Misdirected(Refused):
    """The request is meant for another daemon, or for one that has ended."""

    code = "misdirected"
    status = 421


class UnsupportedMediaType(Refused):
    """The body is not JSON."""

    code = "unsupported_media_type"
    status = 415


def gate(api: Api, routes: Mapping[Any, ApiRoute]) -> Middleware:
    """The middleware of ``api``; ``routes`` finds the route of a registered handler."""
    # A listener id and a counter: a random id per request would cost more and tell nothing more.
    listener_id = api.deps.entropy.new_id("req")
    number = itertools.count(1)
    clock = api.deps.clock
    refusals = AccessLog()

    @web.middleware
    async def check_and_serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        request_id = f"{listener_id}.{next(number)}"
        request[_REQUEST_ID] = request_id
        began = clock.monotonic()
        try:
            route = routes.get(request.match_info.handler)
            identity = _identify(request, api, route)
            with _counted(request, api, identity):
                _check(request, api, route, identity)
                response = await handler(request)
        except AgentsupError as error:
            begun = _PREPARED in request  # a stream that has begun is cut, and logged
            response = (_unexpected if begun else _refusal)(error, request, request_id)
        except web.HTTPException as error:
            response = _refusal(_of_http(error, request, api), request, request_id)
        except Exception as error:  # noqa: BLE001
            # supervision boundary: a defect in one request must not end the connection in silence
            response = _unexpected(error, request, request_id)
        now = clock.monotonic()
        refusals.note(request, response, request_id, (now - began) * 1000, now)
        return response

    return check_and_serve


async def dress(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every response, also of streams (an ``on_response_prepare`` signal)."""
    headers = response.headers
    for name, value in SECURITY_HEADERS.items():
        if name == "Server" or name not in headers:
            headers[name] = value
    request[_PREPARED] = response
    request_id = request.get(_REQUEST_ID)
    if request_id:
        headers[REQUEST_ID] = request_id


def handler_of(route: ApiRoute, api: Api) -> Handler:
    """The handler that is registered for ``route``: parse, then answer."""

    async def handle(request: web.Request) -> web.StreamResponse:
        given: dict[str, Any] = {"query": _query(route, request)}
        if route.body is not None:
            given["body"] = await _body(route, request, api)
        call = Call(request, api, request.get(_IDENTITY), request.get(_SESSION))
        answer = await route.endpoint(call, **{name: given[name] for name in route.parameters})
        return reply(answer, route.status) if isinstance(answer, Document) else answer

    return handle


# -- checks ----------------------------------------------------------------------------------------


def _check(
    request: web.Request, api: Api, route: ApiRoute | None, identity: TokenIdentity | None
) -> None:
    """Make every check that is possible before the body is read. Raises the refusal."""
    headers = request.headers
    if identity is not None:
        request[_IDENTITY] = identity
    elif route is None or route.access is not Access.OPEN:
        raise Unauthorised(_why_unauthorised(headers.get(hdrs.AUTHORIZATION)))
    _check_host_and_origin(request, api)
    meant = headers.get(BOOT, api.deps.boot_id)
    if meant != api.deps.boot_id:
        raise Misdirected(
            "this request names another daemon, or an earlier start of this one; nothing was done"
        )
    if route is None:
        return  # the handler says 404 or 405
    if identity is not None and not may(identity, route.access):
        raise Forbidden(_why_forbidden(request, route), reason="operator")
    if route.offered is not None:
        route.offered(api.deps)
    if route.takes_work and api.deps.control.draining:
        raise NotReady(
            "the daemon is draining and takes no new work; nothing was stored, ask again when "
            "it is back",
            retry_after_s=5,
        )
    if request.method == hdrs.METH_POST and not route.takes_bytes:
        _check_body_headers(request, api, route)


def _check_host_and_origin(request: web.Request, api: Api) -> None:
    """Check Host and Origin: a page of another origin is refused, even with a valid token."""
    headers = request.headers
    hosts = headers.getall(hdrs.HOST, ())
    if len(hosts) != 1 or not api.rules.host_allowed(hosts[0]):
        raise NotOurHost(
            f"the Host {_quoted(hosts)} is not one of ours; call 127.0.0.1 or localhost with the "
            "listener's port, or list the name in api.allowed_hosts",
            reason="host",
        )
    if _SESSION in request and not request[_SESSION].is_at(hosts[0]):
        raise Forbidden(
            "this sign-in belongs to another address of the page; sign in anew", reason="host"
        )
    origin = headers.get(hdrs.ORIGIN)
    if not api.rules.origin_allowed(origin, hosts[0]):
        raise Forbidden(
            f"requests from pages of another origin are not served: the Origin is "
            f"{_quoted([origin or ''])}, the Host {_quoted(hosts)}; if that page is yours, list its "
            "name with its port in api.allowed_hosts (such as agents.home.example:8443)",
            reason="origin",
        )


@contextlib.contextmanager
def _counted(request: web.Request, api: Api, identity: TokenIdentity | None) -> Iterator[None]:
    """Serve a request inside the block. An agent or person that is no operator may have requests
    under way on a share of the connections only; raises ``Overloaded`` beyond it."""
    if identity is None:
        yield
        return
    with api.peers.serving(request.transport), contextlib.ExitStack() as counted:
        if not identity.principal.is_operator:
            who = identity.agent_id or identity.principal.subject
            counted.enter_context(api.connections.admit("connections", who, is_operator=False))
        yield


def _quoted(values: Sequence[str]) -> str:
    return ", ".join(repr(each[:_SHOWN_CHARS]) for each in values[:3]) or "(none)"


def _identify(request: web.Request, api: Api, route: ApiRoute | None) -> TokenIdentity | None:
    """The identity of the token; on routes of the page, also of a session's secret."""
    token = shown_token(request.path, request.headers)
    known = api.deps.tokens.identify(token) if token else None
    if known is not None or (route is not None and route.access not in BROWSER):
        return known
    session = api.web.find(token)
    principal = api.web.principal(session) if session is not None else None
    if session is None or principal is None:
        return None
    request[_SESSION] = session
    if api.web.seen(session):
        with contextlib.suppress(OwnerClosed):
            api.connections.work.spawn(api.web.note(session), name="web:note")
    return TokenIdentity(principal)


def _why_unauthorised(header: str | None) -> str:
    if header is None:
        return "a token is needed: send 'Authorization: Bearer <token>' (the operator's is in api.token)"
    return "the token is not known, or it has ended with its agent, its run or its sign-in"


def _why_forbidden(request: web.Request, route: ApiRoute) -> str:
    if _SESSION in request:
        least = BROWSER.get(route.access, PersonRole.OPERATOR).name.lower()
        return f"{route.method} {route.path} needs the role {least}"
    whose = "a running turn" if route.access is Access.RUN else "the operator"
    return f"{route.method} {route.path} is for the token of {whose} only"


def _check_body_headers(request: web.Request, api: Api, route: ApiRoute) -> None:
    media = request.headers.get(hdrs.CONTENT_TYPE)
    needs_body = route.body is not None and not route.body_optional
    if media is None or (media == _NO_MEDIA and not request.body_exists):
        if request.body_exists or needs_body:
            raise UnsupportedMediaType("the body must be JSON: send Content-Type: application/json")
    else:
        kind, _, parameters = media.lower().partition(";")
        charset = parameters.partition("charset=")[2].strip().strip('"')
        if kind.strip() != "application/json" or charset not in ("", "utf-8"):
            raise UnsupportedMediaType(
                f"the body must be application/json in UTF-8, not {media[:100]}"
            )
    limit = _most_bytes(api, route)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)


def _most_bytes(api: Api, route: ApiRoute) -> int:
    limits = api.deps.limits
    return limits.open_body_bytes if route.access is Access.OPEN else limits.body_bytes


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over the limit of {limit} bytes", limit=limit)


# -- parsing ---------------------------------------------------------------------------------------


async def _body(route: ApiRoute, request: web.Request, api: Api) -> Body:
    assert route.body is not None
    raw = await _whole(route, request, api)
    if not raw and route.body_optional:
        return route.body()
    try:
        return route.body.model_validate_json(raw)
    except ValidationError as error:
        raise bad_body(error) from None


async def _whole(route: ApiRoute, request: web.Request, api: Api) -> bytes:
    limits, most = api.deps.limits, _most_bytes(api, route)
    limit_s = limits.open_body_s if route.access is Access.OPEN else limits.body_s
    body = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise BadRequest(f"the body was not whole within {limit_s:g} s") from None
    return bytes(body)


def _query(route: ApiRoute, request: web.Request) -> Any:
    found = request.query
    repeated = [name for name in found if len(found.getall(name)) > 1]
    if repeated:
        raise BadRequest(f"parameter '{repeated[0]}' is given twice", field=repeated[0])
    try:
        return route.query.model_validate(dict(found))
    except ValidationError as error:
        raise bad_body(error, where="query") from None


# -- answers ---------------------------------------------------------------------------------------


def _refusal(error: AgentsupError, request: web.Request, request_id: str) -> web.Response:
    if isinstance(error, NotOurHost) and is_for_people(request):
        return elsewhere(request)
    if is_openai(request.path):
        response = reply(openai_error(error), openai_status(error))
        if isinstance(error, EngineFailed):
            # The official clients retry after a 5xx; but the turn has run, and failed.
            response.headers["X-Should-Retry"] = "false"
    else:
        document = problem(error, path=loggable(request.path), request_id=request_id)
        response = reply(document, error.status, PROBLEM_TYPE)
    wait_s = retry_after_s(error)
    if wait_s is not None:
        response.headers[hdrs.RETRY_AFTER] = str(wait_s)
    if isinstance(error, Unauthorised):
        invalid = ', error="invalid_token"' if hdrs.AUTHORIZATION in request.headers else ""
        response.headers[hdrs.WWW_AUTHENTICATE] = f'Bearer realm="agentsup"{invalid}'
    if isinstance(error, MethodNotAllowed):
        response.headers[hdrs.ALLOW] = ", ".join(error.facts["allowed"])
    return response


def _of_http(error: web.HTTPException, request: web.Request, api: Api) -> AgentsupError:
    """Translate a refusal of aiohttp itself into one of ours."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = sorted(error.allowed_methods)
        return MethodNotAllowed(
            f"{loggable(request.path)} takes {', '.join(allowed)}, not {request.method}",
            allowed=allowed,
        )
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return _too_large(api.deps.limits.body_bytes)
    if isinstance(error, web.HTTPNotFound):
        return NotFound(
            f"there is no {loggable(request.path)} here; /openapi.json lists what there is"
        )
    return BadRequest(f"the request can't be served: {error.reason}")


def _unexpected(error: Exception, request: web.Request, request_id: str) -> web.StreamResponse:
    if not isinstance(error, ConnectionError):
        _log.error(
            f"{request.method} {loggable(request.path)} failed unexpectedly ({request_id})",
            exc_info=error,
        )
    if _PREPARED in request:
        # The status line was sent already: only a cut connection can show that the stream failed.
        if request.transport is not None:
            request.transport.abort()
        return request[_PREPARED]
    if isinstance(error, ConnectionError):
        refused: AgentsupError = BadRequest("the connection ended before the request was whole")
    else:
        refused = AgentsupError(f"an unexpected error; the log has the details under {request_id}")
    return _refusal(refused, request, request_id)
