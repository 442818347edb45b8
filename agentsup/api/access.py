"""Who may call what: host, origin and route access, as pure decisions (P7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urlsplit

from agentsup.model.control import TokenIdentity
from agentsup.model.principal import PersonRole, PrincipalKind

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names under which a loopback listener may be addressed, each with the listener's port."""

_MCP = "/mcp/"
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Access(StrEnum):
    """Who may use a route."""

    OPEN = "open"
    """No token."""
    ANY = "any"
    """Any living token: operator, agent or run."""
    RUN = "run"
    """The token of a running turn only: what is asked for is that turn's own."""
    OPERATOR = "operator"
    """The operator's token only."""
    LOOK = "look"
    """The operator's token, or a signed-in person of any role."""
    TALK = "talk"
    """The operator's token, or a signed-in person who may write."""
    STEER = "steer"
    """The operator's token, or a signed-in operator."""


BROWSER: Mapping[Access, PersonRole] = MappingProxyType(
    {
        Access.LOOK: PersonRole.VIEWER,
        Access.TALK: PersonRole.USER,
        Access.STEER: PersonRole.OPERATOR,
    }
)
"""Routes of the web page take a session's cookie too: the least role of each access."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Which `Host` and `Origin` headers are ours. A DNS name rebound to loopback is not."""

    exact: frozenset[str]
    """`host:port`, lower case."""
    any_port: frozenset[str]
    """Host names that were listed without a port."""

    @classmethod
    def of(cls, port: int, allowed_hosts: Iterable[str] = ()) -> HostRules:
        """Rules of a listener on `port`; `allowed_hosts` are `name` (any port) or `name:port`."""
        exact = {f"{host}:{port}" for host in LOOPBACK_HOSTS}
        any_port = set()
        for entry in allowed_hosts:
            host = entry.strip().lower()
            if _port_of(host):
                exact.add(host)
            elif host:
                any_port.add(host)
        return cls(frozenset(exact), frozenset(any_port))

    def host_allowed(self, host: str | None, *, default_port: str = "80") -> bool:
        """Whether a `Host` header names this listener."""
        if not host:
            return False
        host = host.lower()
        if host in self.exact:
            return True
        port = _port_of(host)
        name = host.removesuffix(f":{port}") if port else host
        return name in self.any_port or (not port and f"{host}:{default_port}" in self.exact)

    def origin_allowed(self, origin: str | None, host: str) -> bool:
        """Whether a request with this `Origin` header comes from our own pages or no browser.

        Cookies know no ports: another service of a listed name is not our page. So an origin is the
        `host` that was called, or listed with its port, or https at its own port, which a proxy may
        hide behind another `Host`.
        """
        if origin is None:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in _DEFAULT_PORTS or origin != f"{parts.scheme}://{parts.netloc}":
            return False
        default_port, place = _DEFAULT_PORTS[parts.scheme], parts.netloc.lower()
        if not self.host_allowed(place, default_port=default_port):
            return False
        whole = place if _port_of(place) else f"{place}:{default_port}"
        called = host.lower() if _port_of(host) else f"{host.lower()}:{default_port}"
        return whole in (called, *self.exact) or (
            whole.endswith(":443") and parts.scheme == "https"
        )


def _port_of(host: str) -> str:
    """The digits after the last colon outside brackets, or an empty string."""
    tail = host.rpartition("]")[2] if host.startswith("[") else host
    name, colon, port = tail.rpartition(":")
    return port if colon and port.isdigit() and ":" not in name else ""


def from_our_page(fetch_site: str | None) -> bool:
    """Whether `Sec-Fetch-Site`, if a browser sent it, names our own page or the person.

    Another port of this machine is `same-site`, and cookies know no ports.
    """
    return fetch_site is None or fetch_site in ("same-origin", "none")


def bearer(header: str | None) -> str | None:
    """The token of an `Authorization: Bearer` header; None where there is none.

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


def shown_token(path: str, header: str | None) -> str | None:
    """The token of a request: its header's, else the one that stands in an address of ``/mcp/``,
    for programs that can send no header of their own."""
    if header is None and path.startswith(_MCP):
        token = path.removeprefix(_MCP)
        return token if token and token.isascii() else None
    return bearer(header)


def loggable(path: str) -> str:
    """The path as it may be written down and answered: without a token."""
    return f"{_MCP}..." if path.startswith(_MCP) else path


def may(identity: TokenIdentity, access: Access) -> bool:
    """Whether a living token, or whoever is signed in, may use a route of this access."""
    if access in (Access.OPEN, Access.ANY):
        return True
    who = identity.principal
    if access is Access.RUN:
        return who.kind is PrincipalKind.RUN
    if who.is_operator:
        return True
    least = BROWSER.get(access)
    return least is not None and who.kind is PrincipalKind.PERSON and who.role >= least


def is_agent(identity: TokenIdentity) -> bool:
    """Whether the token was handed to an engine: it acts for one agent and for nobody else."""
    return identity.principal.kind in (PrincipalKind.AGENT, PrincipalKind.RUN)
