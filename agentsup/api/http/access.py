"""Rules of access: host, origin and routes, as pure decisions (P7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Self
from urllib.parse import urlsplit

from agentsup.model.control import TokenIdentity
from agentsup.model.principal import PersonRole, PrincipalKind

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names under which a loopback listener may be addressed, each with the listener's port."""

CHAT_PROTOCOL = "agentsup"
"""The WebSocket subprotocol of the page. It offers its secret as a second one."""

_MCP = "/mcp/"
_OFFERED = re.compile(rf"{CHAT_PROTOCOL} *, *bearer\.([\w-]+)", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class Access(StrEnum):
    """The callers that a route admits, with the sentence about them in the OpenAPI document."""

    who: str

    def __new__(cls, value: str, who: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.who = value, who
        return member

    OPEN = "open", "Needs no token."
    ANY = "any", "Any living token."
    RUN = "run", "The token of a running turn only."
    WORK = "work", "Any living token, or a signed-in operator."
    OPERATOR = "operator", "The operator's token only."
    LOOK = "look", "The operator's token, or anybody signed in to the page."
    TALK = "talk", "The operator's token, or a signed-in person of the role user or more."
    STEER = "steer", "The operator's token, or a signed-in operator."


BROWSER: Mapping[Access, PersonRole] = MappingProxyType(
    {
        Access.LOOK: PersonRole.VIEWER,
        Access.TALK: PersonRole.USER,
        Access.STEER: PersonRole.OPERATOR,
        Access.WORK: PersonRole.OPERATOR,
    }
)
"""Routes of the web page, which take a session's secret too, with the least role for each."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Rules for ``Host`` and ``Origin`` headers; a DNS name rebound to loopback is not accepted."""

    exact: frozenset[str]
    """``host:port``, lower case."""
    any_port: frozenset[str]
    """Host names that were listed without a port."""
    own: str
    """``host:port`` of an address that the listener has bound: no other program answers there."""
    others: frozenset[str]
    """Those of ``exact`` at which a browser may reach another listener than ours."""
    is_near: bool = True
    """Whether only this machine reaches the listener: it has bound loopback addresses alone."""

    @classmethod
    def of(
        cls, port: int, allowed_hosts: Iterable[str] = (), bound: Sequence[str] = ("127.0.0.1",)
    ) -> HostRules:
        """Rules of a listener on ``port`` of the addresses ``bound``.

        Each of ``allowed_hosts`` is ``name`` (any port) or ``name:port``.
        """
        served = [_ANY_ADDRESS.get(each, each) for each in bound]
        hosts = [f"[{each}]" if ":" in each else each for each in served]
        if {"127.0.0.1", "[::1]"} <= {*hosts}:
            hosts.append("localhost")
        near = {f"{host}:{port}" for host in LOOPBACK_HOSTS}
        exact, any_port = {*near}, set()
        listed = set()
        for entry in allowed_hosts:
            host = entry.strip().lower()
            if _port_of(host):
                exact.add(host)
                listed.add(host)
            elif host:
                any_port.add(host)
                listed.add(f"{host}:{port}")
        others = near - listed - {f"{host}:{port}" for host in hosts}
        return cls(
            frozenset(exact),
            frozenset(any_port),
            f"{hosts[0]}:{port}",
            frozenset(others),
            is_near=all(_is_loopback(each) for each in bound),
        )

    def host_allowed(self, host: str | None, *, default_port: str = "80") -> bool:
        """Whether a ``Host`` header names this listener."""
        if not host:
            return False
        host = host.lower()
        if host in self.exact:
            return True
        port = _port_of(host)
        name = host.removesuffix(f":{port}") if port else host
        return name in self.any_port or (not port and f"{host}:{default_port}" in self.exact)

    def doubts(self, base: str) -> tuple[str, ...]:
        """Why a page at the origin ``base`` may not be reached from another machine, or not safely:
        ``here`` (a name of this machine alone), ``near`` (the listener is not reached from there),
        ``open`` (without TLS). Empty if nothing speaks against it.

        With https it is a proxy that is reached, of which nothing is known here.
        """
        parts = urlsplit(base)
        if _is_loopback(parts.hostname or ""):
            return ("here",)
        if parts.scheme == "https":
            return ()
        return ("near", "open") if self.is_near else ("open",)

    def page_allowed(self, host: str) -> bool:
        """Whether the page is served, and people sign in, under an allowed ``Host``.

        A browser tries every address of ``localhost``, the IPv6 one first. If the listener has not
        bound them all, another program may, and would have the same origin as the page.
        """
        whole = host.lower() if _port_of(host) else f"{host.lower()}:80"
        return whole not in self.others

    def origin_allowed(self, origin: str | None, host: str) -> bool:
        """Whether a request with this ``Origin`` header comes from our own pages or no browser.

        Another service on a listed name is not our page. So an allowed origin is the ``host`` that
        was called, or a name that is listed with its port, or https on port 443: a proxy may serve
        that one and forward another ``Host``.
        """
        if origin is None:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in _DEFAULT_PORTS or origin != f"{parts.scheme}://{parts.netloc}":
            return False
        default_port, address = _DEFAULT_PORTS[parts.scheme], parts.netloc.lower()
        if not self.host_allowed(address, default_port=default_port):
            return False
        whole = address if _port_of(address) else f"{address}:{default_port}"
        called = host.lower() if _port_of(host) else f"{host.lower()}:{default_port}"
        return whole in (called, *self.exact) or (
            whole.endswith(":443") and parts.scheme == "https"
        )


def _is_loopback(name: str) -> bool:
    """Whether ``name``, a host name or an address, means the machine on which it is used."""
    bare = name.lower().rstrip(".")
    return bare in ("localhost", "::1") or bare.endswith(".localhost") or bare.startswith("127.")


def _port_of(host: str) -> str:
    """The digits after the last colon outside brackets, or an empty string."""
    tail = host.rpartition("]")[2] if host.startswith("[") else host
    name, colon, port = tail.rpartition(":")
    return port if colon and port.isdigit() and ":" not in name else ""


def bearer(header: str | None) -> str | None:
    """The token of an ``Authorization: Bearer`` header; None where there is none.

    A token with other characters than ASCII is answered like an unknown one: comparing in
    constant time is only defined for ASCII text.
    """
    if not header:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        return None
    return token


def shown_token(path: str, headers: Mapping[str, str]) -> str | None:
    """The token or the page's secret of a request. Cookies are not read: browsers send those of one
    port to every other port of the host.

    It is taken from the ``Authorization`` header; else from a path below ``/mcp/``, for programs
    that can send no header of their own; else from the second subprotocol that a WebSocket of the
    page offers, as scripts can set no header there.
    """
    header = headers.get("Authorization")
    if header is not None:
        return bearer(header)
    if path.startswith(_MCP):
        token = path.removeprefix(_MCP)
        return token if token and token.isascii() else None
    offered = _OFFERED.fullmatch(headers.get("Sec-WebSocket-Protocol", ""))
    return offered[1] if offered else None


_SHOWN_CHARS = 200


def loggable(path: str) -> str:
    """The beginning of the path without a token, as it may be logged and answered."""
    if path.startswith(_MCP):
        return f"{_MCP}..."
    return path if len(path) <= _SHOWN_CHARS else f"{path[:_SHOWN_CHARS]}…"


def may(identity: TokenIdentity, access: Access) -> bool:
    """Whether the holder of a valid token or session may use a route of this access."""
    if access in (Access.OPEN, Access.ANY):
        return True
    who = identity.principal
    if access is Access.RUN:
        return is_agent(identity)
    if access is Access.WORK and who.kind is not PrincipalKind.PERSON:
        return True
    if who.is_operator:
        return True
    least = BROWSER.get(access)
    return least is not None and who.kind is PrincipalKind.PERSON and who.role >= least


def is_agent(identity: TokenIdentity) -> bool:
    """Whether the token was handed to an engine: it acts for one agent and for nobody else."""
    return identity.principal.kind is PrincipalKind.RUN
