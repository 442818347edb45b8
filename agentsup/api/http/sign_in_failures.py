"""Failed sign-ins to the web page, counted by address and in all, so that nobody can try many."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agentsup.kit.backoff import SlidingWindow
from agentsup.kit.clock import Clock
from agentsup.model.errors import AgentsupError, Overloaded, Unauthorised


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Bounds on failed sign-ins."""

    of_address: int = 10
    """Of one address within ``span_s`` seconds; further ones must wait."""
    in_all: int = 100
    span_s: float = 60.0
    addresses: int = 1000
    """Addresses that are counted separately; those that failed longest ago are dropped."""


class LoginFailed(Unauthorised):
    """The code or token is not valid. One message for every reason, so a guess learns nothing."""

    code = "login_failed"


class SignInFailures:
    """The failed sign-ins of one daemon."""

    def __init__(self, limits: FailureLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._all = SlidingWindow(limits.span_s)
        self._by_address: OrderedDict[str, SlidingWindow] = OrderedDict()

    def refusal(self, address: str, why: str) -> AgentsupError:
        """Count a failed sign-in and return the refusal for it."""
        limits, now = self._limits, self._clock.monotonic()
        of_one = self._by_address.pop(address, None) or SlidingWindow(
            limits.span_s, max_entries=limits.of_address + 1
        )
        self._by_address[address] = of_one
        if len(self._by_address) > limits.addresses:
            self._by_address.popitem(last=False)
        of_one.add(now)
        self._all.add(now)
        count, limit = of_one.count(now), limits.of_address
        if count <= limit:
            count, limit = self._all.count(now), limits.in_all
        if count <= limit:
            return LoginFailed(why)
        return Overloaded(
            f"{limit} sign-ins failed within {limits.span_s:g} s; wait a minute, or get a link "
            "with `agentsup link`",
            queue="web.login",
            size=count,
            limit=limit,
            retry_after_s=limits.span_s,
        )
