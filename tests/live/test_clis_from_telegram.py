"""One chat in Telegram with each kind of engine: it asks leave by buttons, whatever dies between.

The model and the Bot API server are on the loopback, the agents are real ones from npm. What an
agent does is counted outside it: each time the command runs, a new file is there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.proctable import members
from tests.live.clis import CLIS, KEY, daemon_of
from tests.support.cli_model_server import CliModel
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

TOKEN = "7201:AAF" + "y" * 27
WAIT_S = 60.0
SHELLS = {
    "llm": "exec",
    "claude": "Bash",
    "claude-acp": "Bash",
    "gemini": "run_shell_command",
    "opencode": "bash",
    "codex": "exec_command",
}
"""What each calls its tool for commands."""
MORE = {
    "opencode": {"description": "makes a file"},
    "codex": {"sandbox_permissions": "require_escalated", "justification": "to make a file"},
}
DENIED = dict.fromkeys(("llm", "claude", "opencode", "codex"), "A person denied this call")
"""What is heard after a denial. The Agent Client Protocol has no place for its text, so the model
reads its agent's own; OpenCode and Codex end their turn without asking it, and we say it then."""


@dataclass
class Fixture:
    """A person, their chat with the bot of ``main``, and the daemon behind it."""

    engine: str
    people: TelegramDriver
    model: CliModel
    daemon: DaemonProcess
    chat: str
    bot: int

    @property
    def effects(self) -> list[Path]:
        return list((self.daemon.home / "agents/main/workspace").glob("effect.*"))

    async def says(self, text: str, answer: str) -> str:
        """Say something and hear what has ``answer`` in it."""
        said = await self.people.say(self.chat, text)
        return await self.hears(answer, after=said)

    async def hears(self, answer: str, *, after: int) -> str:
        def look(view: dict[str, Any]) -> str | None:
            for record in view["messages"]:
                text = str(record["message"].get("text", ""))
                if record["is_bot"] and record["message_id"] > after and answer in text:
                    return text
            return None

        found: str = await self.people.wait_for(self.chat, look, WAIT_S)
        return found

    async def orders(self) -> dict[str, Any]:
        """Order a command and get the card that asks about it, buttons and all."""
        path = self.daemon.home / "agents/main/workspace/effect.XXXXXX"
        args = {"command": f"mktemp {path}", **MORE.get(self.engine, {})}
        if self.engine == "codex":
            args["cmd"] = args.pop("command")
        order = f"USE({SHELLS[self.engine]} {json.dumps(args)})"
        said = await self.people.say(self.chat, order)

        def is_card(message: dict[str, Any]) -> bool:
            return "mktemp" in message.get("text", "") and "reply_markup" in message

        found = await self.people.wait_message(self.chat, is_card, WAIT_S, after=said)
        card: dict[str, Any] = found["message"]
        labels = [each["text"] for each in buttons(card)]
        assert (labels[:2], labels[-2:]) == (
            ["Once", "This run"],
            ["Always, every command …", "Deny"],
        )
        return card

    async def presses(self, card: dict[str, Any], label: str) -> str:
        """Press a button; what the bot answers to the press."""
        data = next(each["callback_data"] for each in buttons(card) if each["text"] == label)
        pressed = await self.people.press(self.chat, card["message_id"], data=data, force=True)
        answer = await self.people.pressed(pressed)
        return str(answer.get("text", ""))

    async def pressed_by_a_stranger(self, card: dict[str, Any]) -> None:
        """A forged press: Eve's, under the card of a chat that is not hers."""
        eve = await self.people.user("Eve")
        await self.people.inject(
            self.bot,
            {
                "callback_query": {
                    "id": "4000000000000999",
                    "from": {"id": eve, "is_bot": False, "first_name": "Eve"},
                    "message": card,
                    "chat_instance": "-1",
                    "data": buttons(card)[0]["callback_data"],
                }
            },
        )

    def questions(self) -> list[str]:
        return [row["state"] for row in self.daemon.sql("SELECT state FROM questions")]

    async def dies(self) -> None:
        """SIGKILL and a new start; nothing of the agent outlives it."""
        groups = [row["pgid"] for row in self.daemon.sql("SELECT pgid FROM processes")]
        self.daemon.kill()
        await self.daemon.ended()
        await self.daemon.start()
        assert not [pid for pgid in groups for pid in members(pgid)]


def buttons(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for row in card["reply_markup"]["inline_keyboard"] for each in row]


def entry(engine: str, model: CliModel) -> dict[str, Any]:
    if engine == "llm":
        reached = {"base_url": f"{model.url}/v1", "api_key": KEY}
        return {"engine": "llm", "model": "m", "engine_options": reached, "tools": ["exec"]}
    cli = CLIS[engine](model)
    options = {"command": cli.command, "env": {**cli.daemon_env, **cli.env}}
    return {"engine": cli.engine, "engine_options": options}


@pytest.fixture
async def town(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fixture]:
    engine: str = request.param
    async with (
        FakeTelegramProcess(tmp_path / "telegram") as fake,
        TelegramDriver(fake.url) as people,
        CliModel() as model,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot)
        main = {
            "name": "main",
            **entry(engine, model),
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
        }
        home = write_home(tmp_path / "home", [main], config="[limits]\ndrain_s = 2\n")
        async with daemon_of(home) as daemon:
            yield Fixture(engine, people, model, daemon, chat, bot)
            assert await people.violations() == []


@pytest.mark.parametrize("town", SHELLS, indirect=True)
async def test_leave_is_given_from_telegram_whatever_dies_between(town: Fixture) -> None:
    await town.says("SAY(hello there friend)", "hello there friend")

    card = await town.orders()
    await town.pressed_by_a_stranger(card)
    assert await town.presses(card, "Deny") == "Answered: Deny"
    await town.hears(DENIED.get(town.engine, "it said"), after=card["message_id"])
    assert town.effects == []
    assert town.questions() == ["answered"]

    card = await town.orders()
    assert await town.presses(card, "Once") == "Answered: Once"
    await town.hears("it said", after=card["message_id"])
    assert len(town.effects) == 1
    assert "answered this" in await town.presses(card, "Once")

    card = await town.orders()
    await town.dies()
    assert await town.presses(card, "Once") == "Answered: Once", "the old button works"
    await town.hears("it said", after=card["message_id"])
    assert len(town.effects) == 2
    assert "answered this" in await town.presses(card, "Deny")

    assert await town.daemon.stop() == 0
    await town.daemon.start()
    await town.says("SAY(still here)", "still here")
    assert "hello there friend" in town.model.last_heard, "what was said before is known"
    assert len(town.effects) == 2
    assert set(town.questions()) == {"answered"}
    assert not town.daemon.sql("SELECT 1 FROM messages WHERE state <> 'done'")
    assert not town.daemon.sql("SELECT 1 FROM processes")
