"""Durable events as documents; for the page, the Markdown texts of agents come as blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from agentsup.api.documents.blocks import Blocks
from agentsup.api.documents.document import Document
from agentsup.mailbox.messages import worded
from agentsup.model.event import Event, EventType


class EventDocument(Document):
    seq: int
    at: int
    type: str
    agent_id: str
    session_id: str
    message_id: str
    conversation: str
    data: dict[str, Any]
    agent: str | None = Field(None, description="name of the agent, in `/events`")


async def shown(
    events: Iterable[Event], blocks_of: Blocks, language: str = ""
) -> list[EventDocument]:
    """The documents of a conversation's events. Markdown texts of an agent come as blocks, the
    answer of a closed question in the words of ``language``."""
    found = [*events]
    texts = [(event.agent_id or "", _markdown(event)) for event in found]
    made = []
    for event, blocks in zip(found, await blocks_of.all(texts), strict=True):
        data = event.data
        if blocks:
            data = {**data, "blocks": blocks}
        elif event.type == EventType.QUESTION_CLOSED:
            kind, answer = str(data.get("kind")), str(data.get("answer") or "")
            data = {**data, "answer": worded(kind, answer, language)}
        made.append(EventDocument.from_value(event, data=data))
    return made


def _markdown(event: Event) -> str:
    """The text to parse, or empty: notices hold ids and columns that Markdown would break."""
    data = event.data
    is_said = event.type == EventType.CHAT_OUT and data.get("kind") in ("answer", "question")
    return str(data.get("text") or "") if is_said and not data.get("plain") else ""
