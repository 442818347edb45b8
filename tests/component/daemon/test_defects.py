"""The predecessor's defects, by number: each test would fail on that behaviour.

D7 (who may call) is in tests/component/api/test_gate.py; all of them are tried once more on a real
process in tests/process.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentsup.config import Home
from agentsup.daemon.assembly import children
from agentsup.mailbox.mail import BusRequest
from agentsup.model.errors import EngineFailed, Overloaded
from agentsup.model.principal import OPERATOR
from agentsup.supervision import SupervisedChild
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent, bar_workspace

pytestmark = pytest.mark.virtual

CRASH = {"match": "crash", "steps": [{"crash": "boom"}]}
SLOW = {"match": "slow.*", "steps": [{"sleep": 60}, {"say": "done"}]}


@pytest.mark.parametrize(
    "text",
    ["", "\ufeff[", '[{"name": "ann"}', "[{]", "\x00\x01", '[{"name": "ann", "slots": "x"}]'],
)
async def test_d1_an_unreadable_file_stops_nobody(household: Open, text: str) -> None:
    house = await household(agent("ann"), agent("ben"), agent("cat"))
    before = house.instances()
    assert not await house.save(text)
    await house.clock.sleep(60)
    assert house.instances() == before
    assert (await house.daemon.control.status()).config_error


async def test_d2_the_watcher_outlives_an_error_of_its_callback(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann"))
    calls = []

    async def watch_once(paths: Any, *, on_change: Any, stop: asyncio.Event, **more: Any) -> None:
        del paths, more
        calls.append(house.clock.monotonic())
        await on_change({"agents.json"})
        await stop.wait()

    async def reload() -> bool:
        if len(calls) < 4:
            raise RuntimeError("the callback broke")
        return True

    monkeypatch.setattr(children, "watch", watch_once)
    monkeypatch.setattr(house.daemon.reconciler, "reload", reload)
    watcher = SupervisedChild(
        children.watcher_spec(
            Home(house.home.root), house.daemon.reconciler, _nothing, house.clock
        ),
        clock=house.clock,
        entropy=house.entropy,
        record=house.daemon.board.record,
    )
    reasons: list[str] = []
    house.daemon.board.listen(lambda status: reasons.append(status.reason))
    watcher.start()
    await house.until(lambda: len(calls) == 4)
    await house.clock.sleep(1)
    assert watcher.state == "running"
    assert "callback broke" in "".join(reasons)
    await watcher.stop()


async def _nothing() -> None:
    return


async def test_d3_crashes_count_within_a_window_and_are_shown(household: Open) -> None:
    """Six crashes, each after a long healthy life, are not the end; and each is counted."""
    house = await household(agent("ann", CRASH))
    for number in range(6):
        life = house.unit("ann").child.status.life
        message = await house.said("ann", "crash", conversation=str(number))
        await house.until(lambda life=life: house.unit("ann").child.status.life > life)  # type: ignore[misc]  # bound now
        if number == 0:
            assert (await house.daemon.control.agent("ann")).restarts >= 1
        await house.daemon.mailbox.queue.wait_done(message, 600)
        await house.settled()
        await house.clock.sleep(3600)
    assert house.state("ann") == "running"
    assert (await house.daemon.control.agent("ann")).restarts == 0
    assert len(await house.sql("SELECT 1 FROM endings WHERE kind = 'crashed'")) == 12


async def test_d3_a_crashed_stack_is_closed_before_the_wait(household: Open) -> None:
    house = await household(agent("ann", CRASH, SLOW, slots=2))
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    await house.said("ann", "crash", conversation="two")
    await house.until(lambda: house.state("ann") == "backoff")
    assert house.unit("ann").stack is None
    assert await house.state_of(slow) == "queued"


async def test_d4_a_start_revives_a_dead_agent(household: Open, tmp_path: Path) -> None:
    bar = bar_workspace(tmp_path / "home", "ann")
    house = await household(agent("ann", {"match": "x", "steps": [{"say": "y"}]}))
    await house.until(lambda: house.state("ann") == "failed", within_s=3600)
    view = await house.daemon.control.agent("ann")
    assert (view.status, view.desired) == ("failed", "up")
    bar.unlink()
    assert "ann is running" in (await house.command("main", "/agent_start ann")).text
    assert (await house.ask("ann", "x")).result_text == "y"


async def test_d5_a_stop_outlives_edits_of_others_and_a_restart(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    await house.command("main", "/agent_stop ann")
    assert (await house.command("ben", "/set turn_timeout_s 99")).ok
    await house.save([agent("ann"), agent("ben", provider="x")])
    await house.settled()
    assert house.state("ann") == "stopped"
    await house.restart(kill=True)
    assert house.state("ann") == "stopped"


async def test_d6_many_hands_leave_one_stack(household: Open) -> None:
    house = await household(agent("ann"))
    await house.command("main", "/agent_stop ann")
    made: list[str] = []
    make = house.daemon.fleet.make_stack

    def counted(spec: Any, agent_id: Any, instance_id: Any) -> Any:
        made.append(instance_id)
        return make(spec, agent_id, instance_id)

    house.daemon.fleet.make_stack = counted
    control = house.daemon.control
    await asyncio.gather(
        control.start_agent("ann", OPERATOR),
        house.save([agent("ann", description="edited")]),
        control.start_agent("ann", OPERATOR),
        house.daemon.reconciler.reload(),
    )
    await house.settled()
    assert len(made) == 1
    await control.stop_agent("ann", OPERATOR)
    assert list(house.instances()) == ["main"]
    duplicate = [agent("ann", telegram_token="1:a"), agent("ben", telegram_token="1:a")]
    assert not await house.save(duplicate)
    assert "1:a" not in (await house.daemon.control.status()).config_error


async def test_d8_a_result_outlives_every_way_to_lose_it(household: Open) -> None:
    """A sender that fails on it, that is stopped, that is gone for a while, and a kill."""
    house = await household(
        agent("ann", {"match": "(result.*)", "steps": [{"crash": "can't take it"}]}),
        agent("ben", {"match": "work", "steps": [{"sleep": 30}, {"say": "result of work"}]}),
    )
    sent = [
        await house.daemon.bus.send_async(BusRequest("ben", "work", sender="ann"), caller=OPERATOR)
        for _ in range(3)
    ]
    await house.command("main", "/agent_stop ann")
    await house.clock.sleep(10)
    await house.restart(kill=True)
    for each in sent:
        done = await house.daemon.mailbox.queue.wait_done(each.message_id, 600)
        assert done.result_text == "result of work", "fetched by its id, whatever else happens"
    ann = house.roster.entry("ann").agent_id

    async def replies() -> list[str]:
        return [m.state.value for m in await house.daemon.mailbox.messages.list(agent_id=ann)]

    assert await replies() == ["queued"] * 3
    await house.command("main", "/agent_start ann")
    await house.until(lambda: _are(replies, {"dead"}), within_s=3600)
    assert len(await replies()) == 3, "listed as dead letters, with their text"


async def _are(look: Any, states: set[str]) -> bool:
    return set(await look()) == states


async def test_d9_a_stop_of_many_costs_no_more_than_of_one(household: Open) -> None:
    took = {}
    names = [f"a{n}" for n in range(20)]
    house = await household(
        *(agent(n, {"match": "deaf", "steps": [{"hang": True}]}) for n in names)
    )
    for count in (1, 20):
        for name in names[:count]:
            await house.said(name, "deaf", conversation=f"{count}")
        await house.clock.sleep(1)
        report = await house.daemon.control.stop("all", OPERATOR)
        assert report.running == count
        took[count] = report.elapsed_ms
    assert took[20] <= took[1] + 100
    assert took[20] < 1000


async def test_d10_a_stop_reaches_what_agents_asked_of_agents_and_begins_nothing(
    household: Open,
) -> None:
    ask = {"tool": {"name": "ask_agent_async", "args": {"to": "ben", "message": "slow"}}}
    wait = {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "slow too"}}}
    house = await household(
        agent("ann", {"match": "go", "steps": [ask, wait, {"say": "$result"}]}),
        agent("ben", SLOW),
    )
    for place in ("chat", "group", "room"):
        await house.said("ann", "go", conversation=place)
    await house.clock.sleep(2)
    before = await house.sql("SELECT state, COUNT(*) FROM messages GROUP BY 1")
    open_now = sum(count for state, count in before if state in ("queued", "leased", "parked"))
    report = await house.daemon.control.stop("all", OPERATOR)
    assert report.running + report.queued + report.parked == open_now
    count = len(await house.sql("SELECT 1 FROM messages"))
    await house.clock.sleep(3600)
    assert len(await house.sql("SELECT 1 FROM messages")) == count, "no new turn for a parent"
    assert not await house.sql("SELECT 1 FROM messages WHERE state NOT IN ('cancelled', 'done')")


async def test_d17_pending_work_is_bounded_whoever_sends_it(household: Open) -> None:
    house = await household(agent("ann"), agent("ben", SLOW, queue_limit=5))
    results: list[object] = []
    for number in range(20):
        request = BusRequest("ben", f"slow {number}", sender="ann", chat_id=f"chat{number}")
        sending = house.daemon.bus.send_async(request, caller=OPERATOR)
        results += await asyncio.gather(sending, return_exceptions=True)
    refusals = [each for each in results if isinstance(each, Overloaded)]
    assert len(refusals) == 15
    assert all("ben" in each.message and each.facts["limit"] == 5 for each in refusals)
    await house.daemon.control.stop("all", OPERATOR)


async def test_d18_one_turn_per_session_and_failures_are_failures(household: Open) -> None:
    running = {"match": "slow.*", "steps": [{"sleep": 1}, {"say": "done"}]}
    broken = {"match": "broken", "steps": [{"fail": "no credit"}]}
    house = await household(agent("ann"), agent("ben", running, broken, slots={"peer": 8}))
    most = 0

    async def watch() -> None:
        nonlocal most
        for _ in range(100):
            ((count,),) = await house.sql("SELECT COUNT(*) FROM messages WHERE state = 'leased'")
            most = max(most, count)
            await house.clock.sleep(0.1)

    async def send(number: int) -> str:
        request = BusRequest("ben", f"slow {number}", sender="ann")
        return (await house.daemon.bus.send(request, caller=OPERATOR)).text

    answers, _ = await asyncio.gather(
        asyncio.gather(*(send(number) for number in range(8))), watch()
    )
    assert answers == ["done"] * 8
    assert most == 1
    with pytest.raises(EngineFailed, match="no credit"):
        await house.daemon.bus.send(BusRequest("ben", "broken"), caller=OPERATOR)


async def test_d19_the_second_start_means_what_the_first_meant(household: Open) -> None:
    config = "[agent_defaults]\nprovider = 'common'\n[agent_defaults.streaming]\nmin_chars = 9\n"
    house = await household(agent("ann", streaming={"idle_ms": 500}), config=config)
    first = house.unit("ann").spec
    assert first.provider == "common"
    assert (first.streaming.min_chars, first.streaming.idle_ms) == (9, 500), "merged key by key"
    explained = await house.daemon.control.explain("ann")
    await house.restart()
    await house.restart(kill=True)
    assert house.unit("ann").spec == first
    assert await house.daemon.control.explain("ann") == explained


async def test_d20_a_live_edit_takes_effect_and_keeps_who_it_is(household: Open) -> None:
    house = await household(agent("ann", SLOW), agent("ben"))
    before = house.instances()
    assert await house.save([agent("ann", SLOW, turn_timeout_s=20), agent("ben")])
    message = await house.ask("ann", "slow")
    assert message.outcome == "failed", "the new limit holds for the next turn"
    assert house.instances() == before
    stack = house.unit("ann").stack
    assert stack is not None
    assert stack.engine_spec("t", "").env["AGENTSUP_AGENT"] == "ann"


async def test_d26_a_removed_agent_leaves_nothing_that_works(household: Open) -> None:
    house = await household(agent("ann", SLOW), agent("ben"))
    topics = _listeners(house)
    await house.save([agent("ann", SLOW), agent("ben"), agent("cat", SLOW)])
    await house.settled()
    cat = house.roster.entry("cat").agent_id
    token = house.tokens.issue_run(cat, "cat", "msg_1")
    await house.said("cat", "slow")
    await house.clock.sleep(1)
    await house.save([agent("ann", SLOW), agent("ben")])
    await house.settled()
    assert house.daemon.fleet.get(cat) is None
    assert house.tokens.identify(token) is None
    assert _listeners(house) == topics
    assert "cat" not in json.dumps([v.name for v in await house.daemon.control.agents()])


def _listeners(house: VirtualDaemon) -> int:
    """How many callbacks wait for news of the store."""
    return sum(len(found) for found in house.db._topics._listeners.values())
