"""A model for one chat or topic: chosen, shown, used, kept through edits, dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentsup.daemon.runtime import DaemonEngines
from agentsup.mailbox.messages import chat_models, sessions
from agentsup.model.errors import Conflict, Forbidden
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.agents.test_turn_costs import counted, settled
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
RULES = (
    {
        "match": "refused",
        "steps": [{"trouble": {"code": "model_not_found", "text": "there is no such model"}}],
    },
    {"match": "quiet", "steps": [{"say": "ok"}]},
    {"match": ".*", "steps": [{"usage": {"input": 1, "output": 1}}, {"say": "ok"}]},
)


@pytest.fixture(autouse=True)
def with_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted engine, which takes any model here, stands for a provider."""
    monkeypatch.setattr(DaemonEngines, "refusal", lambda self, spec, field: "")


def ann(**fields: Any) -> Mapping[str, Any]:
    return agent("ann", *RULES, model="plain", **fields)


async def model_of(house: VirtualDaemon, text: str = "hello", conversation: str = "local") -> str:
    """Say something there; the model that answered."""
    await house.ask("ann", text, conversation=conversation)
    return str((await house.sql("SELECT model FROM usage ORDER BY rowid DESC LIMIT 1"))[0][0])


async def test_a_chat_and_a_topic_have_their_own_model(household: Open) -> None:
    house = await household(ann())
    say = house.command
    assert (await say("ann", "/model here big", conversation="room")).ok
    assert (await say("ann", "/model here small", conversation="room/7")).ok
    for conversation, model in (
        ("local", "plain"),
        ("room", "big"),
        ("room/7", "small"),
        ("room/8", "big"),
        ("roomy", "plain"),
    ):
        assert await model_of(house, conversation=conversation) == model
    assert "Here small answers" in (await say("ann", "/model", conversation="room/7")).text
    assert "for the whole chat" in (await say("ann", "/model", conversation="room/8")).text
    assert "Here" not in (await say("ann", "/model")).text
    reply = await say("ann", "/model default", conversation="room/7")
    assert "Here big answers" in reply.text
    assert await model_of(house, conversation="room/7") == "big"
    await say("ann", "/model chat default", conversation="room/7")
    assert await model_of(house, conversation="room/7") == "plain"
    assert "No model was chosen" in (await say("ann", "/model default")).text


async def test_it_costs_no_transaction_and_no_read_more(household: Open) -> None:
    house = await household(ann())
    await house.command("ann", "/model here big")
    await house.ask("ann", "first")
    await settled(house)
    with counted(house) as (writes, reads):
        await house.ask("ann", "quiet")
        await settled(house)
    work = [name for name in writes if name != "relay.step"]
    assert work == ["mailbox.accept", "mailbox.claim", "turn.complete"]
    assert [name for name in reads if name.startswith("turn")] == ["turn.start"]


async def test_an_edit_of_the_agents_model_keeps_the_chats(household: Open) -> None:
    house = await household(ann())
    await house.command("ann", "/model here big")
    assert "keeps big" in (await house.command("ann", "/model other")).text
    assert "One chat keeps" in (await house.command("ann", "/model more", conversation="x")).text
    await house.save([{**ann(), "model": "newer"}])
    assert (await model_of(house), await model_of(house, conversation="x")) == ("big", "newer")
    await house.stop()
    await house.start()
    assert await model_of(house) == "big"


async def test_another_service_does_not_get_the_model_and_the_chat_is_told_once(
    household: Open,
) -> None:
    house = await household(ann())
    await house.command("ann", "/model here big")
    await house.save([{**ann(), "provider": "elsewhere"}])
    assert [await model_of(house), await model_of(house)] == ["plain", "plain"]
    await settled(house)
    told = [text for text in house.texts() if "big was chosen for this chat" in text]
    assert len(told) == 1
    assert "Another service" in (await house.command("ann", "/model")).text
    await house.save([ann()])
    assert await model_of(house) == "big"
    await house.save([{**ann(), "provider": "elsewhere"}])
    await house.command("ann", "/model here big")
    assert await model_of(house) == "big"


async def test_a_model_that_became_unknown_says_which_and_how_back(household: Open) -> None:
    house = await household(ann())
    await house.command("ann", "/model here big")
    await house.ask("ann", "refused")
    said = "It was chosen for this chat"
    await house.until(lambda: any(said in text for text in house.texts()))
    view = await house.daemon.control.agent("ann")
    assert view.engine_problem == "big, chosen for a chat: there is no such model"
    await house.ask("ann", "hello", conversation="other")
    assert (await house.daemon.control.agent("ann")).engine_problem
    await house.command("ann", "/model default")
    assert not (await house.daemon.control.agent("ann")).engine_problem


async def test_only_operators_choose_and_there_is_a_bound(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(ann())
    assert (await house.command("ann", "/model here big", who=EVE)).code == "forbidden"
    choices = house.daemon.control.chat_models
    with pytest.raises(Forbidden):
        await choices.set("ann", "web:eve", "big", EVE)
    monkeypatch.setattr(chat_models, "MOST", 1)
    await choices.set("ann", "web:eve", "big", OPERATOR)
    await choices.set("ann", "web:eve", "bigger", OPERATOR)
    with pytest.raises(Conflict, match="model of their own already"):
        await choices.set("ann", "web:tom", "big", OPERATOR)


async def test_a_group_that_gets_a_new_id_takes_its_models_along(household: Open) -> None:
    house = await household(ann())
    for chat in ("console:-1", "console:-1/7", "console:-11"):
        await house.daemon.control.chat_models.set("ann", chat, "big", OPERATOR)
    agent_id = house.roster.entry("ann").agent_id
    await house.db.write(sessions.move_tx, agent_id, "chat:console:-1", "chat:console:-2")
    found = {each.chat for each in await house.daemon.control.chat_models.of("ann")}
    assert found == {"console:-2", "console:-2/7", "console:-11"}
