"""requests' session, for the library that uses it: answers are read here, in bounded steps."""

from __future__ import annotations

import io
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.response import BaseHTTPResponse, HTTPResponse

from agentsup.kit.clock import SystemClock
from agentsup.kit.outbound.decoding import ENCODING, Decoder
from agentsup.kit.outbound.limits import AnswerLimits, AnswerMeter, LimitExceeded
from agentsup.kit.outbound.proxy import proxy_of

_STEP_BYTES = 16 * 1024
_CLOCK = SystemClock()


class RequestsAnswerRefused(LimitExceeded, requests.RequestException):
    """An answer over a limit, as the error that users of requests expect."""

    def __init__(self, why: LimitExceeded) -> None:
        requests.RequestException.__init__(self, why.text)
        self.limit, self.text = why.limit, why.text


def new_session(limits: AnswerLimits) -> requests.Session:
    """A blocking session; every answer is complete and within the limits when it is returned."""
    session = requests.Session()
    session.headers["Accept-Encoding"] = ENCODING
    session.max_redirects = limits.redirects
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(limits))
    return session


class _Adapter(HTTPAdapter):
    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        super().__init__()

    def send(self, request: requests.PreparedRequest, *given: Any, **options: Any) -> Any:
        """Send the request through the proxy of its address. Raises ``ProxyUnusable``."""
        url = request.url or ""
        proxy = proxy_of(url)
        options["proxies"] = {url.partition(":")[0]: proxy} if proxy else {}
        return super().send(request, *given, **options)

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        response = super().build_response(req, resp)
        try:
            body = _whole(resp, self._limits)
        except LimitExceeded as error:
            raise RequestsAnswerRefused(error) from None
        finally:
            resp.close()  # drops unread data; the connection is not used again
        response.headers.pop("Content-Encoding", None)
        response.raw = HTTPResponse(io.BytesIO(body), status=resp.status, preload_content=False)
        return response


def _whole(response: BaseHTTPResponse, limits: AnswerLimits) -> bytes:
    meter, body = AnswerMeter(limits), bytearray()
    decoder = Decoder(response.headers.get("Content-Encoding", ""))
    ends_at = None if limits.total_s is None else _CLOCK.monotonic() + limits.total_s
    while data := response.read1(_STEP_BYTES, decode_content=False):
        for piece in decoder.decode(data):
            meter.add(len(piece))
            body += piece
        if ends_at is not None and _CLOCK.monotonic() > ends_at:
            raise LimitExceeded("total_s", f"the answer took over {limits.total_s:g} s")
    decoder.end()
    return bytes(body)
