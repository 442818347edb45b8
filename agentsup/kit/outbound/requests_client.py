"""requests' session, for the library that uses it: of each answer only the beginning is read."""

from __future__ import annotations

import io
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from agentsup.kit.outbound.limits import ENCODING, MIB
from agentsup.kit.outbound.proxy import proxy_of

_MOST_BYTES = MIB


def new_session(*, redirects: int = 3) -> requests.Session:
    """A blocking session. An answer is read up to 1 MiB and not checked further: the server is one
    that the operator has configured."""
    session = requests.Session()
    session.headers["Accept-Encoding"] = ENCODING
    session.max_redirects = redirects
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    return session


class _Adapter(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *given: Any, **options: Any) -> Any:
        """Send the request through the proxy of its address. Raises ``ProxyUnusable``."""
        url = request.url or ""
        proxy = proxy_of(url)
        options["proxies"] = {url.partition(":")[0]: proxy} if proxy else {}
        response = super().send(request, *given, **{**options, "stream": True})
        with response.raw as body:  # drops unread data; the connection is not used again
            response.raw = io.BytesIO(body.read(_MOST_BYTES, decode_content=True))
        return response
