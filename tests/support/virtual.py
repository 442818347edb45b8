"""pytest plugin: ``@pytest.mark.virtual`` runs an async test in virtual time; fixture ``virtual``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from tests.support.simloop import VirtualLoop, run_virtual


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give marked tests, and the async fixtures they use, a ``VirtualLoop``; others the stock loop."""
    if item.get_closest_marker("virtual") is None:
        return {"stock": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}


@pytest.fixture
def virtual() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """``run_virtual``, for plain tests that drive one coroutine in virtual time."""
    return run_virtual
