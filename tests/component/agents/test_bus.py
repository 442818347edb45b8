"""The bus over whole agents: who may ask whom, where answers go, and what a crash changes."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.mailbox.mail import BusRequest
from agentsup.model.errors import (
    BadRequest,
    EngineFailed,
    Forbidden,
    LoopDetected,
    NotFound,
    Overloaded,
    TimedOut,
)
from agentsup.model.message import Message
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.component.agents.shared import SAY, rule
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


def ask(to: str, message: str, **more: Any) -> dict[str, Any]:
    return {"tool": {"name": "ask_agent", "args": {"to": to, "message": message, **more}}}


def tell(to: str, message: str, **more: Any) -> dict[str, Any]:
    return {"tool": {"name": "ask_agent_async", "args": {"to": to, "message": message, **more}}}


def principal(house: VirtualDaemon, name: str) -> Principal:
    return Principal(PrincipalKind.AGENT, house.roster.entry(name).agent_id, name)


async def mail_of(house: VirtualDaemon, name: str) -> list[Message]:
    return await house.daemon.mailbox.messages.list(agent_id=house.roster.entry(name).agent_id)


async def test_an_agent_asks_another_and_gets_the_answer(household: Open) -> None:
    house = await household(
        agent("ann", rule("go (.*)", ask("ben", "$1"), {"say": "ben says: $result"})),
        agent("ben", rule("(.*)", {"say": "pong $1"})),
    )
    assert (await house.ask("ann", "go ping")).result_text == "ben says: pong ping"
    (message,) = await mail_of(house, "ben")
    assert message.principal == principal(house, "ann")
    assert message.path == (house.roster.entry("ann").agent_id,)
    # Its person hears of it, once.
    await house.until(lambda: any("ann asks: ping" in text for text in house.texts()))


async def test_a_silent_request_tells_nobody(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", ask("ben", "ping", silent=True), SAY)), agent("ben")
    )
    await house.ask("ann", "go")
    await house.clock.sleep(10)
    assert not any("asks" in text for text in house.texts())


async def test_a_person_joins_the_session_of_two_agents(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", ask("ben", "remember the milk"), SAY)), agent("ben")
    )
    await house.ask("ann", "go")
    (message,) = await mail_of(house, "ben")
    reply = await house.command("ben", "/session ia-ann")
    assert message.session_id in reply.text
    joined = await house.ask("ben", "what was it?")
    assert joined.session_id == message.session_id
    assert "ia-ann" in (await house.command("ben", "/sessions")).text


async def test_the_sender_comes_from_the_token(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    with pytest.raises(Forbidden, match="belongs to ann"):
        await house.daemon.bus.send_async(
            BusRequest("ben", "hi", sender="main"), caller=principal(house, "ann")
        )
    accepted = await house.daemon.bus.send_async(
        BusRequest("ben", "hi", sender="ANN"), caller=principal(house, "ann")
    )
    message = await house.daemon.mailbox.messages.get(accepted.message_id)
    assert message.sender_agent_id == house.roster.entry("ann").agent_id


async def test_the_operator_may_send_in_an_agents_name(household: Open) -> None:
    house = await household(agent("ann"), agent("ben", rule("hi", {"say": "hello ann"})))
    accepted = await house.daemon.bus.send_async(
        BusRequest("ben", "hi", sender="ann"), caller=OPERATOR
    )
    message = await house.daemon.mailbox.messages.get(accepted.message_id)
    assert message.sender_agent_id == house.roster.entry("ann").agent_id
    # The result comes into ann's chat, by way of ann.
    await house.until(lambda: any("hello ann" in text for text in house.texts()))
    with pytest.raises(NotFound):
        await house.daemon.bus.send_async(BusRequest("ben", "x", sender="ghost"), caller=OPERATOR)


async def test_an_agent_sends_nothing_to_itself(household: Open) -> None:
    house = await household(agent("ann", rule("go", ask("ANN", "me"), SAY)))
    message = await house.ask("ann", "go")
    assert "can't send to itself" in message.error_text + message.result_text
    with pytest.raises(LoopDetected):
        await house.daemon.bus.send_async(BusRequest("ann", "me"), caller=principal(house, "ann"))


async def test_a_request_back_along_its_path_is_refused(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", ask("ben", "on"), SAY)),
        agent("ben", rule("on", ask("cat", "back"), SAY)),
        agent("cat", rule("back", ask("ann", "loop"), SAY)),
    )
    message = await house.ask("ann", "go")
    told = message.error_text + message.result_text
    assert "already waiting on this request (ann → ben → cat)" in told


async def test_can_delegate_to_bounds_requests_and_their_results(household: Open) -> None:
    house = await household(agent("ann", can_delegate_to=["ben"]), agent("ben"), agent("cat"))
    ann = principal(house, "ann")
    await house.daemon.bus.send_async(BusRequest("BEN", "x"), caller=ann)
    with pytest.raises(Forbidden, match="can_delegate_to lists ben"):
        await house.daemon.bus.send_async(BusRequest("cat", "x"), caller=ann)
    with pytest.raises(Forbidden):
        await house.daemon.bus.send_async(BusRequest("ben", "x", reply_to="cat"), caller=ann)


async def test_an_async_answer_comes_into_the_conversation_it_was_asked_from(
    household: Open,
) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", tell("ben", "work"), {"say": "asked"}),
            rule("(.*ready)", {"say": "ben is $1"}),
        ),
        agent("ben", rule("work", {"sleep": 60}, {"say": "ready"})),
    )
    first = await house.ask("ann", "go", conversation="phone")
    await house.ask("ann", "something else", conversation="desk")
    await house.until(lambda: "ben is ready" in house.texts("phone"))
    assert "ben is ready" not in house.texts("desk")
    reply = next(m for m in await mail_of(house, "ann") if m.kind == "reply")
    assert reply.session_id == first.session_id


@pytest.mark.parametrize("moment", ["asked", "working"])
async def test_an_async_answer_outlives_kills(household: Open, moment: str) -> None:
    house = await household(
        agent("ann", rule("go", tell("ben", "work"), {"say": "asked"}), rule("(.*ready)", SAY)),
        agent("ben", rule("work", {"sleep": 60}, {"say": "ready"})),
    )
    await house.ask("ann", "go", conversation="phone")
    if moment == "working":
        await house.clock.sleep(30)
    await house.restart(kill=True)
    await house.until(
        lambda: sum(p.kind == "answer" for p in house.channel.sent) >= 2, within_s=300
    )
    replies = [m for m in await mail_of(house, "ann") if m.kind == "reply"]
    assert len(replies) == 1


async def test_an_asking_turn_that_dies_meets_its_own_request_again(household: Open) -> None:
    """The same tool call finds the same message: it is answered at once, and asked only once."""
    house = await household(
        agent("ann", rule("go", ask("ben", "work"), SAY)),
        agent("ben", rule("work", {"effect": "log"}, {"sleep": 20}, {"say": "worked"})),
    )
    message = await house.said("ann", "go")
    await house.clock.sleep(10)
    await house.restart(kill=True)
    done = await house.daemon.mailbox.queue.wait_done(message, 200)
    assert done.result_text == "worked"
    assert len(await mail_of(house, "ben")) == 1
    assert len((house.home.workspace("ben") / "log").read_text().splitlines()) == 1


async def test_an_idempotency_key_gives_the_finished_answer_at_once(household: Open) -> None:
    house = await household(agent("ben", rule("work", {"sleep": 20}, {"say": "worked"})))
    request = BusRequest("ben", "work", idempotency_key="k1")
    first = await house.daemon.bus.send(request, caller=OPERATOR)
    began = house.clock.monotonic()
    again = await house.daemon.bus.send(request, caller=OPERATOR)
    assert again == first
    assert house.clock.monotonic() - began < 1


async def test_a_wait_that_runs_out_becomes_a_reply(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", ask("ben", "work", timeout=5), SAY),
            rule("(.*worked)", {"say": "late: $1"}),
        ),
        agent("ben", rule("work", {"sleep": 60}, {"say": "worked"})),
    )
    message = await house.ask("ann", "go", conversation="phone")
    assert "within 5 s; the message goes on" in message.error_text + message.result_text
    await house.until(lambda: "late: worked" in house.texts("phone"))
    with pytest.raises(TimedOut) as late:
        await house.daemon.bus.send(BusRequest("ben", "work"), caller=OPERATOR, timeout_s=1)
    done = await house.daemon.mailbox.queue.wait_done(late.value.facts["message_id"], 200)
    assert done.result_text == "worked"


@pytest.mark.parametrize("timeout_s", [0, -1, 3601, float("nan")])
async def test_odd_timeouts_are_refused(household: Open, timeout_s: float) -> None:
    house = await household(agent("ben"))
    with pytest.raises(BadRequest, match="timeout"):
        await house.daemon.bus.send(BusRequest("ben", "x"), caller=OPERATOR, timeout_s=timeout_s)
    with pytest.raises(BadRequest, match="empty"):
        await house.daemon.bus.send(BusRequest("ben", "  "), caller=OPERATOR)


async def test_a_result_for_another_agent(household: Open) -> None:
    house = await household(agent("ann"), agent("ben", rule("x", {"say": "for cat"})), agent("cat"))
    await house.daemon.bus.send_async(
        BusRequest("ben", "x", sender="ann", reply_to="cat", chat_id="desk", topic_id="7"),
        caller=OPERATOR,
    )
    await house.until(lambda: any("for cat" in text for text in house.texts("desk:7")))
    assert [m.kind for m in await mail_of(house, "cat")] == ["reply"]
    assert await mail_of(house, "ann") == []


async def test_a_result_for_a_chat_named_by_a_turn(household: Open) -> None:
    """A turn that names a conversation gets the result there, and not where it was asked from."""
    house = await household(agent("ann"), agent("ben", rule("x", {"say": "there"})))
    await house.daemon.bus.send_async(
        BusRequest("ben", "x", chat_id="topic"), caller=principal(house, "ann")
    )
    await house.until(lambda: any("there" in text for text in house.texts("topic")))


async def test_a_failed_engine_is_never_an_answer(household: Open) -> None:
    house = await household(agent("ben", rule("x", {"fail": "no credit left"})))
    with pytest.raises(EngineFailed, match="ben could not answer: no credit left"):
        await house.daemon.bus.send(BusRequest("ben", "x"), caller=OPERATOR)


async def test_a_stopped_request_is_told_as_stopped(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", ask("ben", "work"), SAY)),
        agent("ben", rule("work", {"sleep": 600})),
    )
    message = await house.said("ann", "go")
    await house.clock.sleep(5)
    ben = house.roster.entry("ben").agent_id
    await house.daemon.control.stop(f"agent:{ben}", OPERATOR)
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert "was stopped" in done.error_text + done.result_text


async def test_a_full_queue_refuses_with_name_and_size(household: Open) -> None:
    house = await household(agent("ben", rule("x", {"sleep": 600}), queue_limit=3, enabled=False))
    for _ in range(3):
        await house.daemon.bus.send_async(BusRequest("ben", "x"), caller=OPERATOR)
    with pytest.raises(Overloaded) as full:
        await house.daemon.bus.send_async(BusRequest("ben", "x"), caller=OPERATOR)
    assert full.value.facts["size"] == 3
    assert full.value.facts["limit"] == 3


async def test_a_waiting_turn_gives_its_slot_to_others(household: Open) -> None:
    """The triangle: three chats at once, one peer slot each; all finish or are refused."""
    names = ("ann", "ben", "cat")
    entries = []
    for number, name in enumerate(names):
        following = names[(number + 1) % 3]
        last = names[(number + 2) % 3]
        entries.append(
            agent(
                name,
                rule("start", ask(following, f"then {last}"), SAY),
                rule("then (.*)", ask("$1", "end"), SAY),
                rule("end", {"say": "the end"}),
                slots={"interactive": 1, "peer": 1, "background": 1},
            )
        )
    house = await household(*entries)
    began = house.clock.monotonic()
    ids = [await house.said(name, "start", conversation=name) for name in names]
    for message_id in ids:
        await house.daemon.mailbox.queue.wait_done(message_id, 60)
    assert house.clock.monotonic() - began < 2
    await house.clock.sleep(1)
    for unit in house.daemon.fleet.units():
        assert unit.stack is not None
        free = unit.stack._pump.slots.free()
        assert all(free[lane] == unit.stack._pump.slots._limits[lane] for lane in free)


async def test_no_secret_is_told_to_another_agent_and_kept(household: Open) -> None:
    secret = "sk-known-to-a-program-4711"
    house = await household(
        agent(
            "ann",
            rule("go", ask("ben", f"use {secret}"), tell("ben", f"say {secret}", summary=secret)),
        ),
        agent("ben", rule("(.*)", {"say": "heard"})),
    )
    house.redactor.add(secret)
    await house.ask("ann", "go")
    wanted = BusRequest(to="ben", text=f"by hand {secret}")
    await house.daemon.bus.send(wanted, caller=principal(house, "ann"))

    async def all_came() -> bool:
        return len(await mail_of(house, "ben")) == 3

    await house.until(all_came)
    assert [one.text for one in await mail_of(house, "ben") if "[redacted]" not in one.text] == []
    for table in ("messages", "events", "outbox", "transcript"):
        assert secret not in str(await house.sql(f"SELECT * FROM {table}")), table
