"""The circuit breakers of all providers that agents of this daemon use.

They are in memory only: after a restart every breaker is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentsup.agents.recovery import breaker
from agentsup.agents.recovery.breaker import Breaker, BreakerPolicy, BreakerState
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger

_log = get_logger(__name__)


@dataclass(slots=True)
class BreakerAttempt:
    """One attempt that the breaker let through. The caller sets ``well`` once."""

    well: bool | None = None
    """True: the provider answered. False: it failed. None: the attempt says nothing about it."""


class Breakers:
    """One breaker for each provider, by the text of ``provider_of``."""

    def __init__(self, clock: Clock, policy: BreakerPolicy | None = None) -> None:
        self._clock = clock
        self._policy = policy or BreakerPolicy()
        self._known: dict[str, Breaker] = {}

    def wait_s(self, provider: str) -> float:
        """Seconds until ``provider`` may be asked; 0: now."""
        known = self._known.get(provider)
        return breaker.wait_s(known, self._clock.monotonic(), self._policy) if known else 0.0

    def waits_s(self) -> dict[str, float]:
        """``wait_s`` of those that may not be asked now."""
        return {name: wait_s for name in self._known if (wait_s := self.wait_s(name)) > 0}

    @contextmanager
    def visit(self, provider: str) -> Iterator[BreakerAttempt]:
        """One attempt, made in the block while ``wait_s`` is 0. Its outcome counts when the block
        ends, however it ends."""
        now = self._clock.monotonic()
        before = self._known.get(provider, Breaker())
        is_probe = before.state(now) is BreakerState.HALF_OPEN
        if is_probe:
            self._known[provider] = breaker.entered(before, now)
        visit = BreakerAttempt()
        try:
            yield visit
        finally:
            self._ended(provider, visit.well, was_probe=is_probe)

    def _ended(self, provider: str, well: bool | None, *, was_probe: bool) -> None:
        before = self._known.get(provider, Breaker())
        now = self._clock.monotonic()
        if well:
            after = breaker.succeeded(before)
        elif well is None:
            after = breaker.left(before, was_probe=was_probe)
        else:
            after = breaker.failed(before, now, self._policy, was_probe=was_probe)
        if after == Breaker():
            self._known.pop(provider, None)
        else:
            self._known[provider] = after
        if (before.opened_at is None) != (after.opened_at is None):
            state = after.state(now).value
            _log.warning("breaker", provider=provider, state=state, failures=after.failures)

    def notes(self, provider: str) -> tuple[str, ...]:
        """A line for people if the breaker of ``provider`` is not closed."""
        known, now = self._known.get(provider), self._clock.monotonic()
        if known is None or known.state(now) is BreakerState.CLOSED:
            return ()
        wait_s = breaker.wait_s(known, now, self._policy)
        then = (
            f"is left alone for {wait_s:.0f} s" if wait_s else "is tried again with the next turn"
        )
        return (f"the provider {provider} failed {known.failures} times in a row and {then}",)

    def documents(self) -> list[dict[str, Any]]:
        """The providers that failed recently, with the states of their breakers."""
        now = self._clock.monotonic()
        return [
            {
                "provider": provider,
                "state": known.state(now).value,
                "failures": known.failures,
                "wait_s": round(breaker.wait_s(known, now, self._policy), 1),
            }
            for provider, known in sorted(self._known.items())
        ]
