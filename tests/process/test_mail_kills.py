"""A broadcast under ``kill -9``: in the midst of its copies, and before its result is on record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S

pytestmark = pytest.mark.process

TEAM = tuple(f"t{n}" for n in range(5))
RULES: list[dict[str, Any]] = [
    {
        "match": "tell them",
        "steps": [
            {
                "tool": {
                    "name": "mailbox_broadcast",
                    "args": {"team_id": "five", "subject": "News", "body": "at ten"},
                }
            },
            {"say": "$result"},
        ],
    },
    {"match": "News.*", "steps": [{"say": "read"}]},
]
COPIES = "SELECT message_id, agent_id, thread_id FROM messages WHERE kind = 'broadcast'"
EVENTS = "SELECT parts ->> '$[1].data.agent' AS agent FROM messages WHERE kind = 'event'"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", ["mailbox.accept.before_insert:4", "journal.after_effect:1"])
async def test_a_broadcast_that_is_cut_reaches_each_once(
    make_daemon: MakeDaemon, fault: str
) -> None:
    """The first copy is the second row of this daemon: the fourth is the third copy."""
    team = [{"name": name, "team": "five"} for name in TEAM]
    main = {"name": "main", "team": "five", "tools": ["mailbox_*"]}
    watcher = {"name": "watcher", "subscriptions": [f"{name}:finished" for name in TEAM]}
    daemon = make_daemon([main, watcher, *team], RULES)
    await daemon.start(AGENTSUP_FAULT=fault)
    asked = await daemon.send("main", "tell them")
    assert await daemon.ended() != 0
    found = daemon.sql(COPIES)
    assert len(found) == (0 if fault.startswith("mailbox") else 5), "all or nobody"
    await daemon.start(AGENTSUP_FAULT="")
    ended = await daemon.result(asked, BOUND_S)
    assert ended["success"], ended
    copies = daemon.sql(COPIES)
    assert len({copy["agent_id"] for copy in copies}) == len(copies) == 5
    assert len({copy["thread_id"] for copy in copies}) == 1

    for copy in copies:
        assert (await daemon.result(copy["message_id"], BOUND_S))["success"]
    # An event is stored with the end that it tells of.
    told = sorted(row["agent"] for row in daemon.sql(EVENTS))
    assert told == list(TEAM), "one for each that has read it"
