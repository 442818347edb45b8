"""The choice of a proxy: one rule for all outgoing requests, our own and our programs'.

The variables are those that other programs read: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and
``NO_PROXY``, in capitals or not. Nothing of this machine is asked through a proxy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_EXCEPT = "no_proxy"
NAMES: tuple[str, ...] = tuple(
    each for name in (*_PROXIES, _EXCEPT) for each in (name, name.upper())
)
"""The variables, each in both spellings."""
_LOOPBACK = ("localhost", "127.0.0.0/8", "::1")
_SCHEMES = {"ws": "http", "wss": "https"}
_of_home: dict[str, str] = {}


class ProxyUnusable(OSError):
    """A variable names a proxy that we can't use, such as one that speaks SOCKS."""


def use(environ: Mapping[str, str]) -> None:
    """Have variables of ``environ``, such as those of the home, hold where the process has none."""
    _of_home.clear()
    _of_home.update({name: environ[name] for name in NAMES if environ.get(name)})


def proxy_of(url: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the address of the proxy for ``url``, or None: it is asked directly.

    Raises ``ProxyUnusable``.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").casefold().rstrip(".")
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    for name in (f"{scheme}_proxy", "all_proxy"):
        if found := _variable(name, environ):
            break
    else:
        return None
    if _is_excluded(host, parts.port, (*_LOOPBACK, *_variable(_EXCEPT, environ).split(","))):
        return None
    address = found if "://" in found else f"http://{found}"
    kind = address.partition("://")[0].casefold()
    if kind not in {"http", "https"}:
        raise ProxyUnusable(
            f"{name.upper()} names a proxy that speaks {kind}, and agentsup uses HTTP proxies only: "
            "name one as http://HOST:PORT, or list the address in NO_PROXY"
        )
    return address


def for_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a program. Its ``NO_PROXY`` has this machine, too: there it finds
    the daemon."""
    found = {name: environ[name] for name in NAMES if environ.get(name)}
    if any(name.casefold() != _EXCEPT for name in found):
        listed = _variable(_EXCEPT, environ)
        listed = ",".join((*([listed] if listed else []), "localhost,127.0.0.1,::1"))
        found |= {_EXCEPT: listed, _EXCEPT.upper(): listed}
    return found


def unusable_behind(error: BaseException | None) -> ProxyUnusable | None:
    """Return the ``ProxyUnusable`` that caused ``error``, as libraries wrap it, or None."""
    for _ in range(20):
        if error is None or isinstance(error, ProxyUnusable):
            return error
        error = error.__cause__ or error.__context__
    return None


def _variable(name: str, environ: Mapping[str, str] | None) -> str:
    given = os.environ if environ is None else environ
    found = given.get(name) or given.get(name.upper())
    if not found and environ is None:
        found = _of_home.get(name) or _of_home.get(name.upper())
    return (found or "").strip()


def _is_excluded(host: str, port: int | None, listed: tuple[str, ...]) -> bool:
    try:
        number = ip_address(host)
    except ValueError:
        number = None
    for each in listed:
        entry = each.strip().casefold()
        name, colon, wanted = entry.rpartition(":")
        if colon and wanted.isdigit() and ":" not in name.strip("[]"):
            if port is not None and int(wanted) != port:
                continue
            entry = name
        entry = entry.strip("[]")
        if number is not None and entry:
            try:
                if number in ip_network(entry, strict=False):
                    return True
            except ValueError:
                pass
        entry = entry.removeprefix("*").lstrip(".") if entry != "*" else entry
        if entry and (entry == "*" or f".{host}".endswith(f".{entry}")):
            return True
    return False
