"""A circuit breaker for one provider. Pure.

After failures in a row it opens; later one attempt probes the provider, then all may ask again.
Times are monotonic seconds. A single message fails at most four times before it is given up, so it
alone opens no breaker that others share (P3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit


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
    """The state of one provider."""

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


def wait_s(breaker: Breaker, now: float, policy: BreakerPolicy) -> float:
    """Seconds from ``now`` until the provider may be asked; 0: now."""
    match breaker.state(now):
        case BreakerState.CLOSED:
            return 0.0
        case BreakerState.OPEN:
            assert breaker.opened_at is not None, "it is open"
            return breaker.opened_at + breaker.open_s - now
        case _:
            if breaker.probed_at is None:
                return 0.0
            return max(0.0, min(breaker.open_s, breaker.probed_at + policy.probe_s - now))


def entered(breaker: Breaker, now: float) -> Breaker:
    """The breaker after an attempt was let through; if it was half open, that is the probe."""
    return (
        replace(breaker, probed_at=now) if breaker.state(now) is BreakerState.HALF_OPEN else breaker
    )


def succeeded(breaker: Breaker) -> Breaker:
    """The breaker after an answer to any attempt."""
    return Breaker()


def failed(breaker: Breaker, now: float, policy: BreakerPolicy, *, was_probe: bool) -> Breaker:
    """The breaker after a failure. An attempt that ran while it opened changes nothing."""
    count = breaker.failures + 1
    if breaker.opened_at is None:
        if count < policy.failures:
            return replace(breaker, failures=count)
        return Breaker(count, now, policy.open_s)
    if not was_probe:
        return breaker
    return Breaker(count, now, min(policy.cap_s, breaker.open_s * 2))


def left(breaker: Breaker, *, was_probe: bool) -> Breaker:
    """The breaker after an attempt that says nothing about the provider: the next may probe."""
    return replace(breaker, probed_at=None) if was_probe else breaker


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
