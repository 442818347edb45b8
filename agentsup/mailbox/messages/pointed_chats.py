"""Returning a chat to its own session when the operator who pointed it elsewhere is none any more.

An operator may point a chat at another chat's session. Without that role they must not go on
reading and writing there: the first message or command after the change returns the chat to its own
session, with a notice (P7).
"""

from __future__ import annotations

from agentsup.mailbox.messages import sessions
from agentsup.mailbox.messages.current_rights import is_operators
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.store import Database, Reader, Tx


def return_tx(ctx: MailboxContext, tx: Tx, agent_id: str, key: str, pointed_by: str | None) -> bool:
    """Point ``key`` at its own session again if it has another's; whether that was changed.

    ``pointed_by`` (``QueuePosition.pointed_by``) is who pointed it there; if they are an operator
    still, nothing is changed.
    """
    if pointed_by is None or is_operators(pointed_by, ctx.role_now):
        return False
    sessions.return_tx(tx, agent_id, key, at=ctx.clock.now_ms(), entropy=ctx.entropy)
    return True


async def keep_own(database: Database, ctx: MailboxContext, agent_id: str, key: str) -> bool:
    """As ``return_tx``, for a command, before it uses the session."""

    def pointed_by(reader: Reader) -> str | None:
        return sessions.pointed_by(reader, agent_id, key)

    by = await database.read(pointed_by, name="pointing.look")
    if by is None or is_operators(by, ctx.role_now):
        return False
    return await database.write(
        lambda tx: return_tx(ctx, tx, agent_id, key, pointed_by(tx)), name="pointing.return"
    )
