"""The page for a browser that came under a name which is not ours, in place of JSON.

Whoever typed the machine's new name into a phone reads there which setting to change. The name is
the request's own and may be anybody's: it is shown only if it is a plain name, and escaped.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

from aiohttp import hdrs, web

from agentsup.catalogue import words
from agentsup.model.errors import Forbidden

_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]", re.IGNORECASE
)
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="{language}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex"><title>agentsup: {title}</title>
<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:38rem;margin:2rem auto;padding:0 1rem;
color-scheme:light dark;overflow-wrap:anywhere}}pre{{border:1px solid;padding:.6rem;
white-space:pre-wrap}}</style>
<h1>{title}</h1><p>{what}</p><p>{how}</p><pre>{setting}</pre><p>{then}</p><p>{care}</p></html>
"""


class NotOurHost(Forbidden):
    """The request names a host that is not listed."""


def is_for_people(request: web.Request) -> bool:
    """Whether a browser asks for a page to show. Programs and scripts get a problem document."""
    return request.method in (hdrs.METH_GET, hdrs.METH_HEAD) and "text/html" in request.headers.get(
        hdrs.ACCEPT, ""
    )


def elsewhere(request: web.Request) -> web.Response:
    """Say that the page is not served under this name, and which setting changes that."""
    hosts = request.headers.getall(hdrs.HOST, ())
    name = _name_of(hosts[0]) if len(hosts) == 1 else ""
    said = request.headers.get(hdrs.ACCEPT_LANGUAGE, "").partition(",")[0].partition(";")[0]
    say = words(said.strip()[:20])
    shown = name or "agents.home.example"
    text = _PAGE.format(
        language=say("elsewhere.language"),
        title=escape(say("elsewhere.title")),
        what=escape(say("elsewhere.what", name=name) if name else say("elsewhere.unnamed")),
        how=escape(say("elsewhere.how")),
        setting=escape(f'[api]\nallowed_hosts = ["{shown}"]'),
        then=escape(say("elsewhere.then")),
        care=escape(say("elsewhere.care")),
    )
    return web.Response(
        text=text,
        status=403,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": _POLICY},
    )


def _name_of(host: str) -> str:
    """The name in a ``Host`` header without its port; empty if it is no plain one."""
    name = re.sub(r":[0-9]{1,5}\Z", "", host)
    return name if _NAME.fullmatch(name) else ""
