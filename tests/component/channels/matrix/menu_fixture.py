"""Menus of one bot over rooms in memory, a real store, mailbox and relay, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.sending import DeliverySettings, buttons
from agentsup.channels.matrix import parse
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.menus import Menus
from agentsup.channels.matrix.sender import Sender
from agentsup.commands import ChatCommands, CommandServices, chat_commands, main_commands
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import Relay, outbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import CommandContext
from agentsup.model.engine import Suspended
from agentsup.model.message import Accepted, DeliverTo
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.store import Tx
from tests.component.channels.telegram.menu_fixture import FakePlatformDaemon
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_rooms import RoomEvent, Rooms
from tests.support.press_deps import press_deps

MAIN_ID = "agt_main"
ROOM = "!room:localhost"
ANN = Principal(PrincipalKind.PERSON, "ann", "Ann", PersonRole.OPERATOR)
VERA = Principal(PrincipalKind.PERSON, "vera", "Vera", PersonRole.VIEWER)

NO_BOTS: Any = None
"""Nobody adds agents here."""


class MatrixMenuFixture:
    """One bot, its rooms, and what people do there."""

    def __init__(self, folder: Path, mail: MailboxFixture) -> None:
        self.mail = mail
        self.rooms = Rooms(mail.clock)
        self.house = FakePlatformDaemon(("main", *(f"agent{n}" for n in range(1, 9)), "bob"))
        self.spec = AgentSpec("main")
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.lives = 0
        self.presses = 0

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.lives += 1
        services = CommandServices(
            self.house,  # type: ignore[arg-type]  # a twin of what these commands use
            self.mail.mailbox,
            self.mail.db,
            self.house,  # type: ignore[arg-type]  # as above
            self.mail.clock,
            self.mail.entropy,
            Path,
        )
        self.commands = ChatCommands(
            (*chat_commands(services), *main_commands(services, self.house.reassign, NO_BOTS)),
            lambda: MAIN_ID,
        )
        self.sender = Sender(self.rooms, self.mail.clock)  # type: ignore[arg-type]  # a twin of what is used
        deps = press_deps(self.mail, MAIN_ID, self.commands, lambda: self.spec)
        self.menus = Menus(deps, self.sender)
        self.waiting = WaitingNotes(deps, "matrix", self.menus.display.end_note, after_s=3.0)
        channel = MatrixChannel(self.mail.clock)
        settings = DeliverySettings(self.workspace)
        channel.attach(
            MAIN_ID,
            BotHandle(self.rooms, self.sender, lambda: settings, offered=self.menus.offered),  # type: ignore[arg-type]  # a twin of what is used
        )
        relay = Relay(
            self.mail.db,
            self.mail.clock,
            self.mail.entropy,
            {"matrix": channel},
            boot_id=f"boot-{self.lives}",
        )
        self.tasks = TaskOwner("rig")
        self.draining = asyncio.Event()
        ready = asyncio.Event()
        self.tasks.spawn(relay.run(ready.set, self.draining), name="relay:rig")
        self.tasks.spawn(self.menus.run(self.draining), name="menus:rig")
        self.tasks.spawn(self.waiting.run(self.draining), name="waiting:rig")
        await ready.wait()

    async def stop(self) -> None:
        self.draining.set()
        await self.waiting.close()
        await self.tasks.close(2.0)
        await self.sender.close()

    async def restart(self) -> None:
        await self.stop()
        await self.mail.reboot()
        await self.start()

    async def quiet(self, seconds: float = 1.0) -> None:
        """Let what is under way be done."""
        await self.mail.clock.sleep(seconds)

    # -- people ------------------------------------------------------------------------------------

    def press_id(self) -> str:
        self.presses += 1
        return f"event:{self.presses}"

    async def react(
        self, event: RoomEvent, emoji: str, who: Principal = ANN, press_id: str = ""
    ) -> bool:
        """Somebody presses a reaction."""
        done = await self.menus.on_reaction(
            event.room_id, event.event_id, emoji, who, press_id or self.press_id()
        )
        await self.quiet()
        return done

    async def say(
        self,
        text: str,
        reply_to: RoomEvent | None = None,
        who: Principal = ANN,
        conversation: str = ROOM,
        press_id: str = "",
        quoted: str | None = None,
    ) -> str | None:
        """Somebody writes a text; None: it is one for the agent."""
        typed = TypedText(
            conversation=conversation,
            text=text,
            principal=who,
            press_id=press_id or self.press_id(),
            reply_to=reply_to.event_id if reply_to else None,
            quoted=self.quoted(reply_to) if quoted is None else quoted,
        )
        said = await self.menus.on_text(typed)
        await self.quiet()
        return said

    def quoted(self, event: RoomEvent | None) -> str:
        """What the event says that somebody replies to."""
        return self.shown(event) if event is not None else ""

    async def command(self, text: str, who: Principal = ANN, conversation: str = ROOM) -> RoomEvent:
        """Somebody gives a command; the event that shows its reply."""
        context = CommandContext(
            MAIN_ID, "main", "matrix", conversation, who, language=who.language, has_buttons=True
        )
        reply = await self.commands.run(text, context)
        at = self.mail.clock.now_ms()

        def put(tx: Tx) -> None:
            rows = buttons.mint_tx(
                tx,
                reply.buttons,
                agent_id=MAIN_ID,
                conversation=conversation,
                origin=text,
                at=at,
                entropy=self.mail.entropy,
                channel="matrix",
            )
            body = {"text": reply.text, "plain": True, "buttons": rows}
            if who.language:
                body["language"] = who.language
            self._part_tx(tx, conversation, "notice", body)

        await self.mail.db.write(put)
        await self.quiet()
        return self.last()

    def _part_tx(
        self, tx: Tx, conversation: str, kind: str, body: dict[str, Any], message_id: str = ""
    ) -> int:
        return outbox.add_tx(
            tx,
            agent_id=MAIN_ID,
            channel="matrix",
            conversation=conversation,
            kind=kind,
            body=body,
            at=self.mail.clock.now_ms(),
            message_id=message_id,
        )

    async def part(
        self, kind: str, body: dict[str, Any], conversation: str = ROOM, message_id: str = ""
    ) -> int:
        """One more part in the outbox."""
        number = await self.mail.db.write(
            lambda tx: self._part_tx(tx, conversation, kind, body, message_id)
        )
        await self.quiet()
        return number

    async def put(self, text: str = "go", conversation: str = ROOM, session: str = "") -> Accepted:
        """A message of a person to the agent."""
        to = DeliverTo("chat", agent_id=MAIN_ID, channel="matrix", conversation=conversation)
        return await self.mail.put(
            text, MAIN_ID, deliver_to=to, session_key=f"chat:matrix:{session or conversation}"
        )

    async def ask(
        self, text: str = "Which?", conversation: str = ROOM, session: str = "", **changes: Any
    ) -> tuple[Question, RoomEvent]:
        """A turn of the agent asks; the question, and the event that shows it."""
        accepted = await self.put(conversation=conversation, session=session)
        leases = {each.message.message_id: each for each in await self.mail.claim(MAIN_ID)}
        ask = replace(Suspended(b"", text, ("red", "blue")), **changes)
        lease = leases[accepted.message_id]
        question = await self.mail.db.write(
            lambda tx: self.mail.mailbox.questions.park_tx(tx, lease, ask)
        )
        await self.quiet()
        return question, self.last(parse(conversation).room_id)

    # -- looking -----------------------------------------------------------------------------------

    def last(self, room_id: str = ROOM) -> RoomEvent:
        """The newest message of a room."""
        return self.rooms.messages(room_id)[-1]

    def shown(self, event: RoomEvent) -> str:
        """What people read in an event now."""
        return str(event.shown["body"])

    async def answer_of(self, question: Question) -> tuple[str, str]:
        """The state, and what was decided or else answered."""
        ((state, decision, answer),) = await self.mail.sql(
            "SELECT state, decision, answer FROM questions WHERE question_id = ?",
            question.question_id,
        )
        is_text = decision in {None, "text"}
        return str(state), str(answer if is_text else decision)


@asynccontextmanager
async def menu_rigged(folder: Path) -> AsyncIterator[MatrixMenuFixture]:
    """A rig of its own."""
    mail = await MailboxFixture.open(folder)
    rig = MatrixMenuFixture(folder, mail)
    await rig.start()
    try:
        yield rig
    finally:
        await rig.stop()
        await mail.close()
