"""Arguments that are no UTF-8, as a shell may pass them, become question marks and no traceback."""

from __future__ import annotations

import os

from agentsup.cli.connect.client import segment
from agentsup.cli.output.reads import path_of

RAW = os.fsdecode(b"a\xff")


def test_a_name_that_is_no_text_still_makes_a_path() -> None:
    assert segment(RAW) == "a%3F"
    assert segment("a/../b\0") == "a%2F..%2Fb%00"


def test_a_plain_read_of_such_a_name() -> None:
    assert path_of(["agents", "show", RAW]) == "/agents/a%3F"
