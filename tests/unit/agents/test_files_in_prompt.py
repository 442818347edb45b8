"""A person's files are named to the model with their place in the workspace."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from agentsup.agents.persona.prompt import envelope
from agentsup.model.message import Message, MessageKind, Part, text_parts
from agentsup.model.principal import Principal, PrincipalKind


def message(**values: Any) -> Message:
    given = {
        "kind": MessageKind.CHAT,
        "sender_agent_id": "",
        "principal": Principal(PrincipalKind.PERSON, "ann"),
        **values,
    }
    return Message(**{each.name: given.get(each.name, "") for each in fields(Message)})


def test_files_follow_the_text() -> None:
    file = Part("file", path="inbox/a.pdf", name="a\n b.pdf")
    assert envelope(message(parts=(*text_parts("look"), file))) == (
        "look\n[file: inbox/a.pdf (a b.pdf)]"
    )
    assert envelope(message(parts=(file,))) == "[file: inbox/a.pdf (a b.pdf)]"
    assert envelope(message(parts=text_parts("hi"))) == "hi"


def test_files_of_other_agents_lie_elsewhere_and_are_not_named() -> None:
    file = Part("file", path="a.pdf", name="a.pdf")
    text = envelope(
        message(parts=(*text_parts("done"), file), kind=MessageKind.REPLY, in_reply_to="m")
    )
    assert "a.pdf" not in text
