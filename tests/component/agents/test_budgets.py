"""Budgets in the whole daemon: warned, refused, free again; jointly, across kills, and in /cost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from agentsup.agents.budget import spending
from agentsup.api.http.problems import encode
from agentsup.api.routes import cost
from agentsup.channels.core.receiving import ChatOrigin
from agentsup.mailbox.usage.budget import ScopeKind, ledger
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineHost,
    EngineSpec,
    Segment,
    TextDelta,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import Forbidden
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.component.agents.shared import PlayedEngine, played, replace_engine
from tests.component.conftest import Open
from tests.component.proofs.house import ProofDaemon
from tests.component.proofs.house import agent as entry
from tests.support.loop_clock import LoopClock
from tests.support.virtual_daemon import OPERATOR_TOKEN, VirtualDaemon, agent

pytestmark = pytest.mark.virtual

UTC_DAY_S = 86_400
PERSON = Principal(PrincipalKind.PERSON, "uma", "Uma", PersonRole.USER, language="de")


def costs(usd: float | None, tokens: int = 100, *more: dict[str, Any]) -> dict[str, Any]:
    used: dict[str, Any] = {"input": tokens, "output": 0}
    if usd is not None:
        used["usd"] = usd
    return {"match": "(.*)", "steps": [*more, {"usage": used}, {"say": "answer to $1"}]}


class Thinker(PlayedEngine):
    """An engine that makes requests until it is ended, or answers after ``requests``."""

    name = "thinker"
    caps = EngineCaps(streaming=True, usage=True)

    def __init__(self, requests: int, usage: Usage, *, tool: str = "") -> None:
        super().__init__()
        self.requests, self.usage, self.tool = requests, usage, tool
        self.made = 0
        self.specs: list[EngineSpec] = []
        self.results: list[Any] = []

    async def open(self, spec: EngineSpec, host: EngineHost) -> Self:
        self.specs.append(spec)
        return await super().open(spec, host)

    async def run(self, segment: Segment) -> Any:
        for number in range(self.requests):
            self.made += 1
            yield TextDelta(f"thought {number} ")
            yield self.usage
            # What a provider does between two requests takes time.
            await asyncio.sleep(1)
            if self.tool:
                yield ToolStarted(self.tool, {})
                self.results.append(await self.host.call(self.tool, {}))
        yield EngineDone("ok", text="all done")


async def account(house: VirtualDaemon | ProofDaemon, name: str | None = None) -> dict[str, Any]:
    desk = house.daemon.api._deps.cost
    assert desk is not None
    return dict(await desk.document(name))


async def holds(house: VirtualDaemon) -> int:
    rows = await house.sql("SELECT count(*) FROM budget_holds")
    return int(rows[0][0])


# -- a day -----------------------------------------------------------------------------------------


async def test_a_day_of_a_cent(tmp_path: Path) -> None:
    """Warned at 80 %, refused beyond, shown by /cost, told once; free again on the next day."""
    ann = entry("ann", [costs(0.004)], budget={"per_day_usd": 0.01}, user_timezone="Europe/Zurich")
    async with ProofDaemon(tmp_path, [entry("main"), ann]) as house:

        async def ask(text: str) -> Any:
            return await house.daemon.mailbox.queue.wait_done(await house.say("ann", text), 3600)

        def told() -> list[str]:
            return [str(part.body.get("text")) for part in house.channel.sent]

        def warnings() -> list[str]:
            return [text for text in told() if "80 % of ann's budget for today" in text]

        for text in ("one", "two"):
            assert (await ask(text)).result_text == f"answer to {text}"
        assert not any("Turns are refused" in text for text in told())
        refused = await ask("three")
        assert (refused.outcome, refused.error_code) == ("failed", "budget_exceeded")
        free_at = (await account(house, "ann"))["agents"][0]["budgets"][0]
        assert "$0.008 of $0.01 are used" in refused.error_text
        assert "00:00 CE" in refused.error_text
        assert "budget.per_day_usd in agents.json" in refused.error_text
        await asyncio.sleep(1)
        assert len(warnings()) == 1, told()
        assert sum("Turns are refused" in text for text in told()) == 1, told()
        assert isinstance(house.clock, LoopClock)
        house.clock.jump_ms(free_at["free_at"] - house.clock.now_ms() - 2000)
        assert (await ask("a second before")).error_code == "budget_exceeded"
        await asyncio.sleep(3)
        assert (await ask("next day")).result_text == "answer to next day"
        await ask("and on")
        await asyncio.sleep(1)
        assert len(warnings()) == 2


async def test_what_operators_are_to_be_told_outlives_a_kill(tmp_path: Path) -> None:
    ann = entry("ann", [costs(0.009)], budget={"per_day_usd": 0.01}, user_timezone="UTC")
    async with ProofDaemon(tmp_path, [entry("main"), ann]) as house:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "pending_notices", lambda reader: [])
            message = await house.say("ann", "one")
            await house.daemon.mailbox.queue.wait_done(message, 60)
            await house.crash()
        await house.open()
        await asyncio.sleep(1)
        found = [p for p in house.channel.sent if "90 %" in str(p.body.get("text"))]
        assert len(found) == 1


async def test_a_month_is_counted_over_its_days(household: Open) -> None:
    house = await household(
        agent("ann", costs(1.0), budget={"per_month_usd": 3.0}, user_timezone="UTC")
    )
    for _ in range(3):
        assert (await house.ask("ann", "x")).outcome == "ok"
        house.clock.jump_ms(3_600_000)
    assert (await house.ask("ann", "x")).error_code == "budget_exceeded"
    house.clock.jump_ms(32 * UTC_DAY_S * 1000)
    assert (await house.ask("ann", "x")).outcome == "ok"


async def test_the_time_zone_decides_and_may_be_changed(household: Open) -> None:
    """Midnight in Auckland is noon of the day before in London: what was used is counted by the
    zone that is set now."""
    limits = {"budget": {"per_day_tokens": 100}}
    house = await household(agent("ann", costs(None), **limits, user_timezone="UTC"))
    (found,) = (await account(house, "ann"))["agents"]
    house.clock.jump_ms(found["day"]["until"] - house.clock.now_ms() - 7_200_000)
    assert (await house.ask("ann", "x")).outcome == "ok"
    assert (await house.ask("ann", "x")).error_code == "budget_exceeded"
    house.clock.jump_ms(3 * 3_600_000)
    assert (await house.ask("ann", "x")).outcome == "ok", "a new day in London"
    await house.save([agent("ann", costs(None), **limits, user_timezone="Pacific/Auckland")])
    await house.settled()
    refused = await house.ask("ann", "x")
    assert refused.error_code == "budget_exceeded"
    assert "200 tokens of 100 tokens" in refused.error_text, "both are today in Auckland"


# -- jointly ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["agent", "daemon"])
async def test_sixteen_turns_share_one_budget(household: Open, scope: str) -> None:
    """Each uses 2,000 tokens, as one before them has; 10,000 are for five, and no token more."""
    most = {"per_day_tokens": 10_000}
    more = {"budget": most} if scope == "agent" else {}
    config = "" if scope == "agent" else "[budget]\nper_day_tokens = 10000\n"
    rule = costs(None, 2000, {"sleep": 5})
    house = await household(
        agent("ann", rule, slots=16, user_timezone="UTC", **more), config=config
    )
    assert (await house.ask("ann", "first")).outcome == "ok"
    asked = [
        await house.said("ann", f"t{number}", conversation=f"c{number}") for number in range(16)
    ]
    done = [await house.daemon.mailbox.queue.wait_done(each, 3600) for each in asked]
    assert sum(one.outcome == "ok" for one in done) == 4
    assert {one.error_code for one in done if one.outcome != "ok"} == {"budget_exceeded"}
    assert (await house.sql("SELECT sum(tokens) FROM budget_spent")) == [(10_000,)]
    assert await holds(house) == 0


async def test_a_turn_waits_for_what_another_holds_and_gives_its_slot_back(household: Open) -> None:
    """Two in a row fit, two at once do not: the second is served after the first."""
    rule = costs(None, 1200, {"sleep": 10})
    house = await household(
        agent("ann", rule, slots=2, budget={"per_day_tokens": 2900}, user_timezone="UTC")
    )
    began = house.clock.monotonic()
    asked = [await house.said("ann", t, conversation=t) for t in ("a", "b")]
    done = [await house.daemon.mailbox.queue.wait_done(each, 3600) for each in asked]
    assert [one.outcome for one in done] == ["ok", "ok"]
    assert house.clock.monotonic() - began >= 20


async def test_a_wait_for_others_ends_with_a_refusal_that_says_so(household: Open) -> None:
    rule = costs(None, 1600, {"sleep": spending.RESERVED_WAIT_S * 2})
    house = await household(
        agent("ann", rule, slots=2, budget={"per_day_tokens": 2000}, user_timezone="UTC")
    )
    await house.said("ann", "long", conversation="a")
    await house.clock.sleep(1)
    refused = await house.ask("ann", "b", conversation="b", who=PERSON)
    assert refused.error_code == "budget_exceeded"
    assert "für andere laufende Antworten vorgemerkt" in refused.error_text


# -- as it goes ------------------------------------------------------------------------------------


async def test_a_turn_over_its_budget_is_ended_and_keeps_what_it_said(household: Open) -> None:
    house = await household(agent("ann", budget={"per_turn_usd": 0.01}))
    thinker = played(house, "ann", Thinker(50, Usage(10, 1, 0.004)))
    done = await house.ask("ann", "x")
    assert (done.outcome, done.error_code) == ("failed", "budget_exceeded")
    assert "$0.012 of $0.01" in done.error_text
    assert done.result_text == "thought 0 thought 1 thought 2 thought 3"
    await house.until(lambda: any("thought 2" in text for text in house.texts()))
    assert thinker.made <= 5, "it went on after its budget"
    assert thinker.specs[0].max_usd == pytest.approx(0.01)
    assert await house.sql("SELECT round(sum(usd), 6) FROM usage") == [(0.016,)]


async def test_an_answer_that_used_up_the_budget_is_still_an_answer(household: Open) -> None:
    house = await household(agent("ann", budget={"per_turn_usd": 0.01}))
    played(house, "ann", Thinker(1, Usage(10, 1, 0.5)))
    assert (await house.ask("ann", "x")).result_text == "all done"


async def test_calls_are_refused_once_the_budget_is_used_up(household: Open) -> None:
    house = await household(agent("ann", budget={"per_turn_tokens": 5}))
    thinker = played(house, "ann", Thinker(3, Usage(10, 1), tool="list_agents"))
    done = await house.ask("ann", "x")
    assert done.error_code == "budget_exceeded"
    assert [(r.ok, r.code) for r in thinker.results] in ([], [(False, "budget_exceeded")])
    assert thinker.made <= 2


async def test_who_is_over_budget_is_not_asked_once_more(household: Open) -> None:
    """An engine that used tools and said nothing is asked again, but not beyond its budget."""

    class Silent(Thinker):
        async def run(self, segment: Segment) -> Any:
            self.made += 1
            yield ToolStarted("look", {})
            yield self.usage
            yield EngineDone("ok", text="", engine_state=b"kept")

    house = await household(
        agent("ann", budget={"per_turn_tokens": 1000}), agent("bob", budget={"per_turn_tokens": 5})
    )
    for name, made in (("ann", 2), ("bob", 1)):
        thinker = played(house, name, Silent(1, Usage(10, 1)))
        done = await house.ask(name, "x")
        assert (thinker.made, done.error_code == "budget_exceeded") == (made, made == 1)


async def test_an_engine_is_told_what_is_left_of_the_day(household: Open) -> None:
    house = await household(
        agent("ann", budget={"per_day_usd": 10, "per_turn_usd": 8}, user_timezone="UTC")
    )
    thinker = played(house, "ann", Thinker(1, Usage(10, 1, 3.0)))
    for left in (8.0, 7.0, 4.0):
        assert (await house.ask("ann", "x")).outcome == "ok"
        assert thinker.specs[-1].max_usd == pytest.approx(left)


async def test_what_is_told_during_a_turn_survives_its_kill(household: Open) -> None:
    """Two requests are paid, the third is under way: a kill loses neither, and doubles none."""
    house = await household(agent("ann", budget={"per_day_usd": 1}, user_timezone="UTC"))
    played(house, "ann", Thinker(50, Usage(10, 1, 0.004)))
    await house.said("ann", "x")
    await house.until(lambda: _reports(house, 2))
    assert await holds(house) == 1
    await house.die()
    await house.start()
    assert await house.sql("SELECT count(*), sum(tokens) FROM usage, budget_spent") == [(2, 44)]
    (found,) = (await account(house, "ann"))["agents"]
    assert found["budgets"][0]["used"] == pytest.approx(0.008)
    assert found["budgets"][0]["held"] == 0


async def _reports(house: VirtualDaemon, count: int) -> bool:
    return (await house.sql("SELECT count(*) FROM usage")) == [(count,)]


async def test_a_stop_gives_back_what_was_held(household: Open) -> None:
    house = await household(agent("ann", budget={"per_day_usd": 1}, user_timezone="UTC"))
    played(house, "ann", Thinker(50, Usage(10, 1, 0.004)))
    await house.said("ann", "x")
    await house.until(lambda: _reports(house, 3))
    await house.command("ann", "/stop")
    await house.until(lambda: _none_held(house))
    assert await house.sql("SELECT count(*) FROM usage") == [(3,)]


async def _none_held(house: VirtualDaemon) -> bool:
    return await holds(house) == 0


async def test_a_question_holds_nothing_while_it_waits(household: Open) -> None:
    steps = [{"usage": {"input": 900, "output": 0}}, {"question": {"text": "sure?"}}, {"say": "ok"}]
    house = await household(
        agent(
            "ann",
            {"match": "ask", "steps": steps},
            costs(None, 100),
            budget={"per_day_tokens": 3000},
            user_timezone="UTC",
        )
    )
    message = await house.said("ann", "ask", conversation="a")
    await house.until(lambda: any("sure?" in text for text in house.texts("a")))
    assert await holds(house) == 0
    assert (await house.ask("ann", "other", conversation="b")).outcome == "ok"
    await house.command("ann", "/answer yes", conversation="a")
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).outcome == "ok"


# -- trees, teams ------------------------------------------------------------------------------------


async def test_a_request_pays_for_all_that_it_sets_off(household: Open) -> None:
    """Ann asks bob again and again; the budget of ann's requests ends it, not bob's own."""
    loop = [
        {"tool": {"name": "ask_agent", "args": {"to": "bob", "message": f"part {n}"}}}
        for n in range(5)
    ]
    house = await household(
        agent(
            "ann",
            {"match": "go", "steps": [*loop, {"say": "$result"}]},
            budget={"per_tree_tokens": 5000},
        ),
        agent("bob", costs(None, 1900), slots=3),
    )
    await house.ask("ann", "go")
    rows = await house.sql(
        "SELECT outcome, error_code FROM messages WHERE kind = 'chat' OR sender_agent_id <> ''"
        " ORDER BY seq"
    )
    assert ("failed", "budget_exceeded") in rows
    (total,) = (await house.sql("SELECT coalesce(sum(tokens), 0) FROM budget_spent"))[0]
    assert total <= 5000
    # Asked by itself, bob has no such limit.
    for _ in range(4):
        assert (await house.ask("bob", "x")).outcome == "ok"


async def test_a_bounded_team_refuses_what_counts_for_it(household: Open) -> None:
    house = await household(agent("ann", costs(None, 100)))
    await house.daemon.control.stop_agent("ann", PERSON)
    message = await house.said("ann", "x")

    def bound(tx: Any) -> None:
        ledger.set_limit_tx(tx, ScopeKind.TEAM, "blue", nano_usd=None, tokens=0, at=1)
        ledger.join_tx(tx, message, ScopeKind.TEAM, "blue")

    await house.db.write(bound)
    await house.daemon.control.start_agent("ann", PERSON)
    done = await house.daemon.mailbox.queue.wait_done(message, 600)
    assert "the team blue" in done.error_text
    assert (await house.ask("ann", "y")).outcome == "ok", "others are not bound"


# -- prices, /cost -----------------------------------------------------------------------------------


async def test_tokens_are_priced_where_the_price_is_known(household: Open) -> None:
    config = '[prices."mine"]\ninput = 2.0\noutput = 4.0\n'
    house = await household(
        agent("ann", costs(None, 400, {"usage": {"input": 600, "output": 0}}), model="mine"),
        agent("bob", costs(None, 1000), model="nobody-knows-it"),
        agent("cy", costs(0.5, 1000), model="mine"),
        agent("dee", costs(None, 1000), model="gpt-4o-mini", provider="openai"),
        config=config,
    )
    for name in ("ann", "bob", "cy", "dee"):
        await house.ask(name, "x")
    rows = await house.sql(
        "SELECT a.name, sum(u.usd) FROM usage u JOIN agents a USING (agent_id)"
        " GROUP BY a.name ORDER BY a.name"
    )
    assert rows == [("ann", 0.002), ("bob", None), ("cy", 0.5), ("dee", pytest.approx(0.00015))]
    told = (await house.command("bob", "/cost")).text
    assert "One turn has no known price and counts in tokens alone." in told


async def test_who_asks_over_http_sees_what_is_theirs(tmp_path: Path) -> None:
    """The operator sees all, an agent's token its own agent, nobody else's."""
    desk_of = [agent("ann", costs(0.25)), agent("bob", costs(1.0))]
    house = await VirtualDaemon.open(tmp_path / "home", desk_of)
    try:
        await house.ask("ann", "x")
        ann = house.roster.entry("ann").agent_id
        token = house.tokens.issue_run(ann, "ann", "")
        deps = house.daemon.api._deps

        async def seen(token: str, agent_name: str | None = None) -> Any:
            identity = house.tokens.identify(token)
            call = SimpleNamespace(deps=deps, who=identity)
            answer: Any = await cost.cost(call, cost.CostQuery(agent=agent_name))
            return json.loads(encode(answer))

        assert [one["agent"] for one in (await seen(token))["agents"]] == ["ann"]
        with pytest.raises(Forbidden):
            await seen(token, "bob")
        everything = await seen(OPERATOR_TOKEN)
        assert {one["agent"] for one in everything["agents"]} == {"main", "ann", "bob"}
        assert everything["all"]["day"]["usd"] == pytest.approx(0.25)
    finally:
        await house.stop()


async def test_cost_shows_what_was_used_and_what_is_left(household: Open) -> None:
    house = await household(
        agent("ann", costs(0.004), budget={"per_day_usd": 0.005, "per_day_tokens": 1000}),
        agent("bob", costs(1.0)),
    )
    await house.ask("ann", "x")
    await house.ask("bob", "x")
    told = (await house.command("ann", "/cost")).text
    assert told.splitlines() == [
        "Today: 100 tokens in, 0 out, $0.004",
        "This month: 100 tokens in, 0 out, $0.004",
        "Since the beginning: 100 tokens in, 0 out, $0.004",
        "⚠ Ann's budget for today: $0.004 of $0.005, 80 %",
        "Ann's budget for today: 100 tokens of 1,000 tokens, 10 %",
    ]
    everything = (await house.command("ann", "/cost all")).text
    assert "bob\nToday: 100 tokens in, 0 out, $1.00" in everything
    assert "All agents together\nToday: 200 tokens in, 0 out, $1.00" in everything
    own = await house.daemon.inbox.say(
        agent_name="ann",
        where=ChatOrigin("console", "local"),
        text="/cost",
        principal=replace(PERSON, language="de"),
        external_id="x1",
    )
    assert own.text.startswith("Heute: 100 Token hinein, 0 heraus, $0.004\n")
    foreign = await house.command("ann", "/cost bob", who=PERSON)
    assert (foreign.ok, foreign.code) == (False, "forbidden")
    document = await account(house)
    assert json.loads(json.dumps(document)) == document
    assert document["all"]["day"]["usd"] == pytest.approx(1.004)


async def test_without_limits_nothing_is_held(household: Open) -> None:
    house = await household(agent("ann", costs(0.1, 100, {"sleep": 5})))
    message = await house.said("ann", "x")
    await house.clock.sleep(1)
    assert await holds(house) == 0
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).outcome == "ok"


async def test_cost_shows_what_the_providers_cache_had(household: Open) -> None:
    house = await household(agent("ann"))

    async def cached(segment: Segment) -> Any:
        yield Usage(1000, 10, 0.004, cache_read_tokens=900, cache_write_tokens=50)
        yield EngineDone("ok", text="x")

    replace_engine(house, "ann", cached)
    await house.ask("ann", "x")
    told = (await house.command("ann", "/cost")).text
    assert told.startswith("Today: 1000 tokens in, 10 out (900 of them from the provider's cache")
    assert "50 into it" in told
