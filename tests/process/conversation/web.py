"""A person at the web page: what a browser sends, signed in by a one-time link, without a token.

What differs: a text that waits is taken back and said anew, and answers show their own Markdown.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.process.conversation.console import ConsoleTalker
from tests.process.conversation.talker import MAIN, WAIT_S, ConversationFixture, Question
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.web_client import Tab


class WebTalker(ConsoleTalker):
    """Implements ``Talker`` as the page does."""

    def __init__(self, daemon: DaemonProcess, tab: Tab, conversation: str) -> None:
        super().__init__(daemon, conversation)
        self._tab = tab
        self._sent = 0

    async def connect(self) -> None:
        self._chat = await self._tab.chat(self._conversation)

    async def come_back(self) -> None:
        seqs = [frame["seq"] for frame in self._frames() if frame["type"] == "event"]
        after = max(seqs, default=self._chat.frames[0]["seq"])
        self._earlier = self._frames()
        self._chat = await self._tab.chat(self._conversation, after=after)

    async def send_file(self, name: str, data: bytes, text: str) -> None:
        path = f"/web/uploads?agent=main&name={quote(name, safe='')}"
        taken = await self._tab.call("POST", path, data=data)
        self._sent += 1
        say = {"type": "say", "id": f"file-{id(self)}-{self._sent}", "text": text}
        file = {"path": taken["path"], "name": taken["name"]}
        await self._chat._socket.send_str(json.dumps({**say, "files": [file]}))
        await self._chat.frame(WAIT_S, type="accepted", id=say["id"])

    async def file(self, timeout_s: float = WAIT_S) -> tuple[str, bytes]:
        found = await self._next("file", timeout_s)
        return found["name"], await self._tab.call("GET", f"/web/files/{found['outbox_id']}")

    async def press(self, question: Question, option: str) -> None:
        await self.type_answer(question, option)

    async def type_answer(self, question: Question, text: str) -> None:
        await self._tab.call("POST", f"/questions/{question.handle}/answer", {"answer": text})

    async def aside(self, name: str) -> WebTalker:
        other = WebTalker(self._daemon, self._tab, f"{self._conversation}.{name}")
        await other.connect()
        return other


@asynccontextmanager
async def web_stage(
    root: Path, rules: Sequence[Mapping[str, Any]]
) -> AsyncIterator[ConversationFixture]:
    """A daemon with ``main``, and a person of the role user at its page."""
    config = '[people.ann]\nrole = "user"\n'
    home = write_home(root / "home", [MAIN], rules, config)
    async with DaemonProcess(home) as daemon:
        tab = Tab(daemon)
        try:
            signed_in = await tab.sign_in("ann")
            talker = WebTalker(daemon, tab, signed_in["conversation"])
            await talker.connect()
            yield ConversationFixture(daemon, talker)
        finally:
            await tab.close()
