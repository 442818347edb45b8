"""The page itself: a few files that ship with the package, by their exact names.

No part of a request's path is used as a path: its name is looked up among the files of the package.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from aiohttp import hdrs, web

from agentsup.api.documents.web import PageWords
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get
from agentsup.catalogue import page_words
from agentsup.model.errors import NotFound

INDEX: Final = "index.html"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page."""

    data: bytes
    media: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """The files of the page by name. Reads the disk once."""
    found = {}
    folder = files("agentsup.api") / "page"
    for entry in folder.iterdir() if folder.is_dir() else ():
        media = _TYPES.get(entry.name.rpartition(".")[2])
        if media is not None and entry.is_file():
            data = entry.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            found[entry.name] = PageFile(data, media, etag)
    return found


@get(
    "/", {200: "text/html", 304: "text/html", 307: "text/html"}, access=Access.OPEN, refusals=(404,)
)
async def index(call: Call) -> web.Response:
    """The web page."""
    return await _serve(call, INDEX)


@get(
    "/page/{name}",
    dict.fromkeys((200, 304, 307), "application/octet-stream"),
    access=Access.OPEN,
    refusals=(404,),
)
async def asset(call: Call) -> web.Response:
    """A file of the web page."""
    return await _serve(call, call.named("name"))


@get("/web/words/{language}", access=Access.OPEN)
async def spoken(call: Call) -> PageWords:
    """The page's words in a language, such as `de-AT`, by the English ones."""
    code, found = await asyncio.to_thread(page_words, call.named("language")[:20])
    return PageWords(language=code, words=dict(found))


async def _serve(call: Call, name: str) -> web.Response:
    rules = call.api.rules
    if not rules.page_allowed(call.request.headers[hdrs.HOST]):
        # The browser keeps the fragment of a link, which holds the code, across the redirect.
        there = f"http://{rules.own}{call.request.path}"
        return web.Response(status=307, headers={hdrs.LOCATION: there})
    found = (await asyncio.to_thread(page_files)).get(name)
    if found is None:
        raise NotFound(f"the page has no file {name!r}")
    headers = {
        hdrs.ETAG: found.etag,
        hdrs.CACHE_CONTROL: "no-cache",
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    given = call.request.headers.get(hdrs.IF_NONE_MATCH, "")
    if found.etag in [each.strip().removeprefix("W/") for each in given.split(",")]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.data, headers={**headers, hdrs.CONTENT_TYPE: found.media})
