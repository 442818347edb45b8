"""An address without a model: its server's only one answers, and never a made-up name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentsup.engines.failures import ConnectionFailed, NotConfigured
from agentsup.engines.guard import open_guarded
from agentsup.engines.llm import LlmEngine
from agentsup.model.engine import EngineDone, EngineSpec
from tests.contract.engines.conftest import collect, done
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import ModelServer, Reply

SPEC = EngineSpec("llm")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(lambda asked: Reply("hi")) as each:
        yield each


@pytest.fixture
async def engine(server: ModelServer) -> AsyncIterator[LlmEngine]:
    each = LlmEngine({"OPENAI_BASE_URL": server.base_url})
    yield each
    await each.close()


async def turn(engine: LlmEngine, spec: EngineSpec = SPEC) -> EngineDone:
    session = await open_guarded(engine, spec, MemoryHost())
    try:
        return done(await collect(session, segment()))
    finally:
        await session.close()


async def test_the_only_model_answers_and_its_server_is_asked_once(
    engine: LlmEngine, server: ModelServer
) -> None:
    server.models = ("llama3.2", "nomic-embed-text")  # the other one can't chat
    assert engine.caps.only_model(SPEC) == ""
    assert engine.caps.find_model is not None
    await engine.caps.find_model(SPEC)
    assert engine.caps.only_model(SPEC) == "llama3.2"
    assert [(await turn(engine)).text for _ in range(2)] == ["hi", "hi"]
    assert {asked.body["model"] for asked in server.asked} == {"llama3.2"}
    assert server.lists <= 2, "once more at most, for the context that it serves"


async def test_of_several_models_none_is_taken_and_they_are_named(
    engine: LlmEngine, server: ModelServer
) -> None:
    server.models = tuple(f"model-{n:02}" for n in range(11))
    with pytest.raises(NotConfigured) as refused:
        await engine.open(SPEC, MemoryHost())
    text = refused.value.message
    assert f"the server {server.base_url} has 11 models" in text
    assert "model-07 and 3 more. Choose: /model model-00, or `agentsup models set" in text
    server.models = ()
    with pytest.raises(NotConfigured, match="lists no model"):
        await engine.open(SPEC, MemoryHost())
    server.models = ("late",)
    assert (await turn(engine)).text == "hi", "what was added meanwhile counts"


async def test_an_unknown_model_is_answered_with_those_that_there_are(
    engine: LlmEngine, server: ModelServer
) -> None:
    server.models = ("llama3.2", "qwen3:8b")
    end = await turn(engine, EngineSpec("llm", model="default"))
    assert (end.code, end.permanent) == ("model_not_found", True)
    assert end.error == (
        f"the server {server.base_url} has no model named 'default'. It has: llama3.2, qwen3:8b. "
        "Choose: /model llama3.2"
    )


async def test_a_server_that_is_away_is_a_failure_that_may_pass() -> None:
    engine = LlmEngine({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    with pytest.raises(ConnectionFailed):
        await engine.open(SPEC, MemoryHost())
    await engine.close()
