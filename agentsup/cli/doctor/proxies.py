"""The proxies of the environment, as the doctor shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from agentsup.cli.doctor.check import OK, WARN, Check
from agentsup.kit.outbound.proxy import NAMES, ProxyUnusable, proxy_of

_FAR = "example.com"


def check_proxies(environ: Mapping[str, str]) -> Iterator[Check]:
    """Report the proxies of outgoing requests; nothing if there are none."""
    found = {}
    for scheme in ("https", "http"):
        try:
            # Without NO_PROXY, which may name everything.
            given = {n: environ[n] for n in NAMES if n in environ and n.casefold() != "no_proxy"}
            proxy = proxy_of(f"{scheme}://{_FAR}", given)
        except ProxyUnusable as error:
            yield Check("proxy", WARN, str(error), "correct the variable, then restart")
            return
        if proxy is not None:
            parts = urlsplit(proxy)  # without its password
            found[scheme] = (
                f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
            )
    if found:
        asked = ", ".join(f"{scheme} through {where}" for scheme, where in found.items())
        excluded = environ.get("no_proxy") or environ.get("NO_PROXY")
        rest = f" and NO_PROXY ({excluded})" if excluded else ""
        yield Check("proxy", OK, f"{asked}; directly: this machine{rest}")
