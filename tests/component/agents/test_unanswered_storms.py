"""Liveness after storms in which nobody answers a question: kills at random instants under the work of
programs and agents, then quiet; all that was accepted ends within the time that the documents name."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.mail import BusRequest
from agentsup.model.errors import AgentsupError
from agentsup.model.message import NOWHERE, DeliverTo
from agentsup.model.principal import OPERATOR
from agentsup.model.question import UNCERTAIN_WITHIN_S
from agentsup.model.task import NewTask
from tests.component.agents.shared import give_append, hub_of, log_of
from tests.support.simloop import run_virtual
from tests.support.virtual_daemon import VirtualDaemon, agent

STORMS = int(os.environ.get("TEST_STORMS", "2"))
MARGIN_S = 300.0
"""For retries and their pauses after the last question has run out."""


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    give_append(monkeypatch, is_by_call=True, pause_s=0.5)


PEOPLE = ("c0", "c1")
"""Conversations in which somebody writes to ann."""
ENGINE_SAYS_S, APPROVAL_S = 200.0, 600.0
BUSY = ("ann", "ben", "cat")


def agents() -> list[dict[str, Any]]:
    append = {"tool": {"name": "append", "args": {"text": "x"}}}

    def asking(whom: str) -> dict[str, Any]:
        return {"tool": {"name": "ask_agent", "args": {"to": whom, "message": "go"}}}

    def question(**more: Any) -> dict[str, Any]:
        return {"question": {"text": "well?", **more}}

    back = {"tool": {"name": "ask_parent", "args": {"question": "how deep?"}}}
    free = {"permission_mode": "bypassPermissions"}
    go = {"match": "go", "steps": [append, {"say": "$result"}]}
    return [
        agent("ann", go, {"match": "chain", "steps": [asking("ben"), {"say": "$result"}]}, **free),
        agent(
            "ben",
            {"match": "go", "steps": [append, asking("cat"), {"say": "$result"}]},
            **free,
        ),
        agent("cat", go, **free),
        agent("dan", go),  # each of its calls needs an approval
        agent(
            "eve",
            {"match": "bounded", "steps": [question(timeout=ENGINE_SAYS_S), {"say": "$result"}]},
            {"match": "free", "steps": [question(), {"say": "$result"}]},
            {"match": "back", "steps": [back, {"say": "$result"}]},
        ),
    ]


class Storm:
    """One home, what is asked of it, and the kills."""

    def __init__(self, house: VirtualDaemon, seed: int) -> None:
        self.house, self.seed = house, seed
        self.chance = random.Random(seed)
        self.approvals = 0

    async def run(self) -> None:
        for place in PEOPLE:
            await self.house.ask("ann", "hello", conversation=place)
        # Each kind once at least, then as it comes.
        ways = [self._asks, self._program, self._task, self._pending_texts, self._approval]
        for number in range(30):
            way = ways[number] if number < len(ways) else self.chance.choice(ways)
            try:
                await way(f"{self.seed}-{number}")
            except AgentsupError:
                continue  # refused, so not accepted
            await self.house.clock.sleep(self.chance.uniform(0.0, 0.4))
            if self.chance.random() < 0.25:
                await self.house.restart(kill=True)

    async def _send(self, to: str, text: str, key: str, thread: str = "") -> None:
        request = BusRequest(to, text, idempotency_key=key, thread_id=thread)
        await self.house.daemon.bus.send_async(request, caller=OPERATOR)

    async def _program(self, key: str) -> None:
        await self._send(self.chance.choice(BUSY), self.chance.choice(("go", "go", "chain")), key)

    async def _approval(self, key: str) -> None:
        """Two in a thread, of which one waits behind the other."""
        self.approvals += 1
        await self._send("dan", "go", key, f"t{self.approvals // 2}")

    async def _pending_texts(self, key: str) -> None:
        """A person's text in a chat."""
        place = self.chance.choice(PEOPLE)
        await self.house.say("ann", "go", conversation=place, external_id=key)

    async def _asks(self, key: str) -> None:
        """Work that asks freely, in sessions of their own."""
        text = self.chance.choice(("bounded", "free", "back"))
        new = NewTask(text, agent="eve", idempotency_key=key)
        await hub_of(self.house).create(new, caller=OPERATOR)

    async def _task(self, key: str) -> None:
        """A task of the operator's program, whose result goes to a chat of people or nowhere."""
        agent_id = self.house.roster.entry("ann").agent_id
        chat = DeliverTo("chat", agent_id=agent_id, channel="console", conversation="c0")
        to = self.chance.choice((chat, chat, NOWHERE))
        new = NewTask("go", agent="ann", idempotency_key=key, deliver_to=to)
        await hub_of(self.house).create(new, caller=OPERATOR)


ASKED = (
    "SELECT q.kind, q.state, q.text, q.asked_at, q.deadline_at, m.message_id, m.state, m.finished_at,"
    " m.error_code, m.kind = 'chat' AND m.lane = 'interactive' FROM questions q JOIN messages m"
    " USING (message_id)"
)
HELD_UP = (
    "SELECT m.message_id FROM messages m JOIN messages p ON p.session_id = m.session_id"
    " AND p.state = 'parked' JOIN questions q ON q.message_id = p.message_id AND q.state = 'open'"
    " AND q.kind = 'uncertain' WHERE m.state = 'queued'"
    " AND NOT (p.kind = 'chat' AND p.lane = 'interactive') AND NOT EXISTS (SELECT 1 FROM messages h"
    " WHERE h.session_id = m.session_id AND (h.state = 'leased' OR h.state = 'parked'"
    " AND h.kind = 'chat' AND h.lane = 'interactive'))"
)
"""What waits behind nothing but an interrupted call of work that nobody in a chat waits for."""
LATE_MS = 60_000
"""Expired questions are looked for every half a minute here."""


async def judge(house: VirtualDaemon, seed: int) -> Counter[str]:
    """What must hold after hours without an answer; how many questions of each row there were."""
    found: Counter[str] = Counter()
    forever = set()
    for (
        kind,
        state,
        text,
        asked,
        deadline,
        message,
        is_now,
        ended,
        code,
        is_said,
    ) in await house.sql(ASKED):
        about = (seed, kind, state, text, message, is_now, code)
        waits_ms = None if deadline is None else deadline - asked
        if kind == "uncertain":
            row, within_s = ("in a chat", None) if is_said else ("of work", UNCERTAIN_WITHIN_S)
            if not is_said:
                assert (is_now, code) == ("done", "uncertain_call"), about
                assert 0 <= ended - deadline <= LATE_MS, about
        elif kind == "approval":
            row, within_s = "approval", APPROVAL_S
        elif kind == "ask_parent":
            row, within_s = "ask_parent", None
        else:
            is_bounded = deadline is not None
            row, within_s = ("engine says", ENGINE_SAYS_S) if is_bounded else ("free", None)
        assert waits_ms == (None if within_s is None else within_s * 1000), about
        if within_s is None:
            assert (state, is_now) == ("open", "parked"), about
            forever.add(message)
        else:
            assert state == "expired", about
        found[row] += 1
    left = await house.sql(
        "SELECT message_id, state, session_id FROM messages"
        " WHERE state NOT IN ('done', 'dead', 'cancelled')"
    )
    held = {session for message, _, session in left if message in forever}
    for message, state, session in left:
        is_behind = state == "queued" and session in held
        assert message in forever or is_behind, (seed, message, state, "waits for nothing")
    assert await house.sql("SELECT * FROM waits") == []
    return found


async def storm(home: Path, seed: int) -> Counter[str]:
    house = await VirtualDaemon.open(home, agents())
    try:
        await Storm(house, seed).run()
        await house.clock.sleep(120.0)
        assert await house.sql(HELD_UP) == [], (seed, "work of programs holds others up")
        for _ in range(round((2 * UNCERTAIN_WITHIN_S + MARGIN_S) / 30)):
            await house.clock.sleep(30.0)
            await house.daemon.mailbox.deadlines.expire()
        for name in (*BUSY, "dan"):
            made = log_of(house, name)
            assert len(made) == len(set(made)), "a call was repeated unasked"
            assert name != "dan" or not made, "a call without an approval"
        return await judge(house, seed)
    finally:
        await house.stop()


@pytest.mark.timeout(max(60, STORMS * 20))
def test_all_work_ends_though_nobody_answers(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    for seed in range(STORMS):
        found += run_virtual(storm(tmp_path / f"home{seed}", seed))
    rows = {"in a chat", "of work", "approval", "ask_parent", "engine says", "free"}
    assert set(found) == rows, f"a kind of question was never asked: {found}"
