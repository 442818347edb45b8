"""What a turn costs the store: its transactions and reads, one by one.

Each is a commit to the disk or a change of threads, so one more is a decision, not an accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentsup.mailbox.mail import BusRequest
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

OF_THE_DAEMON = {
    *("probe", "probe.read", "mailbox.next_deadline", "relay.heads"),
    *("mailbox.has_work", "recorder.state"),
}
"""What happens beside turns, at its own times: probes, looks
for deadlines, for what is to be delivered and, each minute, for work, and the states of agents."""

RULES = (
    {
        "match": "^note$",
        "steps": [
            {"tool": {"name": "memory_save", "args": {"key": "tea", "content": "green"}}},
            {"say": "noted"},
        ],
    },
    {
        "match": "^ask$",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "hello"}}},
            {"say": "asked"},
        ],
    },
    {"match": ".*", "steps": [{"say": "ok"}]},
)


@contextmanager
def counted(house: VirtualDaemon) -> Iterator[tuple[list[str], list[str]]]:
    """The names of the transactions and of the reads inside the block."""
    writes: list[str] = []
    reads: list[str] = []
    write, read = house.db.write, house.db.read

    async def counting_write(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        if name not in OF_THE_DAEMON:
            writes.append(name)
        return await write(fn, *args, name=name, **more)

    async def counting_read(fn: Any, *args: Any, name: str = "") -> Any:
        if name not in OF_THE_DAEMON:
            reads.append(name)
        return await read(fn, *args, name=name)

    house.db.write, house.db.read = counting_write, counting_read  # type: ignore[method-assign, assignment]  # counts
    try:
        yield writes, reads
    finally:
        house.db.write, house.db.read = write, read  # type: ignore[method-assign]  # counts


async def settled(house: VirtualDaemon) -> None:
    """Let what follows a turn happen, were there anything."""
    await house.clock.sleep(30.0)


def asked(house: VirtualDaemon, text: str) -> Any:
    """One agent asks another, as its tool does."""
    asker = Principal(PrincipalKind.AGENT, house.roster.entry("ann").agent_id, "ann")
    return house.daemon.bus.send(BusRequest(to="ben", text=text, silent=True), caller=asker)


async def test_a_plain_turn_is_three_transactions_and_one_read(household: Open) -> None:
    house = await household(agent("ann", *RULES), agent("ben", *RULES))
    await asked(house, "first")
    await settled(house)
    with counted(house) as (writes, reads):
        assert (await asked(house, "hello")).text == "ok"
        await settled(house)
    assert writes == ["mailbox.accept", "mailbox.claim", "turn.complete"]
    assert reads == ["turn.start"]


async def test_a_call_with_an_effect_adds_its_intent_and_its_result(household: Open) -> None:
    house = await household(agent("ann", *RULES), agent("ben", *RULES))
    await asked(house, "first")
    await settled(house)
    with counted(house) as (writes, reads):
        assert (await asked(house, "note")).text == "noted"
        await settled(house)
    assert writes == [
        *("mailbox.accept", "mailbox.claim"),
        *("journal.begin", "memory.save", "journal.finish"),
        "turn.complete",
    ]
    assert reads == ["turn.start"]


async def test_a_turn_that_asks_costs_two_turns_and_its_call(household: Open) -> None:
    house = await household(agent("ann", *RULES), agent("ben", *RULES))
    turn = ["mailbox.accept", "mailbox.claim", "turn.complete"]
    await house.daemon.bus.send(BusRequest(to="ann", text="first", silent=True), caller=OPERATOR)
    await settled(house)
    with counted(house) as (writes, reads):
        request = BusRequest(to="ann", text="ask", silent=True)
        assert (await house.daemon.bus.send(request, caller=OPERATOR)).text == "asked"
        await settled(house)
    work = [name for name in writes if name != "relay.step"]  # people are told of the request
    assert len(writes) - len(work) == 2, "one commit delivers a text to the console"
    assert sorted(work) == sorted([*turn, *turn, "journal.begin", "journal.finish"])
    assert reads == ["turn.start", "turn.start"]


async def test_of_a_queue_each_turn_after_the_first_is_two_transactions(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await house.daemon.control.stop_agent("ann", OPERATOR)
    for number in range(5):
        request = BusRequest(to="ann", text=f"number {number}", silent=True)
        await house.daemon.bus.send_async(request, caller=OPERATOR)
    with counted(house) as (writes, reads):
        await house.daemon.control.start_agent("ann", OPERATOR)
        await settled(house)
    assert writes.count("turn.complete") == 5
    assert writes.count("mailbox.claim") == 1, "each end claims the next"
    assert reads.count("turn.start") == 5


async def test_an_idle_agent_makes_no_transaction(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await settled(house)
    with counted(house) as (writes, reads):
        await house.clock.sleep(3600.0)
    assert (writes, reads) == ([], [])
