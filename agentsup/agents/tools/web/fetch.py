"""``web_fetch``: fetches one page of the public web, and nothing else that this machine can reach.

A name is resolved once for each hop, and all of its addresses must be public. The connection is
made to the address that was checked, so a name that changes meanwhile has no effect.
"""

from __future__ import annotations

import asyncio
import html
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from urllib.parse import urljoin, urlsplit

from aiohttp.client_exceptions import ClientError
from pydantic import Field
from yarl import URL

from agentsup.agents.tools.declaring import Arguments, Text, checked, tool, tool_of
from agentsup.agents.tools.web import addresses
from agentsup.kit.descriptors import is_shortage
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.outbound.proxy import proxy_of
from agentsup.kit.pool import BoundedPool, PoolFull
from agentsup.model.errors import AgentsupError, BadRequest, Overloaded, Refused, TimedOut
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

_CLIENT = "agentsup.agents.tools.web.client"
"""Loaded, in a thread, with the first page: most homes fetch none."""
MAX_BYTES = 2 * MIB
_STEP_CHARS, _OPENING_CHARS = 128 * 1024, 16
MAX_HOPS = 5
TIMEOUT_S = 30.0
_ANSWER = AnswerLimits(body_bytes=256 * MIB, connect_s=10.0, idle_s=15.0, total_s=TIMEOUT_S)
"""The limits of an answer. What is over ``MAX_BYTES`` is not read, which is no error."""
_TYPES = re.compile(r"text/|application/(?:[\w.+-]*\+)?(?:json|xml|javascript|yaml|toml)\b")
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_CHARSETS = {
    name: name
    for name in (
        *("utf-8", "utf-16", "utf-16le", "utf-16be", "ascii", "us-ascii", "latin-1", "latin1"),
        *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
        *(f"windows-{page}" for page in (*range(1250, 1259), 874)),
        *("koi8-r", "koi8-u", "macintosh", "big5", "big5hkscs", "gb2312", "gbk", "gb18030"),
        *("shift-jis", "sjis", "euc-jp", "iso-2022-jp", "euc-kr", "cp949"),
    )
} | {"utf8": "utf-8", "windows-874": "cp874", "macintosh": "mac-roman"}
"""The charsets that are decoded, each in linear time. A page in another one is read as UTF-8.

Python has more codecs, but some are no charsets and some may take hours.
"""
_HIDDEN = re.compile(r"<(script|style|noscript|svg|head)\b", re.IGNORECASE | re.ASCII)
_CLOSING = {
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE | re.ASCII)
    for name in ("script", "style", "noscript", "svg", "head")
}
_BREAKS = re.compile(r"<(?:br|/p|/div|/li|/tr|/h\d|/section|/article)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


class PageUnreachable(AgentsupError):
    """A page could not be fetched: no such name, no answer, or an answer that is no HTTP."""

    code = "unreachable"
    status = 502


Resolve = Callable[[str, int], Awaitable[list[str]]]


def is_own(address: str) -> bool:
    """Whether ``address`` is this machine's, so that a packet to it would not leave. Sends none.

    Raises ``OSError`` if that can't be determined.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((address, 9))
        except OSError as error:
            if is_shortage(error):
                raise
            return False  # there is no route to it
        # To one of its own addresses, a machine connects from the same address.
        return str(asked.getsockname()[0]) == address


async def system_addresses(host: str, port: int) -> list[str]:
    """All addresses of a name, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


@dataclass(frozen=True, slots=True)
class WebRules:
    """Rules about addresses that may be fetched. Tests use a loopback server instead of the public
    web."""

    resolve: Resolve = system_addresses
    is_public: Callable[[str], bool] = addresses.is_public
    is_own: Callable[[str], bool] = is_own
    ports: frozenset[int] = field(default=addresses.PORTS)
    timeout_s: float = TIMEOUT_S
    pool: BoundedPool = field(
        default_factory=partial(BoundedPool, "pages", threads=2, limit_s=10.0)
    )
    """The pool in which pages are converted to text."""


class Fetch(Arguments):
    """The arguments of ``web_fetch``."""

    url: Text = Field(description="http or https.")


def web_tool(rules: WebRules | None = None) -> Tool:
    """The tool, only for agents whose ``tools`` name it, since a URL can carry data out."""
    bounds = rules or WebRules()

    @tool(
        "web_fetch",
        Effect.READ,
        Safety.MODERATE,
        is_optional=True,
        is_outside=True,
        check=checked(Fetch, lambda args: addresses.url_problem(args.url, bounds.ports)),
    )
    async def fetch(context: ToolContext, args: Fetch) -> str:
        """Fetch a page of the public web as text (HTTP GET)."""
        del context
        url = args.url
        try:
            async with asyncio.timeout(bounds.timeout_s):
                return await _fetch(url, bounds)
        except TimeoutError:
            raise TimedOut(f"{url[:200]} did not answer within {bounds.timeout_s:g} s") from None
        except LimitExceeded as error:
            raise PageUnreachable(f"{url[:200]} can't be fetched: {error.text}") from None
        except PoolFull:
            raise Overloaded("too many pages are read at once; try again", queue="pages") from None
        except (ClientError, OSError, ValueError) as error:
            what = str(error) or type(error).__name__
            raise PageUnreachable(f"{url[:200]} can't be fetched: {what[:300]}") from None

    return tool_of(fetch)


async def _fetch(url: str, rules: WebRules) -> str:
    for _ in range(MAX_HOPS + 1):
        address = await _address(url, rules)
        following = await _hop(url, address, rules)
        if isinstance(following, _Page):
            return following.document(url)
        url = urljoin(url, following)
    raise Refused(f"more than {MAX_HOPS} redirections")


async def _address(url: str, rules: WebRules) -> str:
    """The address to connect to; empty if a proxy connects. Raises ``Refused`` if the name has one
    that is not public."""
    # Parsed as the client will parse it, so that both see the same host.
    read = URL(url)
    problem = addresses.url_problem(url, rules.ports) or addresses.url_problem(
        str(read), rules.ports
    )
    if problem is not None:
        raise Refused(problem)
    host, port = read.raw_host or "", read.port or 0
    proxy = proxy_of(str(read))
    try:
        found = await rules.resolve(host, port)
    except OSError:
        if proxy is None:
            raise
        return ""  # behind a proxy, names of the public web need not be known here
    if not found:
        raise Refused(f"{host} has no address")
    hidden = [each for each in found if not rules.is_public(each)]
    if hidden:
        raise Refused(f"{host} is not on the public network ({hidden[0]})")
    own = [each for each in found if rules.is_own(each)]
    if own:
        raise Refused(f"{host} is this machine ({own[0]})")
    return found[0] if proxy is None else ""


@dataclass(frozen=True, slots=True)
class _Page:
    status: int
    type: str
    text: str
    is_cut: bool

    def document(self, url: str) -> str:
        cut = f"\n[cut at {MAX_BYTES} bytes]" if self.is_cut else ""
        return f"{url}\nstatus {self.status}, {self.type}\n\n{self.text}{cut}"


async def _hop(url: str, address: str, rules: WebRules) -> _Page | str:
    """One request to one address: the page, or the location of a redirection."""
    client = await asyncio.to_thread(import_module, _CLIENT)
    async with client.asked(url, address, _ANSWER) as (answer, pieces):
        location = answer.headers.get("Location")
        if answer.status in _REDIRECTS and location:
            return str(location)
        kind = answer.headers.get("Content-Type", "text/plain").strip()
        if not _TYPES.match(kind.lower()):
            raise BadRequest(f"{urlsplit(url).hostname} sent {kind[:100]}, which is no text")
        body = bytearray()
        async with aclosing(pieces) as coming:
            async for piece in coming:
                body += piece
                if len(body) > MAX_BYTES:
                    break
        charset = answer.charset or "utf-8"
    raw, is_cut = bytes(body[:MAX_BYTES]), len(body) > MAX_BYTES
    text = await rules.pool.run(partial(_readable, raw, charset, kind))
    return _Page(answer.status, kind.partition(";")[0], text, is_cut)


def _readable(raw: bytes, charset: str, kind: str) -> str:
    text = raw.decode(_CHARSETS.get(charset.strip().lower().replace("_", "-"), "utf-8"), "replace")
    if "html" not in kind.lower():
        return text
    text = _without_tags(_without_hidden(text))
    lines = (" ".join(line.split()) for line in html.unescape(text).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


# Pages are untrusted, so both functions take linear time, also for tags that are never closed. A
# search that starts again at each character could block the whole process for hours.


def _without_hidden(text: str) -> str:
    """``text`` without elements that are not shown; one that is never closed stays."""
    parts: list[str] = []
    unclosed: set[str] = set()
    position = 0
    while (found := _next_hidden(text, position)) is not None:
        name = found[1].casefold()
        end = None if name in unclosed else _CLOSING[name].search(text, found.end())
        if end is None:
            unclosed.add(name)
        parts += (text[position : found.start()], found[0] if end is None else " ")
        position = found.end() if end is None else end.end()
    return "".join((*parts, text[position:]))


def _next_hidden(text: str, position: int) -> re.Match[str] | None:
    while position < len(text):
        end = position + _STEP_CHARS
        found = _HIDDEN.search(text, position, end + _OPENING_CHARS)
        # A match that begins later may be cut off at the end of this step.
        if end >= len(text) or (found is not None and found.start() < end):
            return found
        position = end
    return None


def _without_tags(text: str) -> str:
    return _replaced(_TAG, "", _replaced(_BREAKS, "\n", text))


def _replaced(pattern: re.Pattern[str], by: str, text: str) -> str:
    """Replace the matches of ``pattern``, which end with ">", in steps.

    The interpreter runs nothing else during a step, so each one is short.
    """
    # Each tag before the last ">" has an end, so no search runs on in vain.
    last = text.rfind(">") + 1
    parts, start = [], 0
    while start < last:
        end = text.find(">", min(start + _STEP_CHARS, last - 1)) + 1
        parts.append(pattern.sub(by, text[start:end]))
        start = end
    return "".join((*parts, text[last:]))
