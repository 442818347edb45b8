"""Text as Telegram reads it: UTF-16 lengths, HTML and MarkdownV2 into text and entities.

Both parsers follow the documented formatting options strictly: a reserved character that is not
escaped, a tag that is unknown, unclosed or closed in the wrong order is refused with the server's
words. Offsets and lengths of entities are UTF-16 units.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

from agentsup.fakes.telegram.refusals import Refused, refused

Entity = dict[str, Any]

_TAGS: Final = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
    "tg-emoji": "custom_emoji",
    "tg-time": "date_time",
}
_ATTRIBUTE: Final = re.compile(
    r"""\s*([^\s=>/"']+)\s*(?:=\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9.\-]*)))?"""
)
_HTML_ENTITY: Final = re.compile(r"&(?:lt|gt|amp|quot|#[0-9]+|#[xX][0-9a-fA-F]+);")
_RESERVED: Final = frozenset("_*[]()~`>#+-=|{}.!")
_MARKS: Final = (
    ("```", "pre", "Pre"),
    ("`", "code", "Code"),
    ("||", "spoiler", "Spoiler"),
    ("__", "underline", "Underline"),
    ("_", "italic", "Italic"),
    ("*", "bold", "Bold"),
    ("~", "strikethrough", "Strikethrough"),
)
_ESCAPABLE_CODE: Final = 126


def units(text: str) -> int:
    """The length of ``text`` as Telegram counts it: UTF-16 units."""
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def parse(text: str, parse_mode: str) -> tuple[str, list[Entity]]:
    """Plain text and entities of ``text`` in a parse mode. Raises ``Refused``."""
    mode = parse_mode.lower()
    if mode in {"", "none"} or not text:
        return text, []
    if mode == "html":
        return _Html(text).parse()
    if mode == "markdownv2":
        return _Markdown(text).parse()
    raise refused("parse mode")


def _cannot(why: str) -> Refused:
    return refused("entities", why=why[:1].upper() + why[1:])


class _Parser:
    """Collects the plain text and finished entities."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.out: list[str] = []
        self.length = 0
        self.entities: list[Entity] = []

    def emit(self, text: str) -> None:
        self.out.append(text)
        self.length += units(text)

    def byte_offset(self, at: int) -> int:
        return len(self.source[:at].encode("utf-8", "surrogatepass"))

    def finish(self, kind: str, start: int, **more: str) -> None:
        if self.length > start:
            self.entities.append(
                {
                    "type": kind,
                    "offset": start,
                    "length": self.length - start,
                    **more,
                }
            )

    def result(self) -> tuple[str, list[Entity]]:
        self.entities.sort(key=lambda entity: (entity["offset"], -entity["length"]))
        return "".join(self.out), self.entities


class _Html(_Parser):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.open: list[tuple[str, dict[str, str], int]] = []

    def parse(self) -> tuple[str, list[Entity]]:
        while self.at < len(self.source):
            character = self.source[self.at]
            if character == "<":
                if self.source.startswith("</", self.at):
                    self._end_tag()
                else:
                    self._start_tag()
                continue
            found = _HTML_ENTITY.match(self.source, self.at) if character == "&" else None
            self.emit(unescape(found[0]) if found else character)
            self.at = found.end() if found else self.at + 1
        if self.open:
            raise _cannot(f'can\'t find end tag corresponding to start tag "{self.open[-1][0]}"')
        return self.result()

    def _start_tag(self) -> None:
        begin = self.at
        offset = self.byte_offset(begin)
        name = re.compile(r"<([^\s>]*)").match(self.source, begin)
        assert name is not None
        self.at = name.end()
        tag = name[1].lower()
        if self.at >= len(self.source):
            raise _cannot(f"unclosed start tag at byte offset {offset}")
        if tag not in _TAGS:
            raise _cannot(f'unsupported start tag "{tag}" at byte offset {offset}')
        attributes: dict[str, str] = {}
        while True:
            rest = self.source[self.at :].lstrip()
            self.at = len(self.source) - len(rest)
            if rest.startswith(">"):
                self.at += 1
                break
            if not rest:
                raise _cannot(f'unclosed start tag "{tag}" at byte offset {offset}')
            found = _ATTRIBUTE.match(self.source, self.at)
            if found is None:
                raise _cannot(f'empty attribute name in the tag "{tag}" at byte offset {offset}')
            value = next((group for group in found.groups()[1:] if group is not None), "")
            attributes[found[1]] = unescape(value)
            self.at = found.end()
        if tag == "span" and attributes.get("class") != "tg-spoiler":
            raise _cannot(f'tag "span" must have class "tg-spoiler" at byte offset {offset}')
        self.open.append((tag, attributes, self.length))

    def _end_tag(self) -> None:
        offset = self.byte_offset(self.at)
        if not self.open:
            raise _cannot(f"unexpected end tag at byte offset {offset}")
        found = re.compile(r"</([^\s>]*)\s*>").match(self.source, self.at)
        if found is None:
            raise _cannot(f"unclosed end tag at byte offset {offset}")
        tag, attributes, start = self.open.pop()
        ended = found[1].lower()
        if ended and ended != tag:
            raise _cannot(
                f'unmatched end tag at byte offset {offset}, expected "</{tag}>", '
                f'found "</{ended}>"'
            )
        self.at = found.end()
        self._close(tag, attributes, start)

    def _close(self, tag: str, attributes: dict[str, str], start: int) -> None:
        kind = _TAGS[tag]
        more: dict[str, str] = {}
        if tag == "a":
            text = "".join(self.out)
            more["url"] = attributes.get("href") or text[_index_of(text, start) :]
            if not _is_link(more["url"]):
                return
        elif tag == "blockquote" and "expandable" in attributes:
            kind = "expandable_blockquote"
        elif tag == "tg-emoji":
            more["custom_emoji_id"] = attributes.get("emoji-id", "")
            if not more["custom_emoji_id"].isdigit():
                raise _cannot("invalid custom emoji identifier specified")
        elif tag == "code":
            language = attributes.get("class", "")
            if language.startswith("language-") and self.open and self.open[-1][0] == "pre":
                more["language"] = language.removeprefix("language-")
        elif tag == "pre":
            self._take_over_code(start, more)
        self.finish(kind, start, **more)

    def _take_over_code(self, start: int, more: dict[str, str]) -> None:
        """``<pre><code class="language-x">`` is one entity: a pre with a language."""
        if self.entities and self.entities[-1]["type"] == "code":
            code = self.entities[-1]
            if (code["offset"], code["length"]) == (start, self.length - start):
                self.entities.pop()
                if "language" in code:
                    more["language"] = code["language"]


class _Markdown(_Parser):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.open: list[tuple[str, str, str, int, int, str]] = []
        self.quote_at: int | None = None

    def parse(self) -> tuple[str, list[Entity]]:
        line_start = True
        while self.at < len(self.source):
            character = self.source[self.at]
            in_code = bool(self.open) and self.open[-1][1] in {"code", "pre"}
            following = self.source[self.at + 1 : self.at + 2]
            if character == "\\" and following and ord(following) <= _ESCAPABLE_CODE:
                self.emit(following)
                self.at += 2
            elif line_start and not in_code and self._quote_prefix():
                pass
            elif character == "\n" and not in_code:
                self._line_end()
                line_start = True
                continue
            elif character in (_RESERVED if not in_code else "`"):
                self._mark(character)
            else:
                self.emit(character)
                self.at += 1
            line_start = False
        self._end_of_text()
        return self.result()

    def _quote_prefix(self) -> bool:
        """Take ``>`` or ``**>`` at the begin of a line."""
        rest = self.source[self.at :]
        if rest.startswith("**>") and self.quote_at is None:
            self.at += 2  # an empty bold entity that separates two quotations
            rest = rest[2:]
        if not rest.startswith(">"):
            return False
        if self.quote_at is None:
            self.quote_at = self.length
        self.at += 1
        return True

    def _line_end(self) -> None:
        goes_on = self.source[self.at + 1 : self.at + 2] == ">"
        if self.quote_at is not None and not goes_on:
            self._end_quote()
        self.emit("\n")
        self.at += 1

    def _end_quote(self) -> None:
        assert self.quote_at is not None
        kind = "blockquote"
        if self.open and self.open[-1][1] == "spoiler" and self.open[-1][3] == self.length:
            self.open.pop()
            kind = "expandable_blockquote"
        if self.open:
            self._unclosed()
        self.finish(kind, self.quote_at)
        self.quote_at = None

    def _end_of_text(self) -> None:
        if self.quote_at is not None:
            self._end_quote()
        if self.open:
            self._unclosed()

    def _unclosed(self) -> None:
        _, _, name, _, at, _ = self.open[-1]
        raise _cannot(f"can't find end of {name} entity at byte offset {self.byte_offset(at)}")

    def _mark(self, character: str) -> None:
        if self.open and self.open[-1][0] == "]" and character == "]":
            self._end_link()
            return
        innermost = self.open[-1][0] if self.open else ""
        if innermost and innermost != "]" and self._closes(innermost):
            mark, kind, _, start, _, language = self.open.pop()
            self.at += len(mark)
            self.finish(kind, start, **({"language": language} if language else {}))
            return
        for mark, kind, name in _MARKS:
            if self.source.startswith(mark, self.at):
                begin = self.at
                self.at += len(mark)
                language = self._language() if kind == "pre" else ""
                self.open.append((mark, kind, name, self.length, begin, language))
                return
        if self.source.startswith("![", self.at):
            self.open.append(("]", "custom_emoji", "CustomEmoji", self.length, self.at, ""))
            self.at += 2
        elif character == "[":
            self.open.append(("]", "text_link", "TextUrl", self.length, self.at, ""))
            self.at += 1
        else:
            raise _cannot(
                f"character '{character}' is reserved and must be escaped with the preceding '\\'"
            )

    def _closes(self, mark: str) -> bool:
        if not self.source.startswith(mark, self.at):
            return False
        # Two underscores are read as one underline, never as the ends of two italics.
        return mark != "_" or not self.source.startswith("__", self.at)

    def _language(self) -> str:
        found = re.compile(r"([^\s`]+)(?=\s)").match(self.source, self.at)
        language = found[1] if found else ""
        self.at += len(language)
        newline = re.compile(r"\r\n|\n\r|\n|\r").match(self.source, self.at)
        self.at = newline.end() if newline else self.at
        return language

    def _end_link(self) -> None:
        _, kind, _, start, _, _ = self.open.pop()
        self.at += 1
        text = "".join(self.out)
        url = text[_index_of(text, start) :]
        if self.source.startswith("(", self.at):
            url = self._url()
        elif kind == "custom_emoji":
            raise _cannot("the entity must contain a tg://emoji or tg://time URL")
        if kind == "custom_emoji":
            found = re.fullmatch(r"tg://emoji\?id=(\d+)", url)
            if found is None:
                raise _cannot("invalid tg://emoji or tg://time URL specified")
            self.finish(kind, start, custom_emoji_id=found[1])
        elif _is_link(url):
            self.finish(kind, start, url=url)

    def _url(self) -> str:
        begin = self.at + 1
        self.at = begin
        url = ""
        while self.at < len(self.source) and self.source[self.at] != ")":
            if self.source[self.at] == "\\" and self.at + 1 < len(self.source):
                self.at += 1
            url += self.source[self.at]
            self.at += 1
        if self.at >= len(self.source):
            raise _cannot(f"can't find end of a URL at byte offset {self.byte_offset(begin)}")
        self.at += 1
        return url


def _is_link(url: str) -> bool:
    """Whether the server keeps a link; others become plain text."""
    return bool(re.match(r"(?:https?://|tg://|ton://|tonsite://|[\w-]+\.[\w-]{2,})", url))


def _index_of(text: str, offset: int) -> int:
    """The index in ``text`` of UTF-16 offset ``offset``."""
    passed = 0
    for index, character in enumerate(text):
        if passed >= offset:
            return index
        passed += units(character)
    return len(text)
