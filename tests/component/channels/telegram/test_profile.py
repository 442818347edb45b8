"""The bot's menu of commands: set in every language, and only when it has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from agentsup.catalogue import load
from agentsup.channels.core import TokenRefused
from agentsup.channels.telegram.life import calls_of, publish_profile
from tests.component.channels.telegram.menu_fixture import MAIN_ID, TelegramMenuFixture, menu_rig


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramMenuFixture]:
    async with menu_rig(tmp_path) as rig:
        yield rig


async def publish(
    rig: TelegramMenuFixture,
    *,
    agent_id: str = MAIN_ID,
    description: str = "",
    server: str = "",
    name: str = "",
) -> bool:
    deps: Any = SimpleNamespace(database=rig.mail.db, clock=rig.mail.clock)
    calls = calls_of(rig.life.commands, load(), agent_id, description, name)
    return await publish_profile(deps, rig.life.client, calls, server=server or rig.fake.url)


async def commands_of(rig: TelegramMenuFixture, language: str = "") -> dict[str, str]:
    fields = {"language_code": language} if language else {}
    answer = await rig.people.call(rig.bot.token, "getMyCommands", **fields)
    return {each["command"]: each["description"] for each in answer["result"]}


async def calls(rig: TelegramMenuFixture) -> int:
    counted = (await rig.people.report())["calls"]
    return sum(n for method, n in counted.items() if method.startswith("setMy"))


async def test_people_see_the_commands_in_their_language(rig: TelegramMenuFixture) -> None:
    assert await publish(rig)
    english, german = await commands_of(rig), await commands_of(rig, "de")
    assert english["stop"] == "end the running turn and drop what waits in this chat"
    assert german["help"] == "welche Befehle es gibt"
    assert english.keys() == german.keys()
    assert "agent_stop" in english
    assert "again" not in english


async def test_only_main_offers_the_commands_of_main(rig: TelegramMenuFixture) -> None:
    await publish(rig, agent_id="agt_bob")
    offered = await commands_of(rig)
    assert "stop_all" in offered
    assert "agents" not in offered
    assert "agent_stop" not in offered


async def test_it_is_set_when_it_changes_and_not_otherwise(rig: TelegramMenuFixture) -> None:
    assert await publish(rig)
    once = await calls(rig)
    assert not await publish(rig)
    await rig.restart()
    assert not await publish(rig)
    assert await calls(rig) == once
    assert await publish(rig, description="Knows the garden.")
    assert await calls(rig) > once
    changed = {"description": "Knows the garden.", "server": "http://127.0.0.1:1"}
    assert await publish(rig, **changed), "another server knows nothing yet"
    assert not await publish(rig, **changed)


async def test_a_description_is_shown_and_none_is_left_alone(rig: TelegramMenuFixture) -> None:
    await publish(rig)
    await rig.people.call(rig.bot.token, "setMyDescription", description="by hand")
    await publish(rig, agent_id="agt_bob")
    answer = await rig.people.call(rig.bot.token, "getMyDescription")
    assert answer["result"]["description"] == "by hand"
    await publish(rig, description="Knows the\n garden. " + "x" * 900)
    answer = await rig.people.call(rig.bot.token, "getMyDescription")
    assert answer["result"]["description"].startswith("Knows the garden. xx")
    answer = await rig.people.call(rig.bot.token, "getMyShortDescription")
    assert len(answer["result"]["short_description"]) == 120


async def test_a_nickname_is_the_name_and_none_leaves_it_alone(rig: TelegramMenuFixture) -> None:
    async def name() -> str:
        answer = await rig.people.call(rig.bot.token, "getMyName")
        return str(answer["result"]["name"])

    before = await name()
    await publish(rig)
    assert await name() == before
    await publish(rig, name="Poe the gardener")
    assert await name() == "Poe the gardener"


async def test_trouble_leaves_it_to_the_next_start(rig: TelegramMenuFixture) -> None:
    await rig.people.fault("flood", method="setMyCommands", count=1, retry_after=30)
    assert not await publish(rig)
    assert await publish(rig)


async def test_a_refused_token_is_told(rig: TelegramMenuFixture) -> None:
    await rig.people.revoke(rig.bot.bot_id)
    with pytest.raises(TokenRefused):
        await publish(rig)
    await rig.people.revoke(rig.bot.bot_id, revoked=False)
