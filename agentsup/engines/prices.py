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
    """US dollars for a million tokens, in and out."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of so many tokens, in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


class Prices:
    """Finds the price of a model, and caches it."""

    def __init__(self, own: Callable[[], Mapping[str, Price]] = dict) -> None:
        """``own`` returns the prices of the settings by the model's name; they come first."""
        self._own = own
        self._known: dict[tuple[str, str], Price | None] = {}

    async def of(self, provider: str, model: str) -> Price | None:
        """Return the price of a model, without discounts for caching; None if it is not known."""
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

    def usd(tokens_in: int, tokens_out: int) -> float:
        used = library.Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        price = library.calc_price(used, model_ref=model, provider_id=provider or None)
        return float(price.total_price)

    try:
        # Prices of some models rise with the length of a request; this is an ordinary one.
        in_, out = usd(1000, 0), usd(0, 1000)
    except (LookupError, ValueError):
        return None
    return Price(in_ * 1000, out * 1000)
