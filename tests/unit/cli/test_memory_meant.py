"""`agentsup memory share` takes one entry, never all that a key names."""

from __future__ import annotations

import pytest

from agentsup.cli.failure import Failed
from agentsup.cli.memory import _meant


def test_of_several_entries_the_one_is_named_by_its_id() -> None:
    found = [{"id": "mem_1", "content": "green"}, {"id": "mem_2", "content": "black"}]
    assert _meant(found[:1], None)["id"] == "mem_1"
    assert _meant(found, "mem_2")["content"] == "black"
    with pytest.raises(Failed, match="--id mem_2: black"):
        _meant(found, None)
    with pytest.raises(Failed, match="no memory mem_3"):
        _meant(found, "mem_3")
