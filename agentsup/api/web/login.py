"""Signing in and out: the exchange of a one-time code or the operator's token for a secret (P7).

The code is in the fragment of a link, which no browser sends and no log shows. The page keeps the
secret where only pages of its own address and port can read it, and sends it with each request. The
secret is no cookie: a browser sends cookies to every port of a host, and accepts them from each.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from aiohttp import hdrs

from agentsup.api.documents import bodies
from agentsup.api.documents.web import (
    LoginLinkDocument,
    PeopleList,
    PersonShown,
    SignedInDocument,
    SignedOut,
    SignIn,
)
from agentsup.api.http.access import BROWSER, Access, shown_token
from agentsup.api.http.route import Call, get, post
from agentsup.api.http.web_sessions import WebSession
from agentsup.catalogue import words
from agentsup.kit import qr
from agentsup.mailbox.messages import keys
from agentsup.model.errors import BadRequest, Forbidden, Unauthorised
from agentsup.model.principal import OPERATOR, Principal


@post("/web/login", access=Access.OPEN, refusals=(401, 409, 429))
async def login(call: Call, body: bodies.LoginBody) -> SignIn:
    """Exchange a one-time code or the operator's token for a session's secret."""
    sessions, address = call.api.web, call.request.remote or ""
    host = call.request.headers[hdrs.HOST]
    if not call.api.rules.page_allowed(host):
        raise Forbidden(_elsewhere(call, host), reason="host")
    former = sessions.find(shown_token(call.request.path, call.request.headers))
    keeps = None if body.replace else former
    if body.code is not None:
        secret, session = await sessions.redeem(body.code, address, host=host, keeps=keeps)
    else:
        is_operator = _is_operators(call, body.token or "")
        secret, session = await sessions.sign_in(is_operator, address, host=host, keeps=keeps)
    if former is not None:  # a new sign-in ends the session that this browser had
        await sessions.end(former)
    principal = sessions.principal(session)
    if principal is None:
        raise Unauthorised("you are signed out; sign in again")
    return SignIn.from_value(_signed_in(call, session, principal), secret=secret)


def _is_operators(call: Call, token: str) -> bool:
    known = call.deps.tokens.identify(token) if token.isascii() else None
    return known is not None and known.principal == OPERATOR


@get("/web/session", access=Access.LOOK)
async def session(call: Call) -> SignedInDocument:
    """Show the signed-in person."""
    return _signed_in(call, call.session, call.by)


@post("/web/logout", access=Access.LOOK)
async def logout(call: Call) -> SignedOut:
    """Sign this browser out."""
    ended = 0
    if call.session is not None:
        await call.api.web.end(call.session)
        ended = 1
    return SignedOut(success=True, ended=ended)


@post("/web/logout_everywhere", access=Access.LOOK)
async def logout_everywhere(call: Call) -> SignedOut:
    """Sign this person out in every browser; unused links end too."""
    subject = call.session.subject if call.session is not None else ""
    return SignedOut(success=True, ended=await call.api.web.end_all(subject))


@post("/web/links", access=Access.LOOK, body_optional=True)
async def link(call: Call, body: bodies.LinkBody) -> LoginLinkDocument:
    """A one-time link that signs a browser in: for oneself, or by an operator for a person."""
    own = call.session.subject if call.session is not None else ""
    person = own if body.person is None else body.person
    role = call.deps.web.people().get(person, call.by.role)
    if person != own and (not call.by.is_operator or role > call.by.role):
        raise Forbidden("a link for somebody else is made by an operator, up to the own role")
    headers = call.request.headers
    base = headers.get(hdrs.ORIGIN) or f"http://{headers[hdrs.HOST]}"
    if not call.api.rules.page_allowed(urlsplit(base).netloc):
        base = f"http://{call.api.rules.own}"
    if body.base is not None:
        base = _checked_base(call, body.base.rstrip("/"))
    issued = await call.api.web.issue(person)
    url, say = f"{base}/#code={issued.code}", words(call.language)
    doubts = call.api.rules.doubts(base)
    return LoginLinkDocument.from_value(
        issued,
        url=url,
        person=person or None,
        role=role.name.lower(),
        doubts=list(doubts),
        warnings=[say(f"link.{doubt}") for doubt in doubts],
        qr=await asyncio.to_thread(qr.svg, url) if body.qr else "",
    )


def _checked_base(call: Call, base: str) -> str:
    """Return ``base`` if the page is served at that origin. Raises ``BadRequest`` otherwise."""
    try:
        address = urlsplit(base).netloc
    except ValueError:
        address = ""
    if not address or "@" in address or not call.api.rules.origin_allowed(base, address):
        known = address and call.api.rules.host_allowed(address, default_port="443")
        raise BadRequest(
            f"no page is served at {base[:200]!r}: "
            + (
                "it takes the form http://NAME:PORT or https://NAME"
                if known or not address
                else "its name is not in allowed_hosts under [api] of config.toml; add it there "
                f'(allowed_hosts = ["{address[:200]}"]) and restart the daemon'
            ),
            field="base",
        )
    if not call.api.rules.page_allowed(address):
        raise BadRequest(_elsewhere(call, address), field="base")
    return base


def _elsewhere(call: Call, host: str) -> str:
    return (
        f"nobody signs in at {host[:200]}, where another program of this machine may answer; the page "
        f"is at http://{call.api.rules.own}"
    )


@get("/web/people", access=Access.STEER)
async def people(call: Call) -> PeopleList:
    """The persons of [people], for whom a link can be made."""
    known = sorted(call.deps.web.people().items())
    shown = [PersonShown(name=name, role=role.name.lower()) for name, role in known]
    return PeopleList(people=shown)


def _signed_in(call: Call, session: WebSession | None, by: Principal) -> SignedInDocument:
    deps = call.deps
    return SignedInDocument.from_value(
        by,
        who=by.label,
        role=by.role.name.lower(),
        may=[each.value for each, role in BROWSER.items() if by.role >= role],
        conversation=keys.own_conversation(by),
        expires_at=call.api.web.ends_at(session) if session else 0,
        version=deps.version,
        node_id=deps.web.node_id,
        agents=list(deps.directory.names()),
        max_upload_bytes=deps.limits.upload_bytes,
    )
