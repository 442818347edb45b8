"""Every way a provider fails has its own code, a class, and a sentence that helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agentsup.engines.failures import ExtraMissing, NotConfigured
from agentsup.engines.guard import GuardedSession, open_guarded
from agentsup.engines.llm import LlmEngine
from agentsup.engines.llm import engine as llm_engine
from agentsup.model.engine import EngineDone, EngineSpec, TextDelta, Usage
from tests.contract.engines.conftest import LlmHarness, Say, collect, done
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import Asked, Call, ModelServer, Reply

KEY = "sk-very-secret-0123456789"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as each:
        yield each


@pytest.fixture
async def engine() -> AsyncIterator[LlmEngine]:
    each = LlmEngine(env={})
    yield each
    await each.close()


async def opened(
    engine: LlmEngine, url: str, host: MemoryHost | None = None, **options: Any
) -> GuardedSession:
    given = {"base_url": url, "api_key": KEY, **options}
    spec = EngineSpec("llm", model="m", options=given)
    return await open_guarded(engine, spec, host or MemoryHost())


@pytest.mark.parametrize(
    "reply, code, permanent",
    [
        (Reply(status=401, error=f"bad key {KEY}"), "auth_failed", True),
        (Reply(status=403), "auth_failed", True),
        (Reply(status=404), "model_not_found", True),
        (Reply(status=400, error=f"odd {KEY}"), "request_rejected", True),
        (Reply(status=402), "quota_exceeded", True),
        (Reply(status=429, headers=(("retry-after", "7"),)), "rate_limited", False),
        (Reply(status=500, error=f"oh {KEY}"), "server_error", False),
        (Reply(status=503), "server_error", False),
        (Reply(text=("a", "b"), cut_after=1), "connection", False),
        (Reply(text=("a", "b"), cut_after=0), "connection", False),
    ],
)
async def test_a_provider_failure_is_mapped_by_type(
    llm: LlmHarness, reply: Reply, code: str, *, permanent: bool
) -> None:
    llm._replies.append(reply)
    session = await llm.open(MemoryHost())
    events = await collect(session, segment())
    end = done(events)
    assert (end.outcome, end.code, end.permanent) == ("failed", code, permanent), end.error
    assert end.error
    assert end.retry_after_s == (7.0 if code == "rate_limited" else None)
    assert len(llm.server.asked) == 1, "the client did not retry by itself"
    if reply.cut_after == 1:
        assert end.text == "a"
    await session.close()


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_the_key_never_appears(engine: LlmEngine, server: ModelServer, status: int) -> None:
    server.add(Reply(status=status, error=f"you sent {KEY}"))
    session = await opened(engine, server.base_url)
    end = done(await collect(session, segment()))
    assert KEY not in repr(end)
    await session.close()


async def test_a_context_overflow_says_what_to_do(engine: LlmEngine, server: ModelServer) -> None:
    server.add(
        Reply(status=400, error="maximum context length", error_code="context_length_exceeded")
    )
    session = await opened(engine, server.base_url)
    end = done(await collect(session, segment()))
    assert (end.code, end.permanent) == ("context_overflow", True)
    assert "/new" in end.error
    await session.close()


async def test_nobody_listening_is_a_connection_failure(engine: LlmEngine) -> None:
    session = await opened(engine, "http://127.0.0.1:9/v1")
    end = done(await collect(session, segment()))
    assert (end.code, end.permanent) == ("connection", False)
    assert "base_url" in end.error
    await session.close()


async def test_a_provider_that_says_nothing_times_out(
    engine: LlmEngine, server: ModelServer
) -> None:
    server.add(Reply(hang_after=0))
    session = await opened(engine, server.base_url, request_timeout_s=0.3)
    end = done(await collect(session, segment()))
    assert (end.code, end.permanent) == ("timeout", False)
    await session.close()


async def test_limits_are_always_passed(engine: LlmEngine, server: ModelServer) -> None:
    async def count(args: dict[str, Any]) -> str:
        return str(args["n"])

    server.add(*[Reply(calls=(Call("count", {"n": n}),)) for n in range(3)])
    session = await opened(engine, server.base_url, MemoryHost({"count": count}), request_limit=3)
    events = await collect(session, segment())
    assert done(events).code == "turn_limit"
    assert len(server.asked) == 3
    assert sum(e.input_tokens for e in events if isinstance(e, Usage)) == 33
    await session.close()


async def test_at_its_limit_a_turn_is_summed_up_without_tools(
    engine: LlmEngine, server: ModelServer
) -> None:
    async def count(args: dict[str, Any]) -> str:
        return str(args["n"])

    server.add(*[Reply(calls=(Call("count", {"n": n}),)) for n in range(2)], Reply("two so far"))
    host = MemoryHost({"count": count})
    session = await opened(engine, server.base_url, host, request_limit=2)
    end = done(await collect(session, segment("count")))
    last = replace(segment("count"), prompt="Sum up.", engine_state=end.engine_state)
    summed = done(await collect(session, replace(last, nudge="wrap_up")))
    assert (summed.outcome, summed.text) == ("ok", "two so far")
    asked = server.asked[-1].body
    assert "tools" not in asked
    roles = [message["role"] for message in asked["messages"]]
    assert roles.count("tool") == 2, "every call has its result"
    assert asked["messages"][-1]["content"] == "Sum up."
    await session.close()


async def test_the_agents_own_limit_of_steps_counts(engine: LlmEngine, server: ModelServer) -> None:
    async def count(args: dict[str, Any]) -> str:
        return "1"

    server.add(*[Reply(calls=(Call("count", {"n": n}),)) for n in range(3)])
    given = {"base_url": server.base_url, "api_key": KEY}
    spec = EngineSpec("llm", model="m", options=given, max_steps=1)
    session = await open_guarded(engine, spec, MemoryHost({"count": count}))
    assert done(await collect(session, segment())).code == "turn_limit"
    assert len(server.asked) == 1
    await session.close()


async def test_arguments_that_are_no_json_go_back_to_the_model(
    engine: LlmEngine, server: ModelServer
) -> None:
    async def fine(args: dict[str, Any]) -> str:
        return "fine"

    server.add(Reply(calls=(Call("fine", raw_args='{"a": '),)), Reply("then without"))
    host = MemoryHost({"fine": fine})
    session = await opened(engine, server.base_url, host)
    assert done(await collect(session, segment())).text == "then without"
    assert host.executed == []
    await session.close()


async def test_options_reach_the_request(engine: LlmEngine, server: ModelServer) -> None:
    server.add(Reply("x"))
    session = await opened(engine, server.base_url, temperature=0.5, max_tokens=77, ask_user=False)
    await collect(session, segment())
    body = server.asked[0].body
    assert body["temperature"] == 0.5
    assert 77 in {body.get("max_tokens"), body.get("max_completion_tokens")}
    assert not body.get("tools")
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    await session.close()


async def test_twenty_streams_share_one_client_and_all_are_cancelled(
    engine: LlmEngine,
) -> None:
    def slow(asked: Asked) -> Reply:
        return Reply(("a", "b"), every_s=3 * BOUND_S)

    async with ModelServer(slow) as server:
        known: dict[str, Any] = {"template_opens_thought": False}
        sessions = [await opened(engine, server.base_url, **known) for _ in range(20)]

        async def first(session: GuardedSession) -> None:
            async for event in session.run(segment()):
                if isinstance(event, TextDelta):
                    session.cancel()
                if isinstance(event, EngineDone):
                    assert event.outcome == "cancelled"

        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(first(session))
        async with asyncio.timeout(BOUND_S):
            await server.wait_disconnects(20)
        for session in sessions:
            await session.close()


async def test_two_chats_at_once_do_not_mix(engine: LlmEngine) -> None:
    def echo(asked: Asked) -> Reply:
        return Reply(tuple(asked.messages[-1]["content"]), every_s=0.001)

    async with ModelServer(echo) as server:
        session = await opened(engine, server.base_url)
        other = await opened(engine, server.base_url)
        ends = await asyncio.gather(
            collect(session, segment("aaaaaa")), collect(other, segment("bbbbbb"))
        )
        assert [done(events).text for events in ends] == ["aaaaaa", "bbbbbb"]
        await session.close()
        await other.close()


# -- before anything is sent -----------------------------------------------------------------------


async def test_a_missing_key_and_a_missing_model_name_the_remedy() -> None:
    engine = LlmEngine(env={})
    with pytest.raises(NotConfigured, match="OPENAI_API_KEY"):
        await engine.open(EngineSpec("llm", model="m"), MemoryHost())
    with pytest.raises(NotConfigured, match="ANTHROPIC_API_KEY"):
        await engine.open(EngineSpec("llm", model="claude-x"), MemoryHost())
    with pytest.raises(NotConfigured, match="no model is named"):
        await LlmEngine({"OPENAI_API_KEY": "k"}).open(EngineSpec("llm"), MemoryHost())
    with pytest.raises(NotConfigured, match="temprature"):
        await engine.open(EngineSpec("llm", options={"temprature": 1}), MemoryHost())


async def test_a_missing_extra_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(dialect: str) -> None:
        raise ModuleNotFoundError("No module named 'anthropic'", name="anthropic")

    monkeypatch.setattr(llm_engine, "_import", missing)
    with pytest.raises(ExtraMissing, match=r"pip install 'agentsup\[anthropic\]'"):
        await LlmEngine({"ANTHROPIC_API_KEY": "k"}).open(
            EngineSpec("llm", model="claude-x"), MemoryHost()
        )


async def test_after_close_the_engine_opens_new_clients(llm: LlmHarness) -> None:
    for word in ("one", "two"):
        llm.play(Say((word,)))
        session = await llm.open(MemoryHost())
        assert done(await collect(session, segment())).text == word
        await session.close()
        await llm.close()
