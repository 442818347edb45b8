"""What a client of `/ws` says: texts in their order, commands past them, and what became of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from agentsup.api import documents, privacy
from agentsup.api.frames import Hello, Say
from agentsup.api.ports import Said as Became
from agentsup.api.route import Call
from agentsup.api.spoken import Said, Says
from agentsup.api.web.files import attached
from agentsup.channels.stops import scope_of
from agentsup.kit.tasks import OwnerClosed
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.model.errors import AgentsupError, NotReady, Overloaded
from agentsup.model.principal import Principal

__all__ = ["Saying"]


class Saying:
    """One client's words in one conversation."""

    def __init__(
        self,
        call: Call,
        hello: Hello,
        entry: DirectoryEntry,
        *,
        place: str,
        post: Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]],
        tell: Callable[[AgentsupError, str], Coroutine[Any, Any, None]],
        still_here: Callable[[], Principal],
        is_closed: Callable[[], bool],
    ) -> None:
        """`place` is the conversation as events name it. `still_here` gives who speaks, as it is
        now, and raises what refuses it."""
        self._call = call
        self._hello = hello
        self._entry = entry
        self._place = place
        self._post = post
        self._tell = tell
        self._still_here = still_here
        self._is_closed = is_closed
        self._says = Says(call.deps.limits.says_in_flight)

    async def take(self, frame: Say) -> None:
        """Begin to handle one text. It ends by itself: a client that leaves cuts no command short."""
        # A command must not wait behind a text; texts keep their order.
        is_urgent = not frame.files and frame.text.lstrip().startswith(("/", "!"))
        try:
            self._says.begin(is_command=is_urgent)
        except Overloaded as error:
            await self._tell(error, frame.id)
            return
        said = self._says.said(self._entry.agent_id, self._place, is_command=is_urgent)
        ended = self._stop(frame) if is_urgent else None
        key = self._key(frame) if is_urgent else None

        async def say() -> None:
            try:
                with self._call.api.connections.spoken.among(said):
                    await self._say(frame, said, key)
            finally:
                self._says.end(is_command=is_urgent)
                if ended is not None:
                    self._says.stopped(ended)

        saying = say()
        try:
            self._call.api.connections.work.spawn(saying, name=f"say:{self._entry.name}")
        except OwnerClosed:
            saying.close()
            await self._tell(_draining(), frame.id)

    def _stop(self, frame: Say) -> asyncio.Event | None:
        """If it is a stop, what was said before it is dropped; texts after it wait for its end."""
        with contextlib.suppress(AgentsupError):
            scope = scope_of(
                frame.text,
                agent_name=self._entry.name,
                bot_id=self._entry.agent_id,
                conversation=self._place,
                principal=self._still_here(),
                offered=self._call.deps.web.offered(self._entry.agent_id, ""),
            )
            connections = self._call.api.connections
            if scope is not None and not connections.commands.knows(self._key(frame)):
                connections.spoken.stop(scope)
                return self._says.stop()
        return None

    def _key(self, frame: Say) -> Hashable:
        return self._entry.agent_id, self._place, frame.id, frame.digest

    async def _say(self, frame: Say, said: Said, key: Hashable | None) -> None:
        """`key` is a command's."""
        self._call.used()
        try:
            if key is None and self._call.deps.control.draining:
                raise _draining()
            say = partial(
                self._call.deps.inbox.say,
                agent_name=self._entry.name,
                channel=self._hello.channel,
                conversation=self._hello.conversation,
                text=frame.text,
                principal=replace(self._still_here(), language=self._call.language),
                language=self._call.language,
                external_id=frame.id,
                has_buttons=self._hello.channel == privacy.CHANNEL,
                # A console or a page is one person's; who may write there is checked at the door.
                is_private=True,
                also=said.also,
            )
            if key is not None:
                became = await self._call.api.connections.commands.run(key, partial(say, files=()))
            else:
                given = [(file.path, file.name) for file in frame.files]
                async with self._says.in_order:
                    await said.turn()
                    # Looking for its files takes a while: the next text must not pass meanwhile.
                    became = await say(files=await attached(self._call, self._entry, given))
        except AgentsupError as error:
            await self._answer(self._tell(error, frame.id))
            return
        except Exception:  # supervision boundary: whoever said it would wait for ever
            await self._answer(self._tell(_broken(), frame.id))
            raise
        await self._answer(self._post(_answer_of(frame, became, self._call.language)))

    async def _answer(self, posting: Coroutine[Any, Any, None]) -> None:
        """Post from work that may outlive the socket: give up where nobody reads any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._is_closed() else self._call.deps.limits.stall_s):
                await posting


def _broken() -> AgentsupError:
    return AgentsupError("this broke, and nothing may have come of it; the daemon's log says how")


def _answer_of(frame: Say, became: Became, language: str) -> dict[str, Any]:
    """The frame that says what became of a text or a command."""
    if became.message is None:
        return {
            "type": "reply",
            "id": frame.id,
            "text": became.text,
            "ok": became.ok,
            "code": became.code,
            "buttons": [[asdict(button) for button in row] for row in became.buttons],
        }
    return {
        "type": "accepted",
        "id": frame.id,
        "message_id": became.message.message_id,
        "position": became.message.position,
        "eta_s": became.message.eta_s,
        "duplicate": became.message.duplicate,
        "waits_for": documents.waited_for(became.message.waits_for, language),
    }


def _draining() -> NotReady:
    return NotReady(
        "the daemon is draining and takes no new work; say it again when it is back",
        retry_after_s=5,
    )
