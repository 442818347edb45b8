"""One bot and one chat on each platform, from the outbox and live turns to what people see."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.errors import ChatGone, OutcomeUnknown, RateLimited
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import mint_tx
from agentsup.channels.core.sending.deliver import DeliverySettings, PieceChannel
from agentsup.channels.matrix import deliver as matrix
from agentsup.channels.matrix import live_answer as matrix_stream
from agentsup.channels.matrix import menus as matrix_menus
from agentsup.channels.matrix.sender import Sender as MatrixSender
from agentsup.channels.telegram import SharedHttp, TelegramClient
from agentsup.channels.telegram import deliver as telegram
from agentsup.channels.telegram import live_answer as telegram_stream
from agentsup.channels.telegram import menus as telegram_menus
from agentsup.channels.telegram.menus import TelegramPress
from agentsup.channels.telegram.sender import Sender as TelegramSender
from agentsup.fakes.entropy import SeededEntropy
from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import Relay, outbox
from agentsup.model.agent import Streaming
from agentsup.model.control import CommandButton, CommandContext, CommandInfo, CommandReply
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.model.secret import Secret
from agentsup.observe import LiveHub
from agentsup.store import Tx
from tests.component.channels.telegram.bench import AGENT, FAST, TOKEN
from tests.contract.platform.faulty_client import FaultyMatrixClient
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_rooms import Rooms
from tests.support.press_deps import press_deps
from tests.support.stream_fixture import StreamedTurn

ROOM = "!r:localhost"
ANN = Principal(PrincipalKind.PERSON, "ann", "Ann", PersonRole.OPERATOR)
VERA = Principal(PrincipalKind.PERSON, "vera", "Vera", PersonRole.VIEWER)
_NUMBERED: Final = re.compile(r"^\d+\. (.+)$", re.MULTILINE)


class FakeChatCommands:
    """Says of each command that it was run; refuses those in ``refused``."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.refused: set[str] = set()

    def is_command(self, text: str) -> bool:
        return text.startswith("/")

    async def run(self, text: str, context: CommandContext) -> CommandReply:
        self.ran.append(text)
        return CommandReply(f"done: {text}", ok=text not in self.refused)

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        return ()


class PlatformChat(StreamedTurn, ABC):
    """A bot's life around one chat. ``end`` and ``begin`` are the end and the start of a process."""

    agent_id = AGENT
    is_idempotent: ClassVar[bool]
    channel: PieceChannel[Any, Any, Any]
    streams: StreamSet

    menus: Presses[Any]

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        super().__init__(
            mail.db, mail.clock, Streaming(edit_interval_s=1.0, min_chars=8, idle_ms=50)
        )
        self.mail = mail
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.settings = DeliverySettings(self.workspace)
        self.commands = FakeChatCommands()
        self.boots = 0

    # -- of the platform ---------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """Make the channel, the sender and the streams of a process."""

    @abstractmethod
    def attach(self) -> None:
        """Attach the bot to the channel."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close what ``_connect`` made."""

    @abstractmethod
    async def texts(self) -> list[str]:
        """The bot's messages as they are shown now, oldest first."""

    @abstractmethod
    async def files(self) -> list[str]:
        """The names of the files that the bot sent."""

    @abstractmethod
    async def is_typing(self) -> bool: ...

    @abstractmethod
    async def reactions(self) -> list[str]:
        """Reactions of the bot to the person's message of ``hear``."""

    @abstractmethod
    async def hear(self) -> None:
        """A person says something, which is accepted as message ``m1``."""

    @abstractmethod
    async def offered(self) -> list[str]:
        """The labels that can be pressed now, oldest first."""

    @abstractmethod
    async def _pressed(self, label: str, by: Principal | None) -> Callable[[], Awaitable[object]]:
        """Somebody presses what has this label; the result gives the press to the bot.

        ``by`` None: a person who may not write there.
        """

    @abstractmethod
    async def ask_for_pause(self) -> None:
        """Let the next message be refused with a short pause."""

    @abstractmethod
    async def lose_answer(self) -> None:
        """Let the next message be shown, but its sender get no answer."""

    @abstractmethod
    async def go_away(self) -> None:
        """Let the bot no longer write there."""

    async def told(self) -> list[str]:
        """All that the person who pressed can read."""
        return await self.texts()

    # -- a process ---------------------------------------------------------------------------------

    async def begin(self, *, attached: bool = True) -> None:
        self.boots += 1
        self._connect()
        if attached:
            self.attach()
        self.owner = TaskOwner("test", on_error=lambda task, error: None)
        self.draining = asyncio.Event()
        relay = Relay(
            self.database,
            self.clock,
            SeededEntropy(self.clock, 7),
            {self.channel_name: self.channel},
            boot_id=f"boot{self.boots}",
        )
        ready = asyncio.Event()
        self.owner.spawn(relay.run(ready.set, self.draining), name="relay:test")
        self.owner.spawn(self.streams.run(self.draining), name="streams:test")
        self.owner.spawn(self.menus.run(self.draining), name="menus:test")
        await ready.wait()

    async def end(self) -> None:
        """The process ends without a word."""
        await self.owner.close(2.0)
        await self.streams._owner.close(2.0)
        await self._disconnect()
        self.live = LiveHub()

    # -- the store ---------------------------------------------------------------------------------

    async def turn(self, text: str) -> None:
        """The turn of ``m1`` runs and says ``text``."""
        self.live.begin(AGENT, f"{self.channel_name}:{self.conversation}", "m1")
        self.live.delta("m1", text)

    async def finish(self, answer: str) -> int:
        """The turn ends with this answer; returns the part."""
        self.live.end("m1")
        await self.become("done", "ok")
        return await self.add(answer)

    async def add(self, text: str, kind: str = "answer", **body: Any) -> int:
        """Put a part of ``m1`` into the outbox."""

        def add(tx: Tx) -> int:
            return outbox.add_tx(
                tx,
                agent_id=AGENT,
                channel=self.channel_name,
                conversation=self.conversation,
                kind=kind,
                body={"text": text, **body},
                at=self.clock.now_ms(),
                message_id="m1",
            )

        return await self.database.write(add)

    async def state_of(self, part: int) -> tuple[str, str]:
        """The state of a part, and why it waits."""
        ((state, reason),) = await self.sql(
            "SELECT state, retry_reason FROM outbox WHERE outbox_id = ?", part
        )
        return str(state), str(reason)

    async def settled(self, part: int) -> str:
        """The state of a part that is no longer pending."""
        async with asyncio.timeout(30):
            while (state := (await self.state_of(part))[0]) == "pending":
                await asyncio.sleep(0.02)
        return state

    async def until(self, look: Callable[[list[str]], bool]) -> list[str]:
        """The texts of the chat once they are as wanted."""
        async with asyncio.timeout(30):
            while not look(texts := await self.texts()):
                await asyncio.sleep(0.05)
        return texts

    async def forgotten(self) -> None:
        """No placeholder is on record."""
        async with asyncio.timeout(40):
            while await self.sql("SELECT 1 FROM placeholders"):
                await asyncio.sleep(0.05)

    # -- presses -----------------------------------------------------------------------------------

    @property
    def deps(self) -> BotServices:
        return press_deps(self.mail, AGENT, self.commands, self.spec)

    async def menu(self, text: str, *buttons: CommandButton) -> None:
        """Show a notice with these buttons, each in a row of its own."""

        def mint(tx: Tx) -> list[list[dict[str, str]]]:
            return mint_tx(
                tx,
                [[button] for button in buttons],
                agent_id=AGENT,
                conversation=self.conversation,
                origin="",
                at=self.clock.now_ms(),
                entropy=self.mail.entropy,
                channel=self.channel_name,
            )

        rows = await self.database.write(mint)
        part = await self.add(text, "notice", plain=True, buttons=rows)
        assert await self.settled(part) == "delivered"

    async def ask(self, text: str = "Which?", *options: str) -> Question:
        """A turn asks a question, which is shown."""
        to = DeliverTo(
            "chat", agent_id=AGENT, channel=self.channel_name, conversation=self.conversation
        )
        accepted = await self.mail.put("go", AGENT, deliver_to=to)
        (lease,) = await self.mail.claim(AGENT)
        assert lease.message.message_id == accepted.message_id
        question = await self.mail.park(lease, text=text, options=options)
        ((part,),) = await self.sql("SELECT outbox_id FROM outbox WHERE kind = 'question'")
        assert await self.settled(part) == "delivered"
        return question

    async def press(self, label: str, by: Principal | None = ANN, *, times: int = 1) -> None:
        """Somebody presses, and the bot gets the press ``times`` times, as after a crash."""
        give = await self._pressed(label, by)
        for _ in range(times):
            await give()

    async def until_told(self, part: str) -> None:
        """Wait until the person who pressed can read this."""
        async with asyncio.timeout(30):
            while not any(part in text for text in await self.told()):
                await asyncio.sleep(0.05)

    async def until_offered(self, *labels: str) -> None:
        """Wait until exactly these can be pressed."""
        async with asyncio.timeout(30):
            while await self.offered() != list(labels):
                await asyncio.sleep(0.05)


class TelegramChat(PlatformChat):
    """A group on the strict server, where answers are shown by edits."""

    channel_name = "telegram"
    is_idempotent = False

    async def enter(self, people: TelegramDriver, url: str) -> None:
        self.people, self.url = people, url
        bot_id = await people.add_bot(TOKEN, username="bob_bot")
        self.ann = await people.user("Ann")
        self.queries: list[str] = []
        self.offset = 0
        self.conversation = await people.group("Home", [self.ann, bot_id])

    def _connect(self) -> None:
        self.http = SharedHttp(rates=FAST)
        self.client = TelegramClient(Secret(TOKEN), self.url, http=self.http)
        self.sender = TelegramSender(self.client, self.clock)
        self.channel = self.telegram = telegram.TelegramChannel()
        self.streams = self.shown = telegram_stream.Streams(self, self.sender)  # type: ignore[arg-type]  # a twin of what is used
        self.menus = telegram_menus.Menus(self.deps, self.sender, self.client)

    def attach(self) -> None:
        handle = telegram.BotHandle(
            self.client, self.sender, lambda: self.settings, self.streams.takeover
        )
        self.telegram.attach(AGENT, handle)

    async def _disconnect(self) -> None:
        await self.sender.close()
        await self.client.close()
        await self.http.close()

    async def texts(self) -> list[str]:
        return [text for text in await self.people.texts(self.conversation) if text]

    async def files(self) -> list[str]:
        found = await self.people.messages(self.conversation)
        sent = [record["message"] for record in found if record["is_bot"]]
        return [one["document"]["file_name"] for one in sent if "document" in one]

    async def is_typing(self) -> bool:
        return (await self.people.view(self.conversation))["action"] is not None

    async def hear(self) -> None:
        await self.people.say(self.conversation, "hello", user=self.ann)
        self.said = (await self.people.messages(self.conversation))[-1]["message"]["message_id"]
        self.shown.accepted("m1", self.conversation, str(self.said))

    async def reactions(self) -> list[str]:
        (record,) = await self.people.messages(self.conversation, after=self.said - 1)
        return [one["emoji"] for given in record["reactions"].values() for one in given]

    async def _keyboards(self) -> list[tuple[int, list[str]]]:
        """Messages with buttons, and the labels."""
        found = [record["message"] for record in await self.people.messages(self.conversation)]
        return [
            (message["message_id"], [button["text"] for row in rows for button in row])
            for message in found
            if (rows := message.get("reply_markup", {}).get("inline_keyboard"))
        ]

    async def offered(self) -> list[str]:
        return [label for _, labels in await self._keyboards() for label in labels]

    async def _pressed(self, label: str, by: Principal | None) -> Callable[[], Awaitable[object]]:
        message_id = [number for number, labels in await self._keyboards() if label in labels][-1]
        query_id = await self.people.press(self.conversation, message_id, text=label, user=self.ann)
        self.queries.append(query_id)
        query: dict[str, Any] = {}
        while query.get("id") != query_id:
            found = await self.client.call("getUpdates", offset=self.offset, timeout=5)
            self.offset = found[-1]["update_id"] + 1
            query = found[-1].get("callback_query", {})
        press = TelegramPress(
            query_id,
            query["data"],
            f"update:{self.offset}",
            self.conversation,
            query["message"]["chat"]["id"],
            message_id,
        )
        return partial(self.menus.on_press, press, by)

    async def told(self) -> list[str]:
        answers = [(await self.people.get("callback", id=each))["answer"] for each in self.queries]
        return [*(each.get("text", "") for each in answers if each), *await self.texts()]

    async def ask_for_pause(self) -> None:
        await self.people.fault("flood", method="sendMessage", retry_after=1, count=1)

    async def lose_answer(self) -> None:
        await self.people.fault("cut_after", method="sendMessage", count=1)

    async def go_away(self) -> None:
        await self.people.member(self.conversation, int(TOKEN.partition(":")[0]), "kicked")


class MatrixChat(PlatformChat):
    """A room, in memory or at a homeserver."""

    channel_name = "matrix"
    is_idempotent = True
    client: Rooms | FaultyMatrixClient
    menus: matrix_menus.Menus

    @abstractmethod
    async def shown(self) -> list[tuple[str, dict[str, Any]]]:
        """The ids of the bot's events, and their contents as they are shown now, oldest first."""

    @abstractmethod
    async def _react(self, event_id: str, key: str) -> str:
        """A person sets a reaction; its id."""

    def _connect(self) -> None:
        self.sender = MatrixSender(self.client, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        self.channel = self.matrix = matrix.MatrixChannel(self.clock)
        self.streams = self.running = matrix_stream.Streams(self, self.sender)  # type: ignore[arg-type]  # a twin of what is used
        self.menus = matrix_menus.Menus(self.deps, self.sender)

    def attach(self) -> None:
        handle = matrix.BotHandle(
            self.client,  # type: ignore[arg-type]  # a twin of what is used
            self.sender,
            lambda: self.settings,
            self.streams.takeover,
            self.menus.offered,
        )
        self.matrix.attach(AGENT, handle)

    async def texts(self) -> list[str]:
        return [
            str(content.get("body"))
            for _, content in await self.shown()
            if content.get("msgtype") != "m.file"
        ]

    async def files(self) -> list[str]:
        return [str(content["body"]) for _, content in await self.shown() if "url" in content]

    async def offered(self) -> list[str]:
        return [label for text in await self.texts() for label in _NUMBERED.findall(text)]

    async def _pressed(self, label: str, by: Principal | None) -> Callable[[], Awaitable[object]]:
        found = [
            (event_id, _NUMBERED.findall(str(content.get("body"))).index(label) + 1)
            for event_id, content in await self.shown()
            if label in _NUMBERED.findall(str(content.get("body")))
        ]
        event_id, number = found[-1]
        key = f"{number}\ufe0f\u20e3"
        press_id = f"event:{await self._react(event_id, key)}"
        return partial(self.menus.on_reaction, self.conversation, event_id, key, by, press_id)

    async def ask_for_pause(self) -> None:
        self.client.before["send"] = [RateLimited(1.0)]

    async def lose_answer(self) -> None:
        self.client.after["send"] = [OutcomeUnknown("the line was cut")]


class RoomsChat(MatrixChat):
    """A room in memory."""

    conversation = ROOM

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        super().__init__(mail, folder)
        self.client = self.rooms = Rooms(self.clock)
        self.presses = 0

    async def _disconnect(self) -> None:
        """Nothing is connected."""

    async def shown(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (event.event_id, event.shown)
            for event in self.rooms.messages(ROOM)
            if event.event_id != "$person"
        ]

    async def is_typing(self) -> bool:
        return self.rooms.writing.get(ROOM, False)

    async def hear(self) -> None:
        self.running.accepted("m1", ROOM, "$person")

    async def reactions(self) -> list[str]:
        return self.rooms.reactions("$person")

    async def _react(self, event_id: str, key: str) -> str:
        self.presses += 1
        return f"$press{self.presses}"

    async def go_away(self) -> None:
        self.rooms.before["send"] = [ChatGone(403, "not in room", "M_FORBIDDEN")] * 9
