"""What one Matrix bot receives, on a real store, mailbox and inbox, in virtual time.

``come`` keeps events as a sync does and hands them over. The homeserver is what it is asked for:
members, events, doors; each call can be made to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.errors import ChatGone, PlatformError
from agentsup.channels.core.files.inbox_files import Write
from agentsup.channels.core.receiving import Inbox
from agentsup.channels.core.receiving.messages import ReceiveLimits
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.context import ReceiveDependencies
from agentsup.channels.matrix.event import INVITE, BotUser
from agentsup.channels.matrix.incoming import Incoming
from agentsup.channels.matrix.received import RoomNews, row_owner, store_tx
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.channels.matrix.status import ReadReceipts
from agentsup.commands.dispatch import ChatCommands, Command
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec, MatrixIdentity
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.ids import AgentId
from agentsup.model.pairing import Asking, NoPairing
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.store import EventLog
from tests.support.mailbox_fixture import MailboxFixture

AGENT = AgentId("agt_bob")
ME, ANN, BEN, EVE = "@bot:here", "@ann:here", "@ben:here", "@eve:here"
ROOM = "!r:here"
OWNER = row_owner(AGENT, ME)


class Homeserver(MatrixClient):
    """One who tells of rooms and lets in. ``trouble`` by call and room; each raised in turn, and
    the last one for ever if ``stays``."""

    user_id = ME

    def __init__(self) -> None:
        self.rooms: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.entries: list[Mapping[str, Any]] = []
        """Member events of any room, newest first."""
        self.trouble: dict[tuple[str, str], list[PlatformError]] = {}
        self.stays = False
        self.calls: list[tuple[str, str]] = []
        self.marked: list[str] = []
        self.answers_downloads = asyncio.Event()
        """While it is not set, a download hangs in its midst."""
        self.answers_downloads.set()

    def _called(self, name: str, room_id: str) -> None:
        self.calls.append((name, room_id))
        waiting = self.trouble.get((name, room_id))
        if waiting:
            raise waiting[0] if self.stays else waiting.pop(0)

    def count(self, name: str, room_id: str = ROOM) -> int:
        return self.calls.count((name, room_id))

    async def members(self, room_id: str) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        self._called("members", room_id)
        if room_id not in self.rooms:
            raise ChatGone(403, "not in room", "M_FORBIDDEN")
        return self.rooms[room_id]

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        self._called("event", room_id)
        if event_id not in self.events:
            raise ChatGone(404, "no such event", "M_NOT_FOUND")
        return self.events[event_id]

    async def messages(self, room_id: str, **wanted: Any) -> dict[str, Any]:
        self._called("messages", room_id)
        return {"chunk": self.entries}

    async def join(self, room_id: str) -> None:
        await asyncio.sleep(0.01)
        self._called("join", room_id)

    async def leave(self, room_id: str) -> None:
        self._called("leave", room_id)

    async def download(self, mxc: str, write: Write, max_bytes: int) -> int:
        self._called("download", mxc)
        await write(b"da")
        await self.answers_downloads.wait()
        await write(b"ta")
        return 4

    async def read_marker(self, room_id: str, event_id: str, thread_id: str | None = None) -> None:
        self.marked.append(event_id)


class _Directory:
    def lookup(self, name: str) -> DirectoryEntry:
        return DirectoryEntry(agent_id=AGENT, name="bob", status="running")

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return self.lookup("bob")

    def names(self) -> tuple[str, ...]:
        return ("bob",)


class Buttons:
    """Presses nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.pressed: list[tuple[str, str, str]] = []
        self.private: list[bool] = []
        """Who (empty: nobody who may), the event, the emoji."""
        self.texts: list[tuple[str, str | None, str]] = []

    async def on_text(self, typed: TypedText) -> str | None:
        self.texts.append((typed.text, typed.reply_to, typed.quoted))
        return None

    async def on_reaction(
        self,
        room_id: str,
        event_id: str,
        emoji: str,
        principal: Principal | None,
        press_id: str,
        language: str = "",
        *,
        is_private: bool = False,
    ) -> bool:
        self.private.append(is_private)
        self.pressed.append((principal.subject if principal else "", event_id, emoji))
        return True


class MatrixReceiveFixture:
    """Ann and Ben are its people; Ann is alone with the bot in ``ROOM``."""

    def __init__(self, folder: Path, mail: MailboxFixture) -> None:
        self.mail = mail
        self.folder = folder
        self.server = Homeserver()
        self.server.rooms[ROOM] = {ME: {}, ANN: {}}
        self.buttons = Buttons()
        self.told: list[str] = []
        self.pairing: Asking = NoPairing()
        self.ran: list[str] = []
        self.shared: list[bool] = []
        """Of each command, whether others read what it shows."""
        self.set_aside: list[int] = []
        self.numbers = 0
        identity = MatrixIdentity(user_id=ME, allowed_users=(ANN, BEN))
        self.spec = AgentSpec("bob", matrix=identity)
        self.commands = ChatCommands(
            tuple(
                Command(name, "", "is run", self._run, operator=False)
                for name in ("ping", "stop", "stop_all")
            ),
            lambda: AGENT,
        )
        self.ill: set[str] = set()
        """People who can't even be looked up."""
        self.open()

    async def _run(self, context: CommandContext, rest: str) -> CommandReply:
        self.shared.append(context.is_shared)
        self.ran.append(f"{context.conversation} {rest}".strip())
        return CommandReply("ran")

    def people(self, spec: AgentSpec, user_id: str) -> Principal | None:
        if user_id in self.ill:
            raise RuntimeError("nobody can say who that is")
        if user_id not in spec.matrix.allowed_users:
            return None
        subject = f"matrix:{user_id}"
        return Principal(PrincipalKind.PERSON, subject, subject, PersonRole.OPERATOR)

    def group(self, room_id: str = ROOM, *, mention_only: bool = True) -> None:
        """The room has Ben and Eve in it too, and is allowed."""
        self.server.rooms[room_id] = {ME: {}, ANN: {}, BEN: {}, EVE: {}}
        matrix = replace(self.spec.matrix, allowed_rooms=(room_id,))
        self.spec = replace(self.spec, matrix=matrix, group_mention_only=mention_only)

    # -- life --------------------------------------------------------------------------------------

    def open(self, *, at_once: int = 4) -> None:
        mail, clock = self.mail, self.mail.clock
        (self.folder / "workspace").mkdir(exist_ok=True)
        deps = ReceiveDependencies(
            agent_id=AGENT,
            agent_name="bob",
            owner=OWNER,
            me=BotUser(ME, "Bob"),
            database=mail.db,
            mailbox=mail.mailbox,
            inbox=Inbox(
                mailbox=mail.mailbox,
                events=EventLog(mail.db),
                directory=_Directory(),
                commands=self.commands,
                hex_digits=lambda count: "a" * count,
            ),
            commands=self.commands,
            clock=clock,
            entropy=mail.entropy,
            client=self.server,
            workspace=self.folder / "workspace",
            spec=lambda: self.spec,
            people=self.people,
            menus=self.buttons,  # type: ignore[arg-type]  # a twin of what receiving uses
            accepted=lambda message_id, conversation, event_id: None,
            limits=ReceiveLimits(
                max_file_bytes=1_000_000, poll_s=30.0, chats_at_once=at_once, backlog=100
            ),
            tell=self._tell,
            pairing=self.pairing,
            set_aside=self.set_aside.append,
        )
        self.rooms = RoomMembers(self.server, clock)
        self.marks = ReadReceipts(self.server, clock, "bob")
        self.incoming = Incoming(
            deps,
            watch=lambda message_id, conversation: None,
            rooms=self.rooms,
            marks=self.marks,
        )

    async def _tell(self, text: str) -> None:
        self.told.append(text)

    async def close(self) -> None:
        await self.incoming.close(0.0)
        await self.marks.close()

    async def reopen(self, *, at_once: int = 4) -> None:
        await self.close()
        self.open(at_once=at_once)

    # -- what comes --------------------------------------------------------------------------------

    def raw(
        self, content: dict[str, Any], kind: str = "m.room.message", **more: Any
    ) -> dict[str, Any]:
        self.numbers += 1
        common = {"event_id": f"${self.numbers}", "type": kind, "sender": ANN}
        at = self.mail.clock.now_ms()
        return {**common, "origin_server_ts": at, "content": content, **more}

    async def come(
        self,
        content: dict[str, Any],
        kind: str = "m.room.message",
        *,
        room: str = ROOM,
        wait_s: float = 1.0,
        **more: Any,
    ) -> ReceivedRow:
        """One event comes, and time for it passes."""
        raw = self.raw(content, kind, **more)
        news = RoomNews(room, (raw,), raw["event_id"])
        rows = await self.mail.db.write(lambda tx: store_tx(tx, OWNER, [news], since="s", at=0))
        await self.incoming.feed.take(rows)
        await asyncio.sleep(wait_s)
        return rows[0]

    async def say(
        self, body: str, relates: dict[str, Any] | None = None, **more: Any
    ) -> ReceivedRow:
        content: dict[str, Any] = {"msgtype": "m.text", "body": body}
        if relates:
            content["m.relates_to"] = relates
        return await self.come(content, **more)

    async def edit(self, first: ReceivedRow, body: str, **more: Any) -> ReceivedRow:
        content = {
            "msgtype": "m.text",
            "body": f"* {body}",
            "m.new_content": {"msgtype": "m.text", "body": body},
            "m.relates_to": {"rel_type": "m.replace", "event_id": first.external_id},
        }
        return await self.come(content, **more)

    async def react(self, event_id: str, emoji: str, **more: Any) -> ReceivedRow:
        relates = {"rel_type": "m.annotation", "event_id": event_id, "key": emoji}
        return await self.come({"m.relates_to": relates}, "m.reaction", **more)

    async def invited(
        self, by: str = ANN, room: str = "!new:here", wait_s: float = 1.0
    ) -> ReceivedRow:
        return await self.come({}, INVITE, room=room, sender=by, wait_s=wait_s)

    # -- looking -----------------------------------------------------------------------------------

    async def state(self, row: ReceivedRow) -> tuple[str, str]:
        """What became of a row, and why."""
        ((state, error),) = await self.mail.sql(
            "SELECT state, coalesce(nullif(error, ''), skip_reason, '') FROM received"
            " WHERE row_id = ?",
            row.row_id,
        )
        return str(state), str(error)

    async def heard(self) -> list[tuple[str, str]]:
        """The messages that the agent has, as conversation and text, in order."""
        rows = await self.mail.sql(
            "SELECT deliver_to ->> '$.conversation', parts ->> '$[0].text' FROM messages"
            " ORDER BY seq"
        )
        return [(str(row[0]), str(row[1])) for row in rows]

    async def notices(self) -> list[tuple[str, str]]:
        """What was said besides answers, as conversation and text, in order."""
        rows = await self.mail.sql(
            "SELECT conversation, body ->> '$.text' FROM outbox WHERE kind = 'notice'"
            " ORDER BY outbox_id"
        )
        return [(str(row[0]), str(row[1])) for row in rows]


@asynccontextmanager
async def receiving(folder: Path) -> AsyncIterator[MatrixReceiveFixture]:
    """A rig of its own."""
    mail = await MailboxFixture.open(folder)
    rig = MatrixReceiveFixture(folder, mail)
    try:
        yield rig
    finally:
        await rig.close()
        await mail.close()
