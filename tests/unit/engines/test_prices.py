"""What a model costs, with what its provider had in its cache."""

from __future__ import annotations

import pytest

from agentsup.engines import Price, Prices


def test_tokens_of_the_cache_have_their_own_price() -> None:
    price = Price(10.0, 50.0, cache_read=1.0, cache_write=12.5)
    assert price.of(1_000_000, 0) == pytest.approx(10.0)
    assert price.of(1_000_000, 0, cache_read_tokens=1_000_000) == pytest.approx(1.0)
    assert price.of(1_000_000, 0, cache_write_tokens=1_000_000) == pytest.approx(12.5)
    mixed = price.of(1_000_000, 100_000, cache_read_tokens=600_000, cache_write_tokens=200_000)
    assert mixed == pytest.approx(0.6 + 2.5 + 2.0 + 5.0)
    assert Price(10.0, 50.0).of(1_000_000, 0, cache_read_tokens=1_000_000) == pytest.approx(10.0)


async def test_the_table_knows_the_prices_of_the_cache() -> None:
    found = await Prices().of("anthropic", "claude-sonnet-4-5")
    assert found is not None
    assert found.cache_read is not None
    assert found.cache_write is not None
    assert found.cache_read < found.input < found.cache_write
