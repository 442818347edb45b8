"""Notes in Telegram that a message waits, and how they end."""

from __future__ import annotations

import logging
from typing import Final

from agentsup.channels import waiting
from agentsup.channels.telegram.errors import (
    Dropped,
    FateUnknown,
    FloodWait,
    NotModified,
    NotSent,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.place import parse
from agentsup.channels.telegram.sender import SendPriority
from agentsup.channels.telegram.status import Outgoing
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.store.database import Database

__all__ = ["Waiting"]

_log = logging.getLogger(__name__)
_TRY_AGAIN_S: Final = 2.0
_WAIT_MAX_S: Final = 60.0


class Waiting(waiting.Waiting):
    """Watches messages of one bot that have others before them."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        sender: Outgoing,
        clock: Clock,
        entropy: Entropy,
        after_s: float,
    ) -> None:
        """``after_s``: how long a message has to wait before people are told."""
        super().__init__(
            agent_id=agent_id,
            channel=CHANNEL,
            database=database,
            notes=_Notes(sender, clock),
            clock=clock,
            entropy=entropy,
            after_s=after_s,
        )


class _Notes:
    def __init__(self, sender: Outgoing, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock

    async def end_note(self, conversation: str, platform_id: str, text: str) -> bool:
        """Let it say how it ended, without its button; an edit does no harm when repeated."""
        try:
            await self._sender.send(
                parse(conversation).chat_id,
                "editMessageText",
                priority=SendPriority.EDIT,
                message_id=int(platform_id),
                text=text,
            )
        except NotModified:
            return True
        except FloodWait as error:
            await self._clock.sleep(min(error.retry_after_s, _WAIT_MAX_S))
            return False
        except (NotSent, FateUnknown, Dropped, TokenRefused) as error:
            _log.info("a note is not ended yet: %s", error)
            await self._clock.sleep(_TRY_AGAIN_S)
            return False
        except TelegramError as error:
            _log.info("a note can't be ended: %s", error)
        return True
