"""A person in Matrix: raw HTTP to a real homeserver, which the stage is given.

What differs: a thread begins at something the agent said; options are pressed by the reactions that
the bot has put under its question.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.process.conversation.talker import (
    MAIN,
    WAIT_S,
    ConversationFixture,
    Heard,
    Question,
    heard_html,
)
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import RoomView, Seen
from tests.support.synapse import Synapse

_OPTION = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
_WRITING = "…"
"""What stands at the end of a text that is still being written."""


class MatrixTalker:
    """Implements ``Talker`` in a room, or in one thread of it."""

    def __init__(self, person: MatrixPerson, room: str, bot: str, thread: str = "") -> None:
        self._person = person
        self._room = room
        self._bot = bot
        self._thread = thread
        self._heard = ""

    def _said(self) -> list[Seen]:
        """Messages of the bot after what was heard."""
        return self._person.messages(
            self._room, by=self._bot, after=self._heard, thread=self._thread
        )

    async def _until(self, look: Callable[[], Any], timeout_s: float) -> Any:
        return await self._person.wait_for(self._room, lambda _: look(), timeout_s)

    async def _next(self, fits: Callable[[Seen], bool], timeout_s: float) -> Seen:
        found: Seen = await self._until(
            lambda: next((one for one in self._said() if fits(one)), None), timeout_s
        )
        self._heard = found.event_id
        return found

    # -- Talker ------------------------------------------------------------------------------------

    async def say(self, text: str) -> str:
        return await self._person.say(self._room, text, thread=self._thread)

    async def correct(self, said: str, text: str) -> None:
        await self._person.edit(self._room, said, text)

    async def hears(self, part: str, timeout_s: float = WAIT_S) -> Heard:
        def look() -> list[Seen] | None:
            messages: list[Seen] = []
            for one in self._said():
                messages.append(one)
                if part in one.text and not one.text.endswith(_WRITING):
                    return messages
            return None

        found: list[Seen] = await self._until(look, timeout_s)
        self._heard = found[-1].event_id
        return heard_html([(one.text, one.html) for one in found])

    async def sees(self, part: str, timeout_s: float = WAIT_S) -> None:
        await self._until(lambda: any(part in one.text for one in self._said()), timeout_s)

    async def send_file(self, name: str, data: bytes, text: str) -> None:
        await self._person.send_file(self._room, data, name=name, text=text, thread=self._thread)

    async def file(self, timeout_s: float = WAIT_S) -> tuple[str, bytes]:
        found = await self._next(lambda one: "url" in one.content, timeout_s)
        name = str(found.content.get("filename", found.text))
        return name, await self._person.download(str(found.content["url"]))

    async def question(self, part: str, timeout_s: float = WAIT_S) -> Question:
        found = await self._next(lambda one: part in one.text, timeout_s)
        return Question(found.text, tuple(_OPTION.findall(found.text)), found.event_id)

    async def press(self, question: Question, option: str) -> None:
        number = question.options.index(option)

        def keys(view: RoomView) -> list[str] | None:
            asked = view.get(question.handle)
            assert asked is not None
            found = [key for key, who in asked.reactions.items() if self._bot in who]
            return found if len(found) == len(question.options) else None

        found: list[str] = await self._person.wait_for(self._room, keys, WAIT_S)
        await self._person.react(self._room, question.handle, found[number])

    async def type_answer(self, question: Question, text: str) -> None:
        await self._person.say(self._room, text, thread=self._thread, reply_to=question.handle)

    async def aside(self, name: str) -> MatrixTalker:
        """A thread; it has no name of its own."""
        root = self._person.messages(self._room, by=self._bot)[-1].event_id
        return MatrixTalker(self._person, self._room, self._bot, root)

    async def come_back(self) -> None:
        """Nothing: the homeserver keeps the room."""

    async def transcript(self) -> list[str]:
        await self._person.sync(timeout_ms=0)
        return self._person.texts(self._room, by=self._bot, thread=self._thread)


async def invited(person: MatrixPerson, bot: str, name: str = "") -> str:
    """A room of a person and a bot that has accepted."""
    room = await person.room(invite=[bot], name=name, direct=not name)
    await person.wait_member(room, bot, timeout_s=30.0)
    return room


@asynccontextmanager
async def matrix_stage(
    root: Path, rules: Sequence[Mapping[str, Any]], synapse: Synapse, url: str = ""
) -> AsyncIterator[ConversationFixture]:
    """A daemon whose ``main`` has an account, and a person it knows, in a room of their own.

    ``url`` is where the bot finds the homeserver, if that is not where it is.
    """
    password = "what only the bot knows"
    # Accounts stay over the tests of a run, so they are named by the folder of this one.
    mark = re.sub(r"\W", "", root.name).lower()
    bot = await synapse.register(f"bot_{mark}", password)
    ann = await synapse.register(f"ann_{mark}", password)
    entry = {
        **MAIN,
        "matrix": {
            "homeserver": url or synapse.url,
            "user_id": bot,
            "password": password,
            "allowed_users": [ann],
        },
    }
    home = write_home(root / "home", [entry], rules)
    async with DaemonProcess(home) as daemon, MatrixPerson(synapse.url, ann, password) as person:
        room = await invited(person, bot)
        yield ConversationFixture(daemon, MatrixTalker(person, room, bot))
        for path in (daemon.output, home / "logs" / "agentsup.log"):
            assert password not in path.read_text(), f"the password is in {path}"
