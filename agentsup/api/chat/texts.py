"""Takes the texts and commands of a client of ``/ws`` and answers each with its result.

Texts keep their order; commands do not wait for texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentsup.api.documents.messages import waited_for
from agentsup.api.http import privacy
from agentsup.api.http.connections import PendingText, PendingTexts
from agentsup.api.http.route import Call
from agentsup.api.web.files import attached
from agentsup.channels.core.receiving import ChatOrigin, InboxReply, scope_of
from agentsup.kit.tasks import OwnerClosed
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.errors import AgentsupError, NotReady, Overloaded
from agentsup.model.principal import Principal


class Frame(BaseModel):
    """Exact types, no unknown members."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Hello(Frame):
    """The first frame: which conversation, and what of it was seen already."""

    type: Literal["hello"]
    agent: Annotated[str, Field(min_length=1, max_length=200)]
    conversation: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "local"
    channel: Literal["console", "web"] = "console"
    after: Annotated[int | None, Field(ge=0)] = None
    session: Annotated[str, Field(max_length=200)] = ""
    """Only the history of this session, while the conversation is in it."""

    @property
    def key(self) -> str:
        """The conversation as events name it."""
        return f"{self.channel}:{self.conversation}"


class SayFile(Frame):
    """A file that was uploaded before; `name` is what its sender calls it."""

    path: Annotated[str, Field(min_length=1, max_length=300)]
    name: Annotated[str, Field(max_length=500)] = ""


class Say(Frame):
    """A text or a command. `id` is the client's own; said again with it, it counts once."""

    type: Literal["say"]
    id: Annotated[str, Field(min_length=1, max_length=100)]
    text: str
    files: Annotated[list[SayFile], Field(max_length=10)] = Field(default_factory=list)

    @property
    def digest(self) -> bytes:
        """A digest of the text, by which texts are compared."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()


class Ping(Frame):
    """Asks for a `pong`."""

    type: Literal["ping"]


Later = Annotated[Say | Ping, Field(discriminator="type")]
HELLO: Final[TypeAdapter[Hello]] = TypeAdapter(Hello)
LATER: Final[TypeAdapter[Say | Ping]] = TypeAdapter(Later)


class TextIntake:
    """The texts and commands of one client in one conversation."""

    def __init__(
        self,
        call: Call,
        hello: Hello,
        entry: DirectoryEntry,
        *,
        send: Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]],
        tell: Callable[[AgentsupError, str], Coroutine[Any, Any, None]],
        still_here: Callable[[], Principal],
        is_closed: Callable[[], bool],
    ) -> None:
        """``still_here`` returns the client's principal with current rights, and raises if it may
        not write any more."""
        self._call = call
        self._hello = hello
        self._entry = entry
        self._send = send
        self._tell = tell
        self._still_here = still_here
        self._is_closed = is_closed
        self._pending_texts = PendingTexts(call.deps.limits.says_in_flight)

    async def take(self, frame: Say) -> None:
        """Start to handle one text or command; this goes on if the client disconnects."""
        # A command must not wait behind a text; texts keep their order.
        is_urgent = not frame.files and frame.text.lstrip().startswith(("/", "!"))
        try:
            self._pending_texts.begin(is_command=is_urgent)
        except Overloaded as error:
            await self._tell(error, frame.id)
            return
        said = self._pending_texts.said(self._entry.agent_id, self._hello.key, is_command=is_urgent)
        ended = self._stop(frame) if is_urgent else None
        key = self._key(frame) if is_urgent else None

        async def say() -> None:
            spoken = self._call.api.connections.spoken
            spoken.add(said)
            try:
                await self._say(frame, said, key)
            finally:
                spoken.discard(said)
                self._pending_texts.end(is_command=is_urgent)
                if ended is not None:
                    self._pending_texts.stopped(ended)

        saying = say()
        try:
            self._call.api.connections.work.spawn(saying, name=f"say:{self._entry.name}")
        except OwnerClosed:
            saying.close()
            await self._tell(_draining(), frame.id)

    def _stop(self, frame: Say) -> asyncio.Event | None:
        """If the text is a stop, drop the texts before it and return the event of its end, for
        which later texts wait."""
        with contextlib.suppress(AgentsupError):
            scope = scope_of(
                frame.text,
                agent_name=self._entry.name,
                bot_id=self._entry.agent_id,
                conversation=self._hello.key,
                principal=self._still_here(),
                offered=self._call.deps.web.offered(self._entry.agent_id, ""),
            )
            connections = self._call.api.connections
            if scope is not None and not connections.commands.knows(self._key(frame)):
                for said in connections.spoken:
                    if scope.covers(said.agent_id, said.conversation):
                        said.is_stopped = True
                return self._pending_texts.stop()
        return None

    def _key(self, frame: Say) -> Hashable:
        return self._entry.agent_id, self._hello.key, frame.id, frame.digest

    async def _say(self, frame: Say, said: PendingText, key: Hashable | None) -> None:
        """``key`` identifies a command; None for a text."""
        self._call.used()
        try:
            if key is None and self._call.deps.control.draining:
                raise _draining()
            say = partial(
                self._call.deps.inbox.say,
                agent_name=self._entry.name,
                where=ChatOrigin(
                    self._hello.channel,
                    self._hello.conversation,
                    has_buttons=self._hello.channel == privacy.CHANNEL,
                    # One person's conversation; ``still_here`` checks who writes.
                    is_private=True,
                ),
                text=frame.text,
                principal=replace(self._still_here(), language=self._call.language),
                external_id=frame.id,
                also=said.also,
            )
            if key is not None:
                became = await self._call.api.connections.commands.run(key, say)
            else:
                given = [(file.path, file.name) for file in frame.files]
                async with self._pending_texts.in_order:
                    await said.turn()
                    # Checking the files takes time; the lock keeps the next text from passing.
                    became = await say(files=await attached(self._call, self._entry, given))
        except AgentsupError as error:
            await self._answer(self._tell(error, frame.id))
            return
        except Exception:  # supervision boundary: the client would wait for ever
            why = "this broke, and nothing may have come of it; the daemon's log says how"
            await self._answer(self._tell(AgentsupError(why), frame.id))
            raise
        await self._answer(self._send(_answer_of(frame, became, self._call.language)))

    async def _answer(self, posting: Coroutine[Any, Any, None]) -> None:
        """Post an answer; give up if the socket is closed or its reader stalls."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._is_closed() else self._call.deps.limits.stall_s):
                await posting


def _answer_of(frame: Say, became: InboxReply, language: str) -> dict[str, Any]:
    """The frame with the result of a text or a command."""
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
        "waits_for": waited_for(became.message.waits_for, language),
    }


def _draining() -> NotReady:
    return NotReady(
        "the daemon is draining and takes no new work; say it again when it is back",
        retry_after_s=5,
    )
