"""How long a test waits for what comes at once on a machine that is not stalled.

It guards against waiting for ever and proves nothing by itself, so a slow machine only makes tests
slower. Where a time is what is proved, the test has its own number.
"""

from __future__ import annotations

from typing import Final

BOUND_S: Final = 50.0
"""Below the time that a test has (``timeout`` in pyproject.toml), so that what is missing is told."""
