"""The circuit breakers of all providers that agents of this daemon use.

After failures in a row a breaker opens; later one attempt probes the provider, then all may ask
again. Times are monotonic seconds. A single message fails at most four times before it is given up,
so it alone opens no breaker that others share (P3). They are in memory only: after a restart every
breaker is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger

_log = get_logger(__name__)


class BreakerState(StrEnum):
    """Closed: all may ask. Open: nobody may ask. Half open: one attempt probes the provider."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """``failures`` in a row open the breaker for ``open_s``; each failed probe doubles that, up to
    ``cap_s``. If a probe has not ended after ``probe_s``, another one is let through."""

    failures: int = 5
    open_s: float = 30.0
    cap_s: float = 300.0
    probe_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one provider. A new one is that after an answer to any attempt."""

    failures: int = 0
    """In a row."""
    opened_at: float | None = None
    open_s: float = 0.0
    probed_at: float | None = None
    """When the running probe began."""

    def state(self, now: float) -> BreakerState:
        """The state at ``now``."""
        if self.opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.opened_at + self.open_s else BreakerState.HALF_OPEN

    def wait_s(self, now: float, policy: BreakerPolicy) -> float:
        """Seconds from ``now`` until the provider may be asked; 0: now."""
        if self.opened_at is None:
            return 0.0
        if self.state(now) is BreakerState.OPEN:
            return self.opened_at + self.open_s - now
        if self.probed_at is None:
            return 0.0
        return max(0.0, min(self.open_s, self.probed_at + policy.probe_s - now))

    def entered(self, now: float) -> Breaker:
        """The breaker after an attempt was let through; if it was half open, that is the probe."""
        is_probe = self.state(now) is BreakerState.HALF_OPEN
        return replace(self, probed_at=now) if is_probe else self

    def failed(self, now: float, policy: BreakerPolicy, *, was_probe: bool) -> Breaker:
        """The breaker after a failure. An attempt that ran while it opened changes nothing."""
        count = self.failures + 1
        if self.opened_at is None:
            if count < policy.failures:
                return replace(self, failures=count)
            return Breaker(count, now, policy.open_s)
        if not was_probe:
            return self
        return Breaker(count, now, min(policy.cap_s, self.open_s * 2))

    def left(self, *, was_probe: bool) -> Breaker:
        """The breaker after an attempt that says nothing about the provider: the next may probe."""
        return replace(self, probed_at=None) if was_probe else self


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
        return known.wait_s(self._clock.monotonic(), self._policy) if known else 0.0

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
            self._known[provider] = before.entered(now)
        visit = BreakerAttempt()
        try:
            yield visit
        finally:
            self._ended(provider, visit.well, was_probe=is_probe)

    def _ended(self, provider: str, well: bool | None, *, was_probe: bool) -> None:
        before = self._known.get(provider, Breaker())
        now = self._clock.monotonic()
        if well:
            after = Breaker()
        elif well is None:
            after = before.left(was_probe=was_probe)
        else:
            after = before.failed(now, self._policy, was_probe=was_probe)
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
        wait_s = known.wait_s(now, self._policy)
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
                "wait_s": round(known.wait_s(now, self._policy), 1),
            }
            for provider, known in sorted(self._known.items())
        ]


def provider_of(engine: str, provider: str, model: str, options: Mapping[str, Any]) -> str:
    """The service that an attempt uses, as a short text without secrets: the engine, and the
    endpoint, provider or program that its spec names."""
    env = options.get("env")
    urls = [options.get("base_url")]
    if isinstance(env, Mapping):
        urls += [value for name, value in sorted(env.items()) if str(name).endswith("_BASE_URL")]
    where = next((_host(str(url)) for url in urls if url), "")
    command = options.get("command")
    if not where and engine in {"acp", "command"} and isinstance(command, list | tuple) and command:
        where = " ".join(str(word) for word in command)[:80]
    prefix, colon, _ = model.partition(":")
    where = where or str(options.get("provider") or provider or (prefix if colon else ""))
    if not where and model.startswith("claude"):
        where = "anthropic"
    return f"{engine} at {where}" if where else engine


def _host(url: str) -> str:
    parts = urlsplit(url)
    return (parts.hostname or url[:80]) + (f":{parts.port}" if parts.port else "")
