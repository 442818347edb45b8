"""``agentsup memory`` takes one entry that was seen, or what is one's own, never all that a key
names."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.cli.commands import memory
from agentsup.cli.commands.memory import _chosen, _meant
from agentsup.cli.connect.failure import CommandFailed


def test_of_several_entries_the_one_is_named_by_its_id() -> None:
    found = [{"id": "mem_1", "content": "green"}, {"id": "mem_2", "content": "black"}]
    assert _meant(found[:1], None)["id"] == "mem_1"
    assert _meant(found, "mem_2")["content"] == "black"
    with pytest.raises(CommandFailed, match="--id mem_2: black"):
        _meant(found, None)
    with pytest.raises(CommandFailed, match="no memory mem_3"):
        _meant(found, "mem_3")


def test_a_key_is_what_is_ones_own_and_another_persons_entry_is_seen_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = {"updated_at": 5, "scope": "instance", "content": "green", "kind": "fact"}
    annas = {**facts, "id": "mem_1", "person": "anna"}
    mine = {**facts, "id": "mem_2", "person": "operator"}
    found = [annas, mine]

    class Client:
        def get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
            del path, query
            return {"memories": found}

    monkeypatch.setattr(memory, "client_of", lambda ctx: Client())

    def chosen(**more: Any) -> dict[str, Any]:
        named = {"scope": None, "memory_id": None, "updated_at": None, **more}
        return _chosen(None, "ada", "tea", question="Sure?", **named)  # type: ignore[arg-type]  # no context needed

    assert chosen() == {"key": "tea", "scope": None}
    assert chosen(memory_id="mem_1", updated_at=5) == {"id": "mem_1", "updated_at": 5}
    for more in ({"memory_id": "mem_1"}, {"scope": "instance", "memory_id": "mem_1"}):
        with pytest.raises(CommandFailed, match="--id mem_1 --updated-at 5"):
            chosen(**more)
    found.remove(mine)
    with pytest.raises(CommandFailed, match="--id mem_1 --updated-at 5"):
        chosen()
    with pytest.raises(CommandFailed, match="no such memory"):
        chosen(scope="global")
