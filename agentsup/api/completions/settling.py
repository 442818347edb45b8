"""Until there is something to tell a client: its message has ended, or it asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentsup.api.completions.accept import open_question
from agentsup.api.ports import ApiDeps
from agentsup.mailbox.rows import need_message
from agentsup.model.errors import TimedOut
from agentsup.model.message import TERMINAL, Message
from agentsup.model.question import Question
from agentsup.store.database import Reader


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a message stands: ended, or waiting for the answer of `question`."""

    message: Message
    question: Question | None = None


async def settled(deps: ApiDeps, message_id: str, timeout_s: float | None) -> Settled:
    """Wait until the message has ended or asks. Raises `NotFound` and `TimedOut`."""
    database, clock = deps.web.database, deps.clock
    changed = asyncio.Event()

    def look(reader: Reader) -> Settled:
        message = need_message(reader, message_id)
        return Settled(message, open_question(reader, message, clock.now_ms()))

    unlisten = database.listen(f"done:{message_id}", changed.set)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed.clear()
                now = await database.read(look, name="completions.settled")
                if now.message.state in TERMINAL or now.question is not None:
                    return now
                await changed.wait()
    except TimeoutError:
        raise TimedOut(
            f"message {message_id} has not ended within {timeout_s:g} s; it goes on",
            message_id=message_id,
        ) from None
    finally:
        unlisten()
