"""Menus of one bot between the strict fake and a real mailbox; people act over raw HTTP only.

What belongs to other parts is done here in a few lines: updates are read as they come, parts of the
outbox are sent whole.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.sending import buttons, cards
from agentsup.channels.telegram import SharedHttp, TelegramClient, outgoing
from agentsup.channels.telegram.address import ChatAddress
from agentsup.channels.telegram.menus import Menus, TelegramPress
from agentsup.channels.telegram.render import render
from agentsup.channels.telegram.sender import Sender
from agentsup.commands import ChatCommands, CommandServices, chat_commands, main_commands
from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.mail import DirectoryEntry, SentMail
from agentsup.model.agent import AgentSpec
from agentsup.model.chat_model import ChatModel
from agentsup.model.control import (
    AgentView,
    CommandContext,
    ModelPrice,
    OfferedModels,
    OverridableField,
)
from agentsup.model.engine import Suspended
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.model.secret import Secret
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.press_deps import press_deps

MAIN_ID = "agt_main"
UPDATES = ["message", "callback_query", "message_reaction"]

NO_BOTS: Any = None
"""Nobody adds agents here."""


class FakeChatModels:
    """No chat has a model of its own."""

    async def of(self, name: str) -> tuple[ChatModel, ...]:
        return ()

    async def here(self, name: str, chat: str) -> ChatModel | None:
        return None


class FakePlatformDaemon:
    """Agents to look at, start and stop."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.states = dict.fromkeys(names, "running")
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.model = ""
        self.chat_models = FakeChatModels()

    def _view(self, name: str) -> AgentView:
        if name not in self.states:
            raise NotFound(f"there is no agent {name}", agent=name)
        status = self.states[name]
        return AgentView(
            name, f"agt_{name}", "ins", status, "down" if status == "stopped" else "up", "",
            "scripted", self.model, 5.0, 0, "", "", None, 0, 0, 0, is_main=name == "main",
        )  # fmt: skip

    async def agents(self) -> tuple[AgentView, ...]:
        return tuple(map(self._view, self.states))

    async def reassign(self, message_id: str, to: str, by: Principal) -> SentMail:
        raise NotFound(f"there is no message {message_id}", message_id=message_id)

    async def agent(self, name: str) -> AgentView:
        return self._view(name)

    async def _act(self, verb: str, name: str, status: str) -> AgentView:
        self._view(name)
        self.calls.append(f"{verb} {name}")
        await self.gate.wait()
        self.states[name] = status
        return self._view(name)

    async def start_agent(self, name: str, by: Principal) -> AgentView:
        return await self._act("start", name, "running")

    async def stop_agent(self, name: str, by: Principal) -> AgentView:
        return await self._act("stop", name, "stopped")

    async def restart_agent(self, name: str, by: Principal) -> AgentView:
        return await self._act("restart", name, "running")

    async def models(self, name: str, by: Principal) -> OfferedModels:
        raise Conflict(f"{name} has no provider")

    async def model_prices(self, name: str, models: Sequence[str]) -> tuple[ModelPrice | None, ...]:
        return (None,) * len(models)

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        self.calls.append(f"{field} {value}")
        self.model = value or ""
        return OverridableField(name, field, value, "override", "live", "")

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        name = agent_id.removeprefix("agt_")
        return DirectoryEntry(AgentId(agent_id), name, "running") if name in self.states else None


@dataclass
class Life:
    """One life of the bot: what a restart of the daemon replaces."""

    client: TelegramClient
    http: SharedHttp
    sender: Sender
    menus: Menus
    commands: ChatCommands
    tasks: TaskOwner
    draining: asyncio.Event = field(default_factory=asyncio.Event)


class TelegramMenuFixture:
    """One bot, its people and chats."""

    def __init__(self, fake: FakeTelegram, people: TelegramDriver, mail: MailboxFixture) -> None:
        self.fake = fake
        self.people = people
        self.mail = mail
        self.bot = fake.bot(username="main_bot", name="Main", can_read_all_group_messages=True)
        self.house = FakePlatformDaemon(("main", *(f"agent{n}" for n in range(1, 9)), "bob"))
        self.who: dict[int, Principal] = {}
        self.heard: list[str] = []
        """Texts that were no answers."""
        self._hearing = asyncio.Event()
        self.words: list[str] = []
        self.spec = AgentSpec("main")
        self.put_out = asyncio.Event()
        """Set by each part that comes into the outbox."""
        mail.db.listen("outbox:telegram", self.put_out.set)
        self.life: Life
        self._offset = 0
        self.repeat = False
        """Handle every update twice, as after a crash."""

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        services = CommandServices(
            self.house,  # type: ignore[arg-type]  # a twin of what these commands use
            self.mail.mailbox,
            self.mail.db,
            self.house,  # type: ignore[arg-type]  # as above
            self.mail.clock,
            self.mail.entropy,
            Path,
        )
        commands = ChatCommands(
            (*chat_commands(services), *main_commands(services, self.house.reassign, NO_BOTS)),
            lambda: MAIN_ID,
        )
        http = SharedHttp()
        client = TelegramClient(Secret(self.bot.token), self.fake.url, http=http)
        sender = Sender(client, self.mail.clock)
        deps = press_deps(self.mail, MAIN_ID, commands, lambda: self.spec)
        menus = Menus(deps, sender, client)
        self.life = Life(client, http, sender, menus, commands, TaskOwner("rig"))
        # What may come must be named before it happens, reactions above all.
        await client.call("getUpdates", timeout=0, allowed_updates=UPDATES)
        self.life.tasks.spawn(self._listen(self.life), name="poll:rig")
        self.life.tasks.spawn(menus.run(self.life.draining), name="menus:rig")

    async def stop(self) -> None:
        self.life.draining.set()
        await self.life.tasks.close(2.0)
        await self.life.sender.close()
        await self.life.client.close()
        await self.life.http.close()

    async def restart(self) -> None:
        await self.stop()
        await self.mail.reboot()
        await self.start()

    async def _listen(self, life: Life) -> None:
        while True:
            found = await life.client.call(
                "getUpdates", offset=self._offset, timeout=20, allowed_updates=UPDATES,
                timeout_s=30,
            )  # fmt: skip
            for update in found:
                self._offset = update["update_id"] + 1
                for _ in range(1 + self.repeat):
                    await self._handle(life, update)

    async def _handle(self, life: Life, update: dict[str, Any]) -> None:
        press_id = f"update:{self.bot.bot_id}:{update['update_id']}"
        if query := update.get("callback_query"):
            message = query["message"]
            await life.menus.on_press(
                TelegramPress(
                    query["id"], query["data"], press_id, self._place(message),
                    message["chat"]["id"], message["message_id"],
                    query["from"].get("language_code", ""),
                ),
                self.who.get(query["from"]["id"]),
            )  # fmt: skip
        elif reaction := update.get("message_reaction"):
            for each in reaction["new_reaction"]:
                await life.menus.on_reaction(
                    str(reaction["chat"]["id"]), reaction["message_id"], each["emoji"],
                    self.who[reaction["user"]["id"]], press_id,
                )  # fmt: skip
        elif (message := update.get("message")) and "text" in message:
            quoted = message.get("reply_to_message", {}).get("message_id")
            person = self.who[message["from"]["id"]]
            typed = TypedText(
                conversation=self._place(message),
                text=message["text"],
                principal=person,
                press_id=press_id,
                reply_to=None if quoted is None else str(quoted),
                is_private=message["chat"]["id"] > 0,
            )
            said = await life.menus.on_text(typed)
            if said is None:
                self.heard.append(message["text"])
                self._hearing.set()
            elif said:
                self.words.append(said)

    @staticmethod
    def _place(message: dict[str, Any]) -> str:
        return ChatAddress(message["chat"]["id"], message.get("message_thread_id")).conversation

    # -- people ------------------------------------------------------------------------------------

    async def person(
        self, name: str, role: PersonRole | None = PersonRole.USER, language: str = "en"
    ) -> int:
        """Somebody in Telegram; without a role nobody knows them."""
        user = await self.people.user(name, language_code=language)
        if role is not None:
            self.who[user] = Principal(PrincipalKind.PERSON, name.lower(), name, role, language)
        return user

    async def command(self, user: int, text: str, conversation: str = "") -> str:
        """Somebody gives a command; its reply goes out as the receiving part sends it."""
        conversation = conversation or str(user)
        context = CommandContext(
            MAIN_ID,
            "main",
            "telegram",
            conversation,
            self.who[user],
            language=self.who[user].language,
            has_buttons=True,
        )
        reply = await self.life.commands.run(text, context)
        at = self.mail.clock.now_ms()

        def put(tx: Tx) -> None:
            rows = buttons.mint_tx(
                tx, reply.buttons, agent_id=MAIN_ID, conversation=conversation, origin=text,
                at=at, entropy=self.mail.entropy, channel="telegram",
            )  # fmt: skip
            outbox.add_tx(
                tx, agent_id=MAIN_ID, channel="telegram", conversation=conversation,
                kind="notice", body={"text": reply.text, "plain": True, "buttons": rows}, at=at,
            )  # fmt: skip

        await self.mail.db.write(put)
        await self.deliver()
        return reply.text

    async def ask(self, conversation: str, text: str = "Which?", **changes: Any) -> Question:
        """A turn of the agent asks in that conversation, and the question is shown."""
        question = await self.park(conversation, text, **changes)
        await self.deliver()
        return question

    async def park(self, conversation: str, text: str = "Which?", **changes: Any) -> Question:
        to = DeliverTo("chat", agent_id=MAIN_ID, channel="telegram", conversation=conversation)
        accepted = await self.mail.put(
            "go", MAIN_ID, deliver_to=to, session_key=f"chat:telegram:{conversation}"
        )
        leases = {each.message.message_id: each for each in await self.mail.claim(MAIN_ID)}
        lease = leases[accepted.message_id]
        ask = replace(Suspended(b"", text, ("red", "blue")), **changes)
        return await self.mail.db.write(
            lambda tx: self.mail.mailbox.questions.park_tx(tx, lease, ask)
        )

    async def put_part(
        self, conversation: str, kind: str, body: dict[str, Any], *, message_id: str = ""
    ) -> int:
        """One more part in the outbox."""
        return await self.mail.db.write(
            lambda tx: outbox.add_tx(
                tx,
                agent_id=MAIN_ID,
                channel="telegram",
                conversation=conversation,
                kind=kind,
                body=body,
                at=self.mail.clock.now_ms(),
                message_id=message_id,
            )
        )

    async def deliver(self) -> None:
        """Send what waits in the outbox, one message for each part."""
        rows = await self.mail.sql(
            "SELECT outbox_id, conversation, kind, body FROM outbox"
            " WHERE state = 'pending' AND channel = 'telegram' ORDER BY outbox_id"
        )
        for outbox_id, conversation, kind, text in rows:
            body = json.loads(text)
            shown = cards.text_of(kind, body)
            fields = {"text": shown} if cards.is_plain(kind, body) else render(shown)[0].fields()
            chat_id, _, topic = conversation.partition("/")
            markup = outgoing.reply_markup(kind, body, is_private=int(chat_id) > 0)
            sent = await self.people.call(
                self.bot.token, "sendMessage", chat_id=int(chat_id),
                **({"message_thread_id": int(topic)} if topic else {}),
                **({"reply_markup": markup} if markup else {}), **fields,
            )  # fmt: skip
            assert sent["ok"], sent
            ids = json.dumps([str(sent["result"]["message_id"])])
            await self.mail.db.write(
                lambda tx, i=ids, o=outbox_id: (
                    tx.execute(  # type: ignore[misc]  # bound now
                        "UPDATE outbox SET state = 'delivered', platform_ids = ? WHERE outbox_id = ?",
                        (i, o),
                    )
                    and None
                )
            )

    # -- looking -----------------------------------------------------------------------------------

    async def until_heard(self, count: int) -> None:
        """Wait until so many texts were no answers."""
        while len(self.heard) < count:
            self._hearing.clear()
            await self._hearing.wait()

    async def last(self, chat: str) -> dict[str, Any]:
        """The latest message of the bot in a chat, as people see it."""
        found = [r for r in await self.people.messages(chat) if r["by"] == self.bot.bot_id]
        message: dict[str, Any] = found[-1]["message"]
        return message

    async def until_text(
        self, chat: str, part: str, *, has_keyboard: bool | None = None
    ) -> dict[str, Any]:
        """Wait until some message of the bot there says it; the message."""

        def fits(message: dict[str, Any]) -> bool:
            is_so = has_keyboard is None or bool(message.get("reply_markup")) == has_keyboard
            return part in message.get("text", "") and is_so

        record = await self.people.wait_message(chat, fits)
        message: dict[str, Any] = record["message"]
        return message

    async def until_ended(self, count: int) -> None:
        """Wait until it is on record that the ends of so many questions are shown."""
        while await self.mail.sql("SELECT count(*) FROM question_ends") != [(count,)]:
            await asyncio.sleep(0.01)  # no topic tells of it

    async def until_labels(self, chat: str, rows: list[list[str]]) -> None:
        """Wait until the latest message there has these buttons."""
        await self.people.wait_for(
            chat, lambda view: self.labels(view["messages"][-1]["message"]) == rows
        )

    async def press(
        self, chat: str, label: str, user: int, *, message: int = 0, **more: Any
    ) -> dict[str, Any]:
        """Press the button with that label under the latest message (or that one); what the
        person is told."""
        if not message:
            message = (await self.last(chat))["message_id"]
        query = await self.people.press(chat, message, text=label, user=user, **more)
        told: dict[str, Any] = await self.people.pressed(query)
        return told

    async def question(self, question_id: str) -> Question:
        return await self.mail.mailbox.questions.get(question_id)

    def labels(self, message: dict[str, Any]) -> list[list[str]]:
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        return [[button["text"] for button in row] for row in rows]


@asynccontextmanager
async def menu_rig(folder: Path) -> AsyncIterator[TelegramMenuFixture]:
    """A fake, a mailbox and one running life of the bot."""
    async with FakeTelegram(folder / "fake") as fake, TelegramDriver(fake.url) as people:
        mail = await MailboxFixture.open(folder, threads=True)
        rig = TelegramMenuFixture(fake, people, mail)
        await rig.start()
        yield rig
        await rig.stop()
        assert await people.violations() == []
        await mail.check()
        await mail.close()
