"""The network addresses that a tool may reach: public ones only, on the web's ports. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

PORTS = frozenset((80, 443))
MAX_URL_CHARS = 4096

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "64:ff9b:1::/48",
            "fec0::/10",
            "192.0.0.0/24",
            "100.64.0.0/10",
            "168.63.129.16/32",  # the platform's own services, inside every virtual machine of Azure
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.31.196.0/24",  # AS112: DNS of private names, often served within a network
            "192.175.48.0/24",
            "2620:4f:8000::/48",
            "192.52.193.0/24",  # AMT: multicast relays
            "3fff::/20",  # documentation
        ),
    )
)
"""Never public here, whatever the installed version of ``ipaddress`` says."""
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NAMES = (".localhost", ".local", ".internal", ".lan", ".home", ".arpa", ".onion")


def is_public(text: str) -> bool:
    """Whether the address is public.

    For an IPv4 address within an IPv6 one, the inner one counts.
    """
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if "%" in text:
        return False
    inner = _inner(address)
    if inner is not None:
        return is_public(str(inner))
    if any(address in network for network in _SPECIAL if network.version == address.version):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside one that is mapped, translated or tunnelled."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def url_problem(url: str, ports: frozenset[int] = PORTS) -> str | None:
    """Why a URL is refused before any name is resolved, or None."""
    if len(url) > MAX_URL_CHARS:
        return f"a URL has at most {MAX_URL_CHARS} characters"
    if any(ord(character) <= 32 or ord(character) == 127 for character in url) or "\\" in url:
        return "a URL has no blanks, control characters or backslashes"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"this is no URL: {error}"
    if parts.scheme not in ("http", "https"):
        return "only http and https are fetched"
    if parts.username is not None or parts.password is not None:
        return "a URL with a name or password in it is not fetched"
    host = (parts.hostname or "").rstrip(".").casefold()
    if not host:
        return "the URL names no host"
    if (port or (443 if parts.scheme == "https" else 80)) not in ports:
        return f"only the ports {', '.join(map(str, sorted(ports)))} are fetched"
    if host == "localhost" or host.endswith(_NAMES):
        return f"{host} is not a name of the public network"
    if (":" in host or host.replace(".", "").isdigit()) and not _may_be_public(host):
        return f"{host} is not an address of the public network"
    return None


def _may_be_public(host: str) -> bool:
    """Whether a literal address is public; other forms of IPv4 are left to the resolver."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return ":" not in host
    return is_public(host)
