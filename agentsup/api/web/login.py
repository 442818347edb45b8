"""Signing in and out: the exchange of a one-time code or the operator's token for a cookie (P7).

The code stands in the fragment of a link, which no browser sends and no log shows.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import hdrs, web

from agentsup.api import bodies, shapes
from agentsup.api.access import BROWSER, Access
from agentsup.api.route import Call, Route, reply
from agentsup.api.web.book import WebSession
from agentsup.mailbox import naming
from agentsup.model.errors import Forbidden, Unauthorised
from agentsup.model.principal import OPERATOR, Principal

_NEVER: Final = 400 * 86_400
"""Seconds a browser may keep the cookie; the session behind it ends earlier."""


async def login(call: Call) -> web.Response:
    """Exchange a code or the operator's token for a session."""
    body: bodies.LoginBody = call.body
    book, address = call.api.web, call.request.remote or ""
    former = book.find(call.request.cookies.get(book.cookie))
    keeps = None if body.replace else former
    if body.code is not None:
        secret, session = await book.redeem(body.code, address, keeps=keeps)
    else:
        is_operator = _is_operators(call, body.token or "")
        secret, session = await book.sign_in(is_operator, address, keeps=keeps)
    if former is not None:  # whoever signs in anew leaves the session that this browser had
        await book.end(former)
    response = reply(_signed_in(call, session, _principal(call, session)))
    response.set_cookie(
        book.cookie,
        secret,
        path="/",
        max_age=_NEVER,
        httponly=True,
        samesite="Strict",
        # The browser itself says how it reached us; a proxy's header could be anybody's.
        secure=call.request.headers.get(hdrs.ORIGIN, "").startswith("https://"),
    )
    return response


def _is_operators(call: Call, token: str) -> bool:
    known = call.deps.tokens.identify(token) if token.isascii() else None
    return known is not None and known.principal == OPERATOR


async def session(call: Call) -> web.Response:
    """Who is signed in."""
    return reply(_signed_in(call, call.session, call.by))


async def logout(call: Call) -> web.Response:
    """Sign this browser out."""
    ended = 0
    if call.session is not None:
        await call.api.web.end(call.session)
        ended = 1
    return _without_cookie(call, ended)


async def logout_everywhere(call: Call) -> web.Response:
    """Sign this person out in every browser."""
    subject = call.session.subject if call.session is not None else ""
    return _without_cookie(call, await call.api.web.end_all(subject))


async def link(call: Call) -> web.Response:
    """A one-time link for whoever asks, or, by an operator, for another person of [people]."""
    body: bodies.LinkBody = call.body
    own = call.session.subject if call.session is not None else ""
    person = own if body.person is None else body.person
    role = call.api.web.people().get(person, call.by.role)
    if person != own and (not call.by.is_operator or role > call.by.role):
        raise Forbidden("a link for somebody else is made by an operator, up to the own role")
    issued = await call.api.web.issue(person)
    headers = call.request.headers
    base = headers.get(hdrs.ORIGIN) or f"http://{headers[hdrs.HOST]}"
    return reply(
        {
            "url": f"{base}/#code={issued.code}",
            "code": issued.code,
            "expires_at": issued.expires_at,
            "person": person or None,
            "role": role.name.lower(),
        }
    )


async def people(call: Call) -> web.Response:
    """The persons of [people]."""
    known = sorted(call.api.web.people().items())
    return reply({"people": [{"name": name, "role": role.name.lower()} for name, role in known]})


def _principal(call: Call, session: WebSession) -> Principal:
    principal = call.api.web.principal(session)
    if principal is None:
        raise Unauthorised("you are signed out; sign in again")
    return principal


def _signed_in(call: Call, session: WebSession | None, by: Principal) -> dict[str, Any]:
    deps = call.deps
    return {
        "who": by.label,
        "role": by.role.name.lower(),
        "language": by.language,
        "is_operator": by.is_operator,
        "may": [each.value for each, role in BROWSER.items() if by.role >= role],
        "conversation": naming.own_conversation(by),
        "expires_at": call.api.web.ends_at(session) if session else 0,
        "version": deps.version,
        "node_id": deps.web.node_id,
        "agents": list(deps.directory.names()),
        "max_upload_bytes": deps.limits.upload_bytes,
    }


def _without_cookie(call: Call, ended: int) -> web.Response:
    response = reply({"success": True, "ended": ended})
    response.del_cookie(call.api.web.cookie, path="/", httponly=True, samesite="Strict")
    return response


ROUTES = (
    Route(
        "POST",
        "/web/login",
        login,
        "Exchange a one-time code or the operator's token for a session's cookie",
        {200: shapes.SignedIn},
        access=Access.OPEN,
        body=bodies.LoginBody,
        refusals=(401, 409, 429),
    ),
    Route(
        "GET",
        "/web/session",
        session,
        "Who is signed in",
        {200: shapes.SignedIn},
        access=Access.LOOK,
    ),
    Route(
        "POST",
        "/web/logout",
        logout,
        "Sign this browser out",
        {200: shapes.SignedOut},
        access=Access.LOOK,
        body=bodies.Nothing,
        body_optional=True,
    ),
    Route(
        "POST",
        "/web/logout_everywhere",
        logout_everywhere,
        "Sign this person out in every browser; unused links end too",
        {200: shapes.SignedOut},
        access=Access.LOOK,
        body=bodies.Nothing,
        body_optional=True,
    ),
    Route(
        "POST",
        "/web/links",
        link,
        "A one-time link that signs a browser in: for oneself, or by an operator for a person",
        {200: shapes.Link},
        access=Access.LOOK,
        body=bodies.LinkBody,
        body_optional=True,
    ),
    Route(
        "GET",
        "/web/people",
        people,
        "The persons of [people], for whom a link can be made",
        {200: shapes.PeopleList},
        access=Access.STEER,
    ),
)
