"""Whoever reads a message of another agent reads who sent it, and under which ids to answer."""

from __future__ import annotations

import pytest

from agentsup.agents.persona.prompt import envelope
from agentsup.model.message import MessageKind, text_parts
from agentsup.model.principal import Principal, PrincipalKind
from tests.unit.agents.test_files_in_prompt import message

BEN = Principal(PrincipalKind.AGENT, "agt_b", "ben")


@pytest.mark.parametrize("kind", [MessageKind.CHAT, MessageKind.BROADCAST, MessageKind.REPLY])
@pytest.mark.parametrize("thread", ["", "bc_7"])
def test_sender_message_and_thread_are_named(kind: MessageKind, thread: str) -> None:
    text = envelope(
        message(
            parts=text_parts("the body"),
            kind=kind,
            sender_agent_id="agt_b",
            principal=BEN,
            message_id="msg_1",
            thread_id=thread,
            root_id="msg_0",
            in_reply_to="msg_before",
        )
    )
    head, body = text.split("\n", 1)
    assert body == "the body"
    assert "ben" in head
    assert "msg_1" in head
    assert f"thread {thread or 'msg_0'}" in head


def test_an_event_says_that_nobody_waits() -> None:
    given = message(
        parts=text_parts("ben failed"),
        kind=MessageKind.EVENT,
        sender_agent_id="agt_b",
        principal=BEN,
        message_id="msg_1",
    )
    assert envelope(given) == "[Event, message msg_1. Nobody waits for an answer.]\nben failed"


def test_a_broadcast_of_the_operator_has_a_head_too() -> None:
    given = message(
        parts=text_parts("all hands"),
        kind=MessageKind.BROADCAST,
        principal=Principal(PrincipalKind.OPERATOR, "operator", "operator"),
        message_id="msg_1",
        thread_id="bc_1",
    )
    assert envelope(given).startswith("[Broadcast, message msg_1 from operator, thread bc_1.")
