"""A person at the console: raw frames over ``/ws``.

What differs: the console carries no files, because its person is at the machine: a file is laid
into the workspace and named in the text, and a file of the agent is opened where it lies. A text
that waits is taken back and said anew. Options are chosen by number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.process.conversation.talker import (
    MAIN,
    WAIT_S,
    ConversationFixture,
    Heard,
    Question,
    heard_markdown,
)
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess, write_home

T = TypeVar("T")


class ConsoleTalker:
    """Implements ``Talker`` over ``/ws``."""

    def __init__(self, daemon: DaemonProcess, conversation: str) -> None:
        self._daemon = daemon
        self._conversation = conversation
        self._workspace = daemon.home / "agents" / "main" / "workspace"
        self._earlier: list[dict[str, Any]] = []
        self._heard = 0
        self._chat: Chat

    async def connect(self) -> None:
        self._chat = await self._daemon.chat("main", self._conversation)

    async def come_back(self) -> None:
        seqs = [frame["seq"] for frame in self._frames() if frame["type"] == "event"]
        self._earlier = self._frames()
        self._chat = await self._daemon.chat(
            "main", self._conversation, after=max(seqs, default=self._chat.frames[0]["seq"])
        )

    def _frames(self) -> list[dict[str, Any]]:
        return [*self._earlier, *self._chat.frames]

    def _said(self) -> list[dict[str, Any]]:
        """What the agent said, each with its kind: answer, notice, question, file, reply."""
        found: list[dict[str, Any]] = []
        for frame in self._frames():
            if frame["type"] == "reply":
                found.append({"kind": "reply", "text": frame["text"]})
            elif frame["type"] == "event" and frame["event"]["type"] == "chat.out":
                found.append(frame["event"]["data"])
        return found

    async def _until(self, look: Callable[[], T | None], timeout_s: float, what: str) -> T:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while (found := look()) is None:
                    await self._chat.more()
                return found
        raise TimeoutError(f"no {what} within {timeout_s} s in {self._frames()[-30:]}")

    async def _next(self, kind: str, timeout_s: float, part: str = "") -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            for number, one in enumerate(self._said()[self._heard :]):
                if one["kind"] == kind and part in str(one.get("text", "")):
                    self._heard += number + 1
                    return one
            return None

        return await self._until(look, timeout_s, kind)

    # -- Talker ------------------------------------------------------------------------------------

    async def say(self, text: str) -> str:
        if text.startswith("/"):
            return await self._chat.send(text)
        return await self._chat.say(text, timeout_s=WAIT_S)

    async def correct(self, said: str, text: str) -> None:
        assert (await self._chat.command(f"/cancel {said}"))["ok"]
        await self.say(text)

    async def hears(self, part: str, timeout_s: float = WAIT_S) -> Heard:
        def look() -> Heard | None:
            texts: list[str] = []
            for number, one in enumerate(self._said()[self._heard :]):
                texts.append(str(one.get("text", "")))
                if part in texts[-1]:
                    self._heard += number + 1
                    return heard_markdown(texts)
            return None

        return await self._until(look, timeout_s, repr(part))

    async def sees(self, part: str, timeout_s: float = WAIT_S) -> None:
        def look() -> bool | None:
            live: dict[str, str] = {}
            for frame in self._frames():
                if frame["type"] == "begin":
                    live[frame["message_id"]] = ""
                elif frame["type"] == "delta":
                    live[frame["message_id"]] = live.get(frame["message_id"], "") + frame["text"]
                elif frame["type"] == "end":
                    live.pop(frame["message_id"], None)
            return any(part in text for text in live.values()) or None

        await self._until(look, timeout_s, f"sight of {part!r}")

    async def send_file(self, name: str, data: bytes, text: str) -> None:
        folder = self._workspace / "inbox"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        await self.say(f"{text}\n[file: inbox/{name} ({name})]")

    async def file(self, timeout_s: float = WAIT_S) -> tuple[str, bytes]:
        found = await self._next("file", timeout_s)
        return found["name"], (self._workspace / found["path"]).read_bytes()

    async def question(self, part: str, timeout_s: float = WAIT_S) -> Question:
        found = await self._next("question", timeout_s, part)
        return Question(found["text"], tuple(found.get("options") or ()), found["question_id"])

    async def press(self, question: Question, option: str) -> None:
        await self.say(f"/answer {question.options.index(option) + 1}")

    async def type_answer(self, question: Question, text: str) -> None:
        await self.say(f"/answer {text}")

    async def aside(self, name: str) -> ConsoleTalker:
        other = ConsoleTalker(self._daemon, name)
        await other.connect()
        return other

    async def transcript(self) -> list[str]:
        return [str(one.get("text", "")) for one in self._said()]


@asynccontextmanager
async def console_stage(
    root: Path, rules: Sequence[Mapping[str, Any]]
) -> AsyncIterator[ConversationFixture]:
    """A daemon with ``main`` at the console."""
    home = write_home(root / "home", [MAIN], rules)
    async with DaemonProcess(home) as daemon:
        talker = ConsoleTalker(daemon, "local")
        await talker.connect()
        yield ConversationFixture(daemon, talker)
