"""Work in the background is not written into the chat while it is done: its result is one message."""

from __future__ import annotations

import pytest

from agentsup.observe import LiveHub
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

STREAM = {"match": "count", "steps": [{"stream": {"chunks": ["1 ", "2 ", "3"], "every": 1}}]}


async def test_the_text_of_a_task_is_not_streamed_into_its_chat(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    begin = LiveHub.begin

    def noted(hub: LiveHub, agent_id: str, conversation: str, message_id: str) -> None:
        shown.append(conversation)
        begin(hub, agent_id, conversation, message_id)

    monkeypatch.setattr(LiveHub, "begin", noted)
    house = await household(agent("main", STREAM))
    reply = await house.command("main", "/task new count")
    assert reply.ok, reply.text
    await house.until(lambda: any(text.endswith("1 2 3") for text in house.texts()))
    assert shown == [""]
    ((body,),) = await house.sql("SELECT body FROM outbox WHERE body LIKE '%1 2 3%'")
    assert '"of_work"' in body, "the page knows it as a result"
    await house.ask("main", "count")
    assert shown == ["", "console:local"]
