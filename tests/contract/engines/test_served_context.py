"""What a model server of one's own serves is known after a turn, and too little is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.engines.llm.engine import LlmEngine
from agentsup.engines.llm.settings import Endpoint
from agentsup.engines.providers import ProviderClient, is_own, served_context
from agentsup.model.engine import EngineSpec, ServedContext
from tests.support.engine_host import MemoryHost
from tests.support.model_server import HANGS, ModelServer, Reply

LISTED = {"object": "list", "data": [{"id": "m"}]}


def ollama(tokens: Any, parameters: str = "") -> dict[str, Any]:
    return {
        "/v1/models": LISTED,
        "/api/ps": {"models": [{"name": "m:latest", "context_length": tokens}]},
        "/api/show": {"parameters": parameters},
    }


def vllm(tokens: Any) -> dict[str, Any]:
    return {"/v1/models": {"data": [{"id": "other"}, {"id": "m", "max_model_len": tokens}]}}


def lm_studio(tokens: Any, state: str = "loaded") -> dict[str, Any]:
    row = {"id": "m", "state": state, "loaded_context_length": tokens, "max_context_length": 9}
    return {"/v1/models": LISTED, "/api/v0/models": {"data": [row]}}


def llama_cpp(tokens: Any) -> dict[str, Any]:
    props = {"default_generation_settings": {"n_ctx": tokens}, "total_slots": 1}
    return {"/v1/models": LISTED, "/props": props}


async def found(documents: dict[str, Any], model: str = "m") -> ServedContext | None:
    async with ModelServer(documents=documents) as server:
        client = ProviderClient(Endpoint("openai", server.base_url, "k", 5.0))
        return await served_context(client, model)


@pytest.mark.parametrize(
    "documents, mend",
    [
        (ollama(4096), "OLLAMA_CONTEXT_LENGTH=32768 ollama serve"),
        (ollama(4096, 'stop "x"\nnum_ctx                        4096'), "PARAMETER num_ctx 32768"),
        (vllm(4096), "--max-model-len 32768"),
        (lm_studio(4096), "--context-length 32768"),
        (llama_cpp(4096), "-c 32768"),
    ],
)
async def test_too_little_is_told_with_what_mends_it(documents: dict[str, Any], mend: str) -> None:
    told = await found(documents)
    assert told is not None
    assert told.tokens == 4096
    assert mend in told.problem


@pytest.mark.parametrize("server", [ollama, vllm, lm_studio, llama_cpp])
async def test_enough_is_no_problem_and_nonsense_is_not_known(server: Any) -> None:
    assert await found(server(16_384)) == ServedContext(16_384)
    for odd in (None, 0, -1, True, "4096", 4096.5, [4096], 10**30):
        assert await found(server(odd)) is None, odd


@pytest.mark.parametrize(
    "documents",
    [
        {},
        {"/v1/models": [], "/api/ps": [], "/api/v0/models": "x", "/props": 5},
        {"/v1/models": {"data": [[], None, {"id": 5}]}, "/api/ps": {"models": {"name": "m"}}},
        {"/props": {"default_generation_settings": [4096]}},
        lm_studio(4096, "not-loaded"),
        {"/api/ps": {"models": [{"name": "other", "context_length": 4096}]}},
    ],
)
async def test_a_server_that_does_not_tell_is_not_known(documents: dict[str, Any]) -> None:
    assert await found(documents) is None


@pytest.mark.parametrize("path", ["/v1/models", "/api/ps", "/api/v0/models", "/props"])
async def test_a_server_that_hangs_is_not_known(path: str) -> None:
    async with ModelServer(documents={path: HANGS}) as server:
        client = ProviderClient(Endpoint("openai", server.base_url, "k", 5.0))
        assert await served_context(client, "m", limit_s=0.2) is None


@pytest.mark.parametrize(
    "url, own",
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.0.0.5:8000/v1", True),
        ("http://192.168.1.2/v1", True),
        ("http://100.101.1.2:8000/v1", True),
        ("http://[fd00::1]:8000/v1", True),
        ("http://ollama:11434/v1", True),
        ("http://gpu.lan/v1", True),
        ("http://host.docker.internal:11434/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://openrouter.ai/api/v1", False),
        ("http://8.8.8.8/v1", False),
        ("http://169.254.169.254/v1", False),
        ("http://[2606:4700::1]/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://evillocalhost.com", False),
        ("http://evil.notlan", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_only_servers_of_ones_own_are_asked(url: str, own: bool) -> None:
    assert is_own(url) is own


async def test_it_is_known_after_a_turn_and_asked_once() -> None:
    engine = LlmEngine(env={})
    async with ModelServer([Reply("hi")], documents=ollama(4096)) as server:
        spec = EngineSpec("llm", model="m", options={"base_url": server.base_url})
        session = await engine.open(spec, MemoryHost())
        assert engine.caps.served(spec) is None
        assert server.read == [], "nobody is asked before the turn"
        await session.close()
        while (known := engine.caps.served(spec)) is None:
            await asyncio.sleep(0)
        assert known.tokens == 4096
        assert "OLLAMA_CONTEXT_LENGTH" in known.problem
        asked = list(server.read)
        await (await engine.open(spec, MemoryHost())).close()
        await engine.close()
        assert server.read == asked
        other = EngineSpec("llm", model="another", options={"base_url": server.base_url})
        assert engine.caps.served(other) is None
