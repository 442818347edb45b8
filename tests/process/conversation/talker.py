"""What a person can do over any transport; the conversation test knows nothing else.

A new transport brings one ``Talker`` and one stage (a daemon whose ``main`` is reached over it) and is
added to ``STAGES`` of the test. Talkers speak the raw protocol of their transport, never our objects.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from types import MappingProxyType
from typing import Any, Protocol

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

WAIT_S = BOUND_S
MAIN: Mapping[str, Any] = MappingProxyType(
    {"name": "main", "tools": ["*", "exec"], "permission_mode": "bypassPermissions"}
)
"""The agent of every stage; ``exec`` is for what ``HELD`` does."""
HELD = ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; rm go"]
"""A command that keeps a turn until ``ConversationFixture.let_go``."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the agent said, its pieces put together, and the code in it as (language, text)."""

    text: str
    code: tuple[tuple[str, str], ...] = ()

    @property
    def code_lines(self) -> list[str]:
        """All lines of code, wherever an answer was split."""
        return [line for _, text in self.code for line in text.splitlines()]


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the agent; ``handle`` is the transport's own."""

    text: str
    options: tuple[str, ...]
    handle: Any


class Talker(Protocol):
    """One person in one conversation with one agent.

    What the agent said is heard in order: each of ``hears``, ``file`` and ``question`` goes on
    where the
    one before ended. Each raises ``TimeoutError`` that shows what did come.
    """

    async def say(self, text: str) -> str:
        """Say a text or give a command; what it was said as, for ``correct``."""
        ...

    async def correct(self, said: str, text: str) -> None:
        """Replace a text that still waits behind a running one."""
        ...

    async def hears(self, part: str, timeout_s: float = WAIT_S) -> Heard:
        """Everything said since, up to and with the text that holds ``part``; no draft counts."""
        ...

    async def sees(self, part: str, timeout_s: float = WAIT_S) -> None:
        """Return once ``part`` can be seen, also in an answer that is being written."""
        ...

    async def send_file(self, name: str, data: bytes, text: str) -> None:
        """Give the agent a file with a text."""
        ...

    async def file(self, timeout_s: float = WAIT_S) -> tuple[str, bytes]:
        """The next file of the agent: its name and what is in it."""
        ...

    async def question(self, part: str, timeout_s: float = WAIT_S) -> Question:
        """The next question of the agent, which holds ``part``."""
        ...

    async def press(self, question: Question, option: str) -> None:
        """Choose an option without typing it."""
        ...

    async def type_answer(self, question: Question, text: str) -> None:
        """Answer in own words."""
        ...

    async def aside(self, name: str) -> Talker:
        """The same person with the same agent beside this conversation: a topic, a session."""
        ...

    async def come_back(self) -> None:
        """The daemon has been started again; connect to it where the transport needs that."""
        ...

    async def transcript(self) -> list[str]:
        """All finished texts of the agent in this conversation, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class ConversationFixture:
    """A running daemon and a person who talks to its ``main``."""

    daemon: DaemonProcess
    talker: Talker

    async def waits(self, text: str) -> None:
        """Return once ``text`` waits for its turn; a correction may still be on its way."""
        async with asyncio.timeout(WAIT_S):
            while True:
                told = await self.daemon.get("/messages?agent=main&state=queued")
                if any(text in each["text"] for each in told["messages"]):
                    return
                await asyncio.sleep(0.05)

    def let_go(self) -> None:
        """Let the turn go on that is ``HELD``, or the next one that will be."""
        (self.daemon.home / "agents" / "main" / "workspace" / "go").touch()


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def heard_markdown(texts: Sequence[str]) -> Heard:
    """For transports that show the answer's own Markdown."""
    whole = "\n".join(texts)
    return Heard(whole, tuple((one[1], one[2]) for one in _FENCE.finditer(whole)))


def heard_entities(messages: Sequence[Mapping[str, Any]]) -> Heard:
    """For Telegram: texts with entities, whose offsets count UTF-16 units."""
    texts, code = [], []
    for message in messages:
        text = str(message.get("text", message.get("caption", "")))
        texts.append(text)
        units = text.encode("utf-16-le")
        for one in message.get("entities", ()):
            if one["type"] == "pre":
                begin, end = one["offset"] * 2, (one["offset"] + one["length"]) * 2
                code.append((one.get("language", ""), units[begin:end].decode("utf-16-le")))
    return Heard("\n".join(texts), tuple(code))


class _Code(HTMLParser):
    """Collects ``<pre><code class="language-x">``."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag == "pre":
            self._inside.append(tag)
        elif tag == "code" and self._inside:
            self._inside.append(tag)
            language = (dict(attrs).get("class") or "").removeprefix("language-")
            self.found.append((language, ""))

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["code"]:
            language, text = self.found.pop()
            self.found.append((language, text + data))


def heard_html(messages: Sequence[tuple[str, str]]) -> Heard:
    """For Matrix: each message as its plain and its formatted body."""
    code: list[tuple[str, str]] = []
    for _, html in messages:
        reader = _Code()
        reader.feed(html)
        reader.close()
        code += reader.found
    return Heard("\n".join(text for text, _ in messages), tuple(code))
