"""Waits until the message of a completion has ended or asks a question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentsup.api.completions.accept import open_question
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.mailbox.messages import need_message
from agentsup.model.errors import TimedOut
from agentsup.model.message import TERMINAL, Message
from agentsup.model.question import Question
from agentsup.store import Reader


@dataclass(frozen=True, slots=True)
class Settled:
    """A message that has ended, or that waits for the answer to ``question``."""

    message: Message
    question: Question | None = None


async def settled(deps: ApiDependencies, message_id: str, timeout_s: float | None) -> Settled:
    """Wait until the message has ended or asks. Raises ``NotFound``, and ``TimedOut`` after
    ``timeout_s`` seconds (None: no limit).

    The message as it ended comes from the commit that ended it.
    """
    database, clock = deps.database, deps.clock
    changed = asyncio.Event()

    def look(reader: Reader) -> Settled:
        message = need_message(reader, message_id)
        return Settled(message, open_question(reader, message, clock.now_ms()))

    topic = f"done:{message_id}"
    unlisten, end = database.listen(topic, changed.set), database.expect(topic)
    try:
        async with asyncio.timeout(timeout_s):
            while not end.done():
                changed.clear()
                now = await database.read(look, name="completions.settled")
                if now.message.state in TERMINAL or now.question is not None:
                    return now
                await changed.wait()
            return Settled(end.result())
    except TimeoutError:
        raise TimedOut(
            f"message {message_id} has not ended within {timeout_s:g} s; it goes on",
            message_id=message_id,
        ) from None
    finally:
        unlisten()
        end.cancel()
