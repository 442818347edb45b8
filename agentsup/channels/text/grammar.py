"""The dialect of Markdown that models write, as a configuration of markdown-it-py.

CommonMark with tables and strike-through, and with four changes, so that no text of an answer
disappears and later text does not change how earlier text is read:

- HTML is text, never markup.
- No reference definitions: they would swallow lines such as ``[1]: https://…``.
- No underlined headings: a rule below a paragraph is a rule.
- A bare URL is a link, and characters in it are not emphasis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

MAX_NESTING = 60
# The time to find the ends of links grows with the square of the brackets in a paragraph.
_MAX_BRACKETS = 500
# The parser fills up short rows, so a few lines could become any number of cells.
_MAX_INVENTED_CELLS = 10_000
_DELIMITERS = frozenset("|:-> \t")

_SCHEME = re.compile(r"(?:^|[^a-z0-9.+-])(https?)$", re.IGNORECASE)
_SCHEME_CHARS = len("-https")
_BARE_URL = re.compile(r"://[^\s<>`\"“”«»，。、；！？（）「」【】]+")
_TRAILING = ".,;:!?'\"*_~|"


class Grammar:
    """Turns source text into tokens; has no state between calls, so threads may share it."""

    def __init__(self) -> None:
        self._full = _parser()
        self._tableless = _parser("table")

    def tokens(self, text: str) -> list[Token] | None:
        """Return the tokens, or None for a text that is nested too deeply (``MAX_NESTING``)."""
        parser = self._tableless if _cells_to_invent(text) > _MAX_INVENTED_CELLS else self._full
        try:
            tokens = parser.parse(text)
        except RecursionError:
            return None
        deepest = max((token.level for token in tokens if token.nesting == 1), default=0)
        # The parser drops text that is nested beyond its limit.
        return None if deepest >= MAX_NESTING - 1 else tokens

    def inline(self, text: str) -> Sequence[Token]:
        """Return the tokens of a text without blocks, such as a cell."""
        return self._full.parseInline(text)[0].children or ()

    def readable_url(self, url: str) -> str:
        """Return a URL as it was written, without the escapes that the parser added."""
        return self._full.normalizeLinkText(url)


def _parser(*without: str) -> MarkdownIt:
    """Make a parser that recognises no links in paragraphs with too many brackets."""
    parser, flat = _dialect(*without), _dialect(*without, "link", "image")

    def inline(state: StateCore) -> None:
        for token in state.tokens:
            if token.type == "inline":
                token.children = []
                able = flat if token.content.count("[") > _MAX_BRACKETS else parser
                able.inline.parse(token.content, able, state.env, token.children)

    parser.core.ruler.at("inline", inline)
    return parser


def _dialect(*without: str) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.disable(["reference", "lheading", "html_block", "html_inline", *without])
    parser.inline.ruler.after("text", "bare_url", _bare_url)
    return parser


def _cells_to_invent(text: str) -> int:
    """Return an upper estimate of the cells that rows lack compared with their header."""
    lacking = columns = 0
    for line in text.split("\n"):
        pipes = line.count("|")
        if pipes and _DELIMITERS.issuperset(line):
            columns = pipes + 1
        elif not line or line.isspace():
            columns = 0
        elif columns > pipes:
            lacking += columns - pipes
    return lacking


def _bare_url(state: StateInline, silent: bool) -> bool:
    """Match ``https://…`` in running text, up to white space, without trailing punctuation."""
    if state.src[state.pos] != ":" or state.linkLevel > 0:
        return False
    # Only the end is searched: the pending text grows with each colon, so a text of many colons
    # would take quadratic time.
    scheme = _SCHEME.search(state.pending, max(0, len(state.pending) - _SCHEME_CHARS))
    rest = scheme and _BARE_URL.match(state.src, state.pos, state.posMax)
    if scheme is None or rest is None:
        return False
    tail = _without_trailing(rest.group())
    if len(tail) <= len("://"):
        return False
    url = scheme.group(1) + tail
    if not silent:
        state.pending = state.pending[: -len(scheme.group(1))]
        state.push("link_open", "a", 1).attrs = {"href": url}
        state.push("text", "", 0).content = url
        state.push("link_close", "a", -1)
    state.pos += len(tail)
    return True


def _without_trailing(url: str) -> str:
    length = len(url)
    surplus = {")": url.count(")") - url.count("("), "]": url.count("]") - url.count("[")}
    while length:
        last = url[length - 1]
        if last not in _TRAILING and surplus.get(last, 0) <= 0:
            break
        if last in surplus:
            surplus[last] -= 1
        length -= 1
    return url[:length]
