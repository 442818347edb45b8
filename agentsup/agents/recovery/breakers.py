"""The breakers of all providers that agents of this daemon use. Kept in memory: after a restart each
provider is asked anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentsup.agents.recovery import breaker
from agentsup.agents.recovery.breaker import Breaker, BreakerPolicy, State
from agentsup.kit.clock import Clock
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)


@dataclass(slots=True)
class Visit:
    """One attempt that was let through; say how it went, once."""

    well: bool | None = None
    """True: the provider answered; False: it is sick; None: this tells nothing about it."""


class Breakers:
    """One for each provider, by the text that names it."""

    def __init__(self, clock: Clock, policy: BreakerPolicy | None = None) -> None:
        self._clock = clock
        self._policy = policy or BreakerPolicy()
        self._known: dict[str, Breaker] = {}

    def wait_s(self, provider: str) -> float:
        """How long ``provider`` is left alone from now on; 0: it is asked."""
        known = self._known.get(provider)
        return breaker.wait_s(known, self._clock.monotonic(), self._policy) if known else 0.0

    @contextmanager
    def visit(self, provider: str) -> Iterator[Visit]:
        """An attempt, with ``wait_s`` 0; its outcome counts when the block ends, however it ends."""
        now = self._clock.monotonic()
        before = self._known.get(provider, Breaker())
        is_probe = before.state(now) is State.HALF_OPEN
        if is_probe:
            self._known[provider] = breaker.entered(before, now)
        visit = Visit()
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
        """A line for people where ``provider`` is left alone."""
        known, now = self._known.get(provider), self._clock.monotonic()
        if known is None or known.state(now) is State.CLOSED:
            return ()
        wait_s = breaker.wait_s(known, now, self._policy)
        then = (
            f"is left alone for {wait_s:.0f} s" if wait_s else "is tried again with the next turn"
        )
        return (f"the provider {provider} failed {known.failures} times in a row and {then}",)

    def documents(self) -> list[dict[str, Any]]:
        """Providers that failed of late, for people and programs."""
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
