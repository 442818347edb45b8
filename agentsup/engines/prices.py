"""The prices of models: settings first, then the table of the library ``genai-prices``.

The library comes with the extras of language models. It is loaded in a thread at the first lookup,
and nothing is fetched from a network: its table is as old as its installation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

_KNOWN_MOST = 1000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens, in and out.

    Those of the provider's cache cost as much as other input where no price of their own is known.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def of(
        self,
        input_tokens: int,
        output_tokens: int,
        *,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
    ) -> float:
        """Return the price of so many tokens, in US dollars. Those of the cache are among the
        input tokens."""
        usd = input_tokens * self.input + output_tokens * self.output
        for tokens, price in (
            (cache_read_tokens, self.cache_read),
            (cache_write_tokens, self.cache_write),
        ):
            if price is not None:
                usd += min(tokens, input_tokens) * (price - self.input)
        return max(0.0, usd) / 1_000_000


class Prices:
    """Finds the price of a model, and caches it."""

    def __init__(self, own: Callable[[], Mapping[str, Price]] = dict) -> None:
        """``own`` returns the prices of the settings by the model's name; they come first."""
        self._own = own
        self._known: dict[tuple[str, str], Price | None] = {}

    async def of(self, provider: str, model: str) -> Price | None:
        """Return the price of a model; None if it is not known."""
        if not model:
            return None
        prefix, colon, rest = model.partition(":")
        own = self._own()
        found = own.get(model) or own.get(rest)
        if found is not None:
            return found
        if colon and not provider:
            provider, model = prefix, rest
        key = (provider, model)
        if key not in self._known:
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            self._known[key] = await asyncio.to_thread(_look_up, provider, model)
        return self._known[key]


def _look_up(provider: str, model: str) -> Price | None:
    try:
        library: Any = import_module("genai_prices")
    except ImportError:
        return None

    def usd(tokens_in: int, tokens_out: int, **cached: int) -> float:
        used = library.Usage(input_tokens=tokens_in, output_tokens=tokens_out, **cached)
        price = library.calc_price(used, model_ref=model, provider_id=provider or None)
        return float(price.total_price)

    try:
        # Prices of some models rise with the length of a request; this is an ordinary one.
        in_, out = usd(1000, 0), usd(0, 1000)
        read = usd(1000, 0, cache_read_tokens=1000)
        write = usd(1000, 0, cache_write_tokens=1000)
    except (LookupError, ValueError):
        return None
    return Price(in_ * 1000, out * 1000, read * 1000, write * 1000)
