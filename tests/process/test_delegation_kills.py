"""A fan-out killed at every instant that matters (P1, P2): the call made again meets its own runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon

pytestmark = pytest.mark.process

TEAM = ("ben", "cat", "dan")
CALL = {"name": "dispatch_team", "args": {"team": "red", "prompt": "your part"}}
RULES: list[dict[str, Any]] = [
    {"match": "go", "steps": [{"sleep": 0.3}, {"tool": CALL}, {"say": "$result"}]},
    {"match": "your part", "steps": [{"sleep": 0.5}, {"say": "done"}]},
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "fault",
    [
        "journal.after_intent:1",
        "run.before_start:2",
        "run.after_start:3",
        "turn.complete.before_commit:2",
        "turn.completed:3",
        "journal.after_effect:1",
    ],
)
async def test_a_fan_out_is_finished_once_wherever_it_is_killed(
    make_daemon: MakeDaemon, fault: str
) -> None:
    main = {"name": "main", "tools": ["dispatch_team"]}
    daemon = make_daemon([main, *({"name": name, "team": "red"} for name in TEAM)], RULES)
    await daemon.start(AGENTSUP_FAULT=fault)
    asked = await daemon.send("main", "go")
    assert await daemon.ended() != 0
    await daemon.start(AGENTSUP_FAULT="")
    ended = await daemon.result(asked, 40.0)
    assert ended["success"], ended
    found = json.loads(ended["text"])
    assert {name: found[name].get("text") for name in TEAM} == dict.fromkeys(TEAM, "done")
    assert len(daemon.sql("SELECT run_id FROM runs")) == len(TEAM)
    assert daemon.sql("SELECT 1 FROM messages WHERE kind = 'reply'") == []
    assert {row["state"] for row in daemon.sql("SELECT state FROM messages")} == {"done"}
