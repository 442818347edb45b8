"""A chat of the toy platform, as the cases of the contract use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.errors import OutcomeUnknown, RateLimited
from agentsup.model.principal import Principal
from tests.component.channels.telegram.bench import AGENT
from tests.contract.platform import toy
from tests.contract.platform.chats import PlatformChat
from tests.contract.platform.toy_server import BOT, Message, ToyServer
from tests.support.mailbox_fixture import MailboxFixture


class ToyChat(PlatformChat):
    """The chat of one person with the bot; the server outlives the processes."""

    channel_name = toy.CHANNEL
    is_idempotent = toy.ToyChannel.idempotent
    conversation = "home"

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        super().__init__(mail, folder)
        self.server = ToyServer(self.clock.now_ms)

    def _connect(self) -> None:
        self.channel = self.toy = toy.ToyChannel()
        self.streams = self.running = toy.Streams(self, self.server)  # type: ignore[arg-type]  # a twin of what is used
        self.menus = Presses(self.deps, toy.Display(self.deps, self.server))

    def attach(self) -> None:
        handle = toy.Handle(self.server, lambda: self.settings, self.streams.takeover)
        self.toy.attach(AGENT, handle)

    async def _disconnect(self) -> None:
        """Nothing is connected."""

    def _shown(self) -> list[tuple[str, Message]]:
        return [each for each in self.server.messages.items() if each[1].by == BOT]

    async def texts(self) -> list[str]:
        return [message.text for _, message in self._shown() if not message.file]

    async def files(self) -> list[str]:
        return [message.file for _, message in self._shown() if message.file]

    async def is_typing(self) -> bool:
        return self.conversation in self.server.typing

    async def hear(self) -> None:
        self.said = self.server.put(Message(self.conversation, "ann", "hello"))
        self.running.accepted("m1", self.conversation, self.said)

    async def reactions(self) -> list[str]:
        return list(filter(None, [self.server.messages[self.said].seen]))

    async def offered(self) -> list[str]:
        return [label for _, message in self._shown() for label, _ in message.buttons]

    async def _pressed(self, label: str, by: Principal | None) -> Callable[[], Awaitable[object]]:
        message_id, data = [
            (message_id, data)
            for message_id, message in self._shown()
            for each, data in message.buttons
            if each == label
        ][-1]
        number = self.server.happens("press", self.conversation, "ann", message_id, data=data)
        press = toy.Press(f"update:{number}", self.conversation, message_id, data)
        return partial(self.menus.on_press, press, by)

    async def told(self) -> list[str]:
        return [*self.server.said, *await self.texts()]

    async def ask_for_pause(self) -> None:
        self.server.before.append(RateLimited(1.0))

    async def lose_answer(self) -> None:
        self.server.after.append(OutcomeUnknown("the line was cut"))

    async def go_away(self) -> None:
        self.server.gone.add(self.conversation)
