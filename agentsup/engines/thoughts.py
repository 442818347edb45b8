"""Tells a model's thoughts from its answer where both come in one text.

Many servers pass on what a model writes, with its thoughts between tags such as ``<think>``. Tags are
found in the text of all deltas together, because a delta may end anywhere. A chat template may have
opened the thought already; then only the closing tag comes, and all before it was a thought.

Tags in code (fenced, between backticks) or between quotation marks are text about tags and stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentsup.model.engine import EngineEvent, TextDelta, ThinkingDelta

_NAMES = "think|thinking|thought|thoughts|reason|reasoning|antthinking"
_XML = rf"(?:[a-z]+:)?(?:{_NAMES})"
_FINAL = r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>"
# Openings, and the closings that belong to them.
_FAMILIES = (
    (rf"<{_XML}(?:\s[^<>]{{0,80}})?>", rf"</\s*{_XML}\s*>"),
    (r"\[think\]", r"\[/think\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<\|channel>thought\b", r"<channel\|>"),
    (r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>", rf"(?:<\|end\|>)?{_FINAL}"),
)
_OPENING = re.compile("|".join(opening for opening, _ in _FAMILIES), re.IGNORECASE)
_CLOSINGS = [re.compile(closing, re.IGNORECASE) for _, closing in _FAMILIES]
_TOKEN = re.compile(
    r"(?P<fence>^[ ]{0,3}(?:`{3,}|~{3,}))|(?P<ticks>`+)"
    rf"|(?P<close>{'|'.join(closing for _, closing in _FAMILIES)})"
    + "".join(f"|(?P<open{number}>{opening})" for number, (opening, _) in enumerate(_FAMILIES)),
    re.IGNORECASE | re.MULTILINE,
)
_INLINE = re.compile(r"(`+)(?!`)(?:(?!\n[ \t]*\n)[\s\S]){1,300}?(?<!`)\1(?!`)")
_INLINE_CHARS = 300
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_TAG_CHARS = 120
"""A tag is not longer than this."""
_BEGINNINGS = "<[◁"
_MARKERS = (
    *("[think]", "[/think]", "◁think▷", "◁/think▷", "<|begin_of_thought|>", "<|end_of_thought|>"),
    *("<|inner_prefix|>", "<|inner_suffix|>", "<|channel>thought", "<channel|>"),
    *("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"),
    *("<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
    *("<|end|><|channel|>final<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)
_BEGUN_XML = re.compile(
    rf"</?\s*(?:[a-z]+:)?[a-z]*|<{_XML}\s[^<>]{{0,80}}|</\s*{_XML}\s*", re.IGNORECASE
)
_FIELD = re.compile(r"</?\s*(?:[a-z]+:)?(?:thought|reason)", re.IGNORECASE)
_QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "«": "»"}
_MOST_RESTARTS = 3


def answer_of(text: str) -> str:
    """Return a whole text of a model without the thoughts in it."""
    if not any(beginning in text for beginning in _BEGINNINGS):
        return text
    splitter = ThoughtSplitter(holds=True)
    splitter.feed(text)
    splitter.end()
    return splitter.answer


@dataclass(slots=True)
class ThoughtSplitter:
    """Splits the text of one response as its deltas come."""

    holds: bool = False
    """Whether nothing is given out before a thought or the text has ended: for a model whose
    template may have opened a thought."""
    answer: str = ""
    """The answer so far. A closing tag without an opening empties it."""
    is_opened_outside: bool = False
    """Whether a closing tag without an opening came."""
    _raw: str = ""
    _at: int = 0
    _given: int = 0
    _family: int | None = None
    _has_thought: bool = False
    _opened_at: int = 0
    _fence: str = ""
    _fence_at: int = 0
    _no_fences: set[int] = field(default_factory=set)
    _thoughts: list[str] = field(default_factory=list)

    def feed(self, delta: str) -> tuple[str, str]:
        """Return what a delta adds to the answer, and to the thoughts."""
        self._raw += delta
        self._scan(is_last=False)
        return self._news(), self._new_thoughts()

    def end(self, *, is_cut: bool = False) -> str:
        """Return what the end of the text adds to the answer; ``is_cut``: it is no whole text."""
        self._scan(is_last=True)
        for _ in range(_MOST_RESTARTS):
            if not (self.holds and self._fence):
                break
            # A fence that never ends is none: a closing tag after it counts.
            self._no_fences.add(self._fence_at)
            self.answer, self._fence, self._family, self._at = "", "", None, 0
            self._scan(is_last=True)
        if self._family is not None and not is_cut and not self._begins_line(self._opened_at):
            # Nothing closed it, in the middle of a line: it was a word about tags.
            self._keep(len(self._raw), since=self._opened_at)
        self._family, self.holds = None, False
        return self._news()

    @property
    def is_open(self) -> bool:
        """Whether a thought, code, or what may become a tag, has begun and not ended."""
        is_within = self._family is not None or bool(self._fence)
        return is_within or self._at < len(self._raw) or bool(self.holds and self._raw)

    # -- inside ------------------------------------------------------------------------------------

    def _news(self) -> str:
        if self.holds:
            return ""
        news, self._given = self.answer[self._given :], len(self.answer)
        return news

    def _new_thoughts(self) -> str:
        thoughts = "".join(self._thoughts)
        self._thoughts.clear()
        return thoughts

    def _keep(self, end: int, *, since: int | None = None) -> None:
        """Take the text up to ``end`` for the answer."""
        text = self._raw[self._at if since is None else since : end]
        if not self.answer.strip():
            # Blank lines before an answer are none of it; the indent of a first line is.
            text = (
                text.lstrip() if self._has_thought else text if self.answer else text.lstrip("\r\n")
            )
        self.answer += text
        self._at = end

    def _scan(self, *, is_last: bool) -> None:
        """Go as far as it is certain what the text is."""
        step = True
        while step and self._at < len(self._raw):
            if self._fence:
                step = self._pass_code(is_last=is_last)
            elif self._family is not None:
                step = self._pass_thought(self._family, is_last=is_last)
            else:
                step = self._pass_text(is_last=is_last)

    def _pass_text(self, *, is_last: bool) -> bool:
        found = _TOKEN.search(self._raw, self._at)
        if found is None or (found.end() == len(self._raw) and not is_last and found["ticks"]):
            self._keep(len(self._raw) if is_last else self._certain_end())
            return False
        if found["fence"] and found.start() not in self._no_fences:
            if found.end() == len(self._raw) and not is_last:
                self._keep(found.start())
                return False
            self._fence, self._fence_at = found["fence"].strip(), found.start()
            self._keep(found.end())
        elif found["fence"] or found["ticks"]:
            return self._pass_ticks(found, is_last=is_last)
        elif (quoted := self._is_quoted(found, is_last=is_last)) is None:
            self._keep(found.start())
            return False
        elif quoted or self._is_field(found):
            self._keep(found.end())
        elif found["close"]:
            self._has_thought = True
            self._thoughts.append(self.answer + self._raw[self._at : found.start()])
            self.is_opened_outside, self.holds = True, False
            self.answer, self._given, self._at = "", 0, found.end()
        else:
            self._keep(found.start())
            self._has_thought = True
            self._opened_at, self._at = found.start(), found.end()
            self._family = next(n for n in range(len(_FAMILIES)) if found[f"open{n}"])
        return True

    def _pass_ticks(self, found: re.Match[str], *, is_last: bool) -> bool:
        """Pass code between backticks as text; backticks that nothing ends are no code."""
        code = _INLINE.match(self._raw, found.start())
        rest = self._raw[found.end() :]
        may_end = len(rest) <= _INLINE_CHARS and not _PARAGRAPH_END.search(rest)
        if not is_last and may_end and (code is None or code.end() == len(self._raw)):
            self._keep(found.start())
            return False
        self._keep(found.end() if code is None else code.end())
        return True

    def _pass_code(self, *, is_last: bool) -> bool:
        mark = re.escape(self._fence[0])
        ending = re.compile(
            rf"^[ ]{{0,3}}{mark}{{{len(self._fence)},}}[ \t]*(?:\n|\Z)", re.MULTILINE
        )
        found = ending.search(self._raw, self._at)
        if found is not None and (is_last or found.end() < len(self._raw) or found[0][-1:] == "\n"):
            self._keep(found.end())
            self._fence = ""
            return True
        line = self._raw.rfind("\n") + 1
        begun = self._raw[line:].strip(" \t").strip(self._fence[0])
        self._keep(len(self._raw) if begun or is_last else max(self._at, line))
        return False

    def _pass_thought(self, family: int, *, is_last: bool) -> bool:
        at = self._at
        while (found := _CLOSINGS[family].search(self._raw, at)) is not None:
            quoted = self._is_quoted(found, is_last=is_last)
            if quoted is None:
                return False
            if not quoted:
                break
            at = found.end()
        if found is None:
            end = len(self._raw) if is_last else max(self._at, self._certain_end())
            self._thoughts.append(self._raw[self._at : end])
            self._at = end
            return False
        self._thoughts.append(self._raw[self._at : found.start()])
        # Two openings may have two closings: what follows is certain at the end.
        is_nested = _OPENING.search(self._raw, self._opened_at + 1, found.start()) is not None
        self.holds = is_nested or (self.holds and bool(self.answer.strip()))
        self._family, self._at = None, found.end()
        return True

    def _is_quoted(self, found: re.Match[str], *, is_last: bool) -> bool | None:
        """Whether a tag stands between quotation marks or backticks; None if that is not certain."""
        before = self._raw[found.start() - 1 : found.start()]
        if before not in _QUOTES or not before:
            return False
        after = self._raw[found.end() : found.end() + 1]
        return None if not after and not is_last else after == _QUOTES[before]

    def _is_field(self, found: re.Match[str]) -> bool:
        """Whether the tag may be an element of a document (``<thought>``, ``<reason>``). Such a tag
        opens a thought only at the start of the text."""
        if _FIELD.match(found[0]) is None:
            return False
        return bool(found["close"] or (self.answer + self._raw[self._at : found.start()]).strip())

    def _begins_line(self, at: int) -> bool:
        return not self._raw[self._raw.rfind("\n", 0, at) + 1 : at].strip()

    def _certain_end(self) -> int:
        """The start of the end of the text that may become a tag or code."""
        raw, end = self._raw, len(self._raw)
        line = raw.rfind("\n") + 1
        if line >= self._at and end - line <= 3 and not raw[line:].strip(" "):
            end = line
        end = max(self._at, min(end, len(raw.rstrip("`~"))))
        for at in range(max(self._at, len(raw) - _TAG_CHARS), end):
            if raw[at] in _BEGINNINGS and _may_begin(raw[at:]):
                return at
        return end


class AnswerText:
    """The answer of a turn of several responses: the text of each without its thoughts, with a
    blank line between two."""

    def __init__(self, opening: set[str] | None = None, agent: str = "") -> None:
        """``opening``: the agents whose models' templates were seen to open a thought. The text of a
        response of such an ``agent`` is given out when the thought has ended."""
        self._opening = set() if opening is None else opening
        self._agent = agent
        self._before = ""
        self._begin()

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._before + self._apart(self._splitter.answer)

    @property
    def is_open(self) -> bool:
        """Whether a thought, code, or what may become a tag, has begun and not ended."""
        return self._splitter.is_open

    def feed(self, delta: str) -> TextDelta | ThinkingDelta:
        """Return what a delta of the response adds to the answer, or to the thoughts."""
        text, thought = self._splitter.feed(delta)
        text = self._shown(text)
        return TextDelta(text) if text else ThinkingDelta(thought)

    def end(self) -> list[EngineEvent]:
        """Return what the end of the response adds to the answer; another one may follow."""
        news = self._shown(self._splitter.end())
        self._before = self.text
        if self._splitter.is_opened_outside:
            self._opening.add(self._agent)
        self._begin()
        return [TextDelta(news)] if news else []

    def _begin(self) -> None:
        self._splitter = ThoughtSplitter(holds=self._agent in self._opening)
        self._is_begun = False

    def _shown(self, news: str) -> str:
        if not news or self._is_begun:
            return news
        self._is_begun = True
        return self._apart(news)

    def _apart(self, text: str) -> str:
        is_apart = not text or not self._before or text.startswith("\n")
        return text if is_apart else "\n\n" + text


def _may_begin(text: str) -> bool:
    """Whether more text can make a tag of it."""
    low = text.lower()
    return any(marker.startswith(low) for marker in _MARKERS) or bool(_BEGUN_XML.fullmatch(low))
