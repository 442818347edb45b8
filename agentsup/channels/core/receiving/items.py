"""Handles the received rows of one bot one by one, and writes how each ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentsup.channels.core.receiving.messages import AnyEventT, ReceivedItem
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.kit.log import get_logger
from agentsup.model.errors import AgentsupError

_log = get_logger(__name__)

_NOTIFIED_MAX = 1000


def read_item(
    row: ReceivedRow, read: Callable[[ReceivedRow, str], AnyEventT]
) -> ReceivedItem[AnyEventT]:
    """Return the row as read; whatever one row holds, the next ones must be read."""
    try:
        return ReceivedItem(row, read(row, row.raw))
    except ValueError as error:  # malformed
        return ReceivedItem(row, None, str(error))
    except Exception as error:  # noqa: BLE001
        # supervision boundary: as said above
        return ReceivedItem(row, None, f"{type(error).__name__}: {error}")


class OperatorNotices:
    """Notices about a bot for the operator, in the log or in main's chat."""

    def __init__(self, agent_name: str, tell: Callable[[str], Awaitable[None]]) -> None:
        self._agent_name = agent_name
        self._tell = tell
        self._notified: set[tuple[str, object]] = set()

    def is_first(self, subject: tuple[str, object]) -> bool:
        """Whether this is the first call for ``subject`` in this life of the bot.

        False for every new one once there are very many.
        """
        if subject in self._notified or len(self._notified) >= _NOTIFIED_MAX:
            return False
        self._notified.add(subject)
        return True

    def warn_once(self, subject: tuple[str, object], text: str) -> None:
        """Log ``text``, if it is not empty and was not logged for ``subject`` before."""
        if text and self.is_first(subject):
            _log.warning(text, agent=self._agent_name)

    async def tell(self, text: str) -> None:
        """Log ``text`` and send it to the operator. A failure to send is only logged."""
        _log.warning(text, agent=self._agent_name)
        try:
            await self._tell(text)
        except AgentsupError as error:
            _log.warning("nobody could be told", agent=self._agent_name, why=str(error))

    async def tell_once(self, subject: tuple[str, object], text: str) -> None:
        """``tell``, unless it was done for ``subject`` before."""
        if self.is_first(subject):
            await self.tell(text)
