"""Files that people sent are removed from agents' inboxes after the days that a setting names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from agentsup.channels.core.files import remove_received
from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool

_log = get_logger(__name__)

_LIMIT_S: Final = 5.0
_DAY_S: Final = 86_400


class ReceivedFiles:
    """Looks through the inboxes of all agents."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        workspace: Callable[[str], Path],
        files: BoundedPool,
        days: Callable[[], int],
    ) -> None:
        """``names`` are those of the agents; ``days`` of 0 keep all files for ever."""
        self._names = names
        self._workspace = workspace
        self._files = files
        self._days = days

    async def purge(self, now_ms: int) -> None:
        """Remove what came more than those days before ``now_ms``; a failure is only logged."""
        days = self._days()
        if not days:
            return
        for name in tuple(self._names()):
            step = partial(
                remove_received, self._workspace(name), before_s=now_ms / 1000 - days * _DAY_S
            )
            try:
                gone = await self._files.run(step, key=name, limit_s=_LIMIT_S)
            except OSError as error:
                _log.warning(
                    "old received files could not be removed", agent=name, reason=str(error)
                )
                continue
            if gone:
                _log.info("removed old received files", agent=name, files=gone, days=days)
