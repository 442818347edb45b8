"""The loop that asks a platform, stores its answer, and only then confirms it by asking on.

A platform may forget what a higher position confirms, so the position moves only after the commit
(P1). Raw updates are not interpreted here, so a malformed one cannot stop the loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from agentsup.channels.core.errors import NotSent, PlatformError, RateLimited, TokenRefused
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.report import ChannelState
from agentsup.kit.backoff import delay_s
from agentsup.kit.log import get_logger
from agentsup.kit.text import as_sentence
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.store import is_over

_log = get_logger(__name__)

_STORE_PAUSE_S: Final = 1.0
_SHOWN_AFTER: Final = 2
"""Failed polls in a row after which the state is shown; a single one is not."""
_SHOWN_WAIT_S: Final = 15.0
"""A failed poll with at least this pause before the next is shown at once."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The consequence of a failed poll: the state to show, the reason, how long to wait."""

    state: ChannelState
    detail: str
    wait_s: float


def decide_retry(
    error: PlatformError,
    failures: int,
    unit: float,
    *,
    unreachable: str,
    plain: tuple[type[PlatformError], ...] = (NotSent,),
) -> RetryDecision:
    """Decide what to do after the ``failures``-th failed poll in a row (from 1).

    ``unit`` is a random number between 0 and 1, for the jitter. ``unreachable`` introduces the
    message of an error that is not one of ``plain``, whose messages say so already.
    """
    if isinstance(error, RateLimited):
        return RetryDecision(ChannelState.RETRYING, error.message, error.retry_after_s)
    wait_s = delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=unit)
    detail = error.message if isinstance(error, plain) else f"{unreachable}: {error.message}"
    return RetryDecision(ChannelState.RETRYING, detail, wait_s)


class Source(ABC):
    """Receives for one bot. ``run`` lasts until it is cancelled."""

    title: ClassVar[str]
    """The platform's name, for people."""

    def __init__(
        self,
        deps: ReceiveDependencies,
        show: Callable[[ChannelState, str, int | None], None],
    ) -> None:
        """``show`` is called for each answered poll (with its time) and for failures."""
        self._deps = deps
        self._show = show
        self._clock = deps.clock
        self._failures = 0
        self._is_notified = False
        self._answered_at = deps.clock.monotonic()

    async def _load_position(self) -> None:
        """Read from the store how far the platform was read.

        Without an override nothing is read: the platform hands over anew what was not confirmed.
        """
        return

    @abstractmethod
    async def _receive(self, is_well: bool) -> Sequence[ReceivedRow]:
        """Ask the platform once, store the answer with the new position, and return its new rows.

        Calls ``_answered``. Waits for something new only if ``is_well``: the first answer comes at
        once, so that the state is known early. Raises a ``PlatformError``, or an error of the store.
        """

    @abstractmethod
    async def _after_failure(self, error: PlatformError) -> RetryDecision:
        """Decide what to do after the ``_failures``-th failed poll in a row."""

    async def run(self, take: Callable[[Sequence[ReceivedRow]], Awaitable[None]]) -> None:
        """Give new rows to ``take``, in order; while it waits, the platform is not asked.

        Raises ``TokenRefused``, and ``StoreUnavailable`` once the store is closed.
        """
        self._answered_at = self._clock.monotonic()
        await self._load_position()
        is_well = False
        while True:
            try:
                await take(await self._receive(is_well))
            except TokenRefused:
                raise
            except PlatformError as error:
                is_well = False
                await self._failed(error)
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    raise
                _log.warning(
                    "updates wait for the store", agent=self._deps.agent_name, why=str(error)
                )
                await self._clock.sleep(_STORE_PAUSE_S)
            else:
                is_well = True

    async def _answered(self) -> None:
        """Note that the platform has answered a poll."""
        self._failures = 0
        self._answered_at = self._clock.monotonic()
        self._show(ChannelState.UP, "", self._clock.now_ms())
        if self._is_notified:
            self._is_notified = False
            await self._say(f"The {self.title} bot of {self._deps.agent_name} hears again.")

    async def _failed(self, error: PlatformError) -> None:
        """Note a failed poll, and wait before the next."""
        self._failures += 1
        decision = await self._after_failure(error)
        is_long = decision.wait_s >= min(_SHOWN_WAIT_S, self._deps.limits.deaf_after_s)
        if self._failures >= _SHOWN_AFTER or is_long or decision.state is ChannelState.CONFLICT:
            self._show(decision.state, decision.detail, None)
        if self._failures in (1, 10, 100, 1000):
            _log.warning(
                "a poll failed",
                agent=self._deps.agent_name,
                failures=self._failures,
                why=error.message,
                next_s=round(decision.wait_s, 1),
            )
        await self._pause(decision)

    async def _pause(self, decision: RetryDecision) -> None:
        """Wait; notify the operator when no poll was answered for ``deaf_after_s``."""
        deaf_after_s = self._deps.limits.deaf_after_s
        until = self._clock.monotonic() + decision.wait_s
        while True:
            silent_s = self._clock.monotonic() - self._answered_at
            left_s = until - self._clock.monotonic()
            if silent_s >= deaf_after_s and not self._is_notified:
                self._is_notified = True
                await self._say(
                    f"The {self.title} bot of {self._deps.agent_name} has heard nothing for "
                    f"{round(silent_s / 60)} minutes. {as_sentence(decision.detail)}"
                )
            elif left_s <= 0:
                return
            else:
                to_notice_s = left_s if self._is_notified else deaf_after_s - silent_s
                await self._clock.sleep(max(0.001, min(left_s, to_notice_s)))

    async def _say(self, text: str) -> None:
        try:
            await self._deps.tell(text)
        except AgentsupError as error:
            agent = self._deps.agent_name
            _log.warning("nobody could be told", agent=agent, text=text, why=str(error))
