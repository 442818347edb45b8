"""The way in for people: once, checked, and never a command by accident."""

from __future__ import annotations

import pytest

from agentsup.model.errors import BadRequest, Gone, NotFound
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual


async def test_a_text_said_twice_is_one_message(household: Open) -> None:
    house = await household(agent("ann"))
    first = await house.said("ann", "hello", external_id="x1")
    assert await house.said("ann", "hello", external_id="x1") == first
    assert await house.said("ann", "hello", external_id="x1", conversation="two") != first
    assert len(await house.daemon.mailbox.messages.list()) == 2


async def test_bad_input_is_refused_and_leaves_nothing(household: Open) -> None:
    house = await household(agent("ann"))
    with pytest.raises(BadRequest, match="empty"):
        await house.say("ann", " \n ")
    with pytest.raises(BadRequest, match="KiB"):
        await house.say("ann", "x" * 300_000)
    with pytest.raises(NotFound):
        await house.say("nobody", "hello")
    await house.save([])
    await house.settled()
    with pytest.raises(Gone, match="removed"):
        await house.say("ann", "hello")
    assert await house.daemon.mailbox.messages.list() == []


async def test_history_is_what_was_said_and_delivered(household: Open) -> None:
    house = await household(agent("ann"))
    await house.ask("ann", "hello")
    await house.channel.wait_sent(1)
    await house.clock.sleep(1)
    events = await house.daemon.inbox.history("ann", "console", "local")
    assert [(e.type, e.data["text"][:5]) for e in events] == [
        ("chat.in", "hello"),
        ("chat.out", "I ans"),
    ]
