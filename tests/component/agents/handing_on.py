"""Agents that hand work on, for the tests of delegation."""

from __future__ import annotations

import json
from typing import Any

from agentsup.model.message import Message
from tests.support.virtual_daemon import VirtualDaemon

Rule = dict[str, Any]


def say(match: str, text: str, *, after_s: float = 0.0) -> Rule:
    """Answers what fits ``match``, after a while."""
    steps: list[dict[str, Any]] = [{"sleep": after_s}] if after_s else []
    return {"match": match, "steps": [*steps, {"say": text}]}


def call(match: str, name: str, **args: Any) -> Rule:
    """Calls a tool on what fits ``match``, and answers with its result."""
    return {"match": match, "steps": [{"tool": {"name": name, "args": args}}, {"say": "$result"}]}


async def said(house: VirtualDaemon, name: str, text: str) -> str:
    """What an agent answers a person."""
    message: Message = await house.ask(name, text)
    return message.result_text


async def document(house: VirtualDaemon, name: str, text: str) -> Any:
    """The same, as the JSON that it is."""
    return json.loads(await said(house, name, text))


async def runs(house: VirtualDaemon) -> list[tuple[Any, ...]]:
    """Kind, depth and the name of the mailbox's agent of each run, in order."""
    return await house.sql(
        "SELECT r.kind, r.depth, a.name FROM runs r JOIN agents a USING (agent_id)"
        " JOIN messages m ON m.message_id = r.run_id ORDER BY m.seq"
    )
