"""How modules are loaded fast: nothing that loading makes is garbage, so nobody looks for it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Inside, modules are imported without the cycle collector, which would walk over them again
    and again. What stands at the end stands for good and is never looked at."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
