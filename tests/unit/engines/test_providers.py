"""What a provider is asked, and what its refusals say: true reasons, a cure, never the key."""

from __future__ import annotations

import pytest

from agentsup.engines import Price, Prices, failures
from agentsup.engines.llm.settings import NO_KEY, Dialect, Endpoint
from agentsup.engines.providers import ProviderClient, has_model, near_names
from agentsup.engines.providers.catalogue import PROVIDERS, provider_at
from agentsup.model.engine import EngineSpec
from agentsup.model.errors import EngineFailed
from tests.support.model_server import ModelServer, Reply
from tests.support.ports import free_port

KEY = "sk-a-key-of-nobody-4711"
MODELS = ("good-large", "good-mini", "text-embedding-3", "models/flash")


def client(server: ModelServer, key: str = KEY, dialect: Dialect = "openai") -> ProviderClient:
    url = server.base_url if dialect == "openai" else server.anthropic_url
    return ProviderClient(Endpoint(dialect, url, key, 5.0), "file:secrets/x.key")


async def failed(server: ModelServer, key: str = KEY, model: str = "") -> EngineFailed:
    with pytest.raises(EngineFailed) as caught:
        await (client(server, key).try_model(model) if model else client(server, key).models())
    return caught.value


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_models_that_can_chat_are_listed_and_one_answers(dialect: Dialect) -> None:
    async with ModelServer([Reply("ready")], models=MODELS, key=KEY) as server:
        asked = client(server, dialect=dialect)
        assert await asked.models() == ("flash", "good-large", "good-mini")
        answer = await asked.try_model("good-mini")
        assert (answer.text, answer.input_tokens, answer.output_tokens) == ("ready", 11, 7)
        assert answer.usd is None, "nobody knows what this server costs"
        assert server.violations == []
        assert len(server.asked) == 1


async def test_the_cost_is_told_where_prices_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer([Reply("ready")], models=MODELS) as server:
        monkeypatch.setattr(ProviderClient, "address", server.base_url)
        asked = ProviderClient(Endpoint("openai", "", KEY, 5.0))
        prices = Prices(lambda: {"good-mini": Price(1.0, 2.0)})
        answer = await asked.try_model("good-mini", prices=prices)
        assert answer.usd == pytest.approx(25e-6)
        assert "max_completion_tokens" in server.asked[0].body, "OpenAI refuses the old name"


async def test_a_wrong_key_is_named_by_its_place_and_not_shown() -> None:
    async with ModelServer(models=MODELS, key=KEY) as server:
        error = await failed(server, "sk-wrong-key-of-nobody")
        assert isinstance(error, failures.AuthFailed)
        assert "does not accept the key from file:secrets/x.key" in error.message
        assert "nobody" not in error.message
        assert "sk-wrong" not in error.message
        missing = await failed(server, NO_KEY)
        assert missing.message == f"{server.base_url} wants a key"


async def test_an_unknown_model_comes_with_names_like_it() -> None:
    async with ModelServer(models=MODELS, key=KEY) as server:
        error = await failed(server, model="good-mni")
        assert isinstance(error, failures.ModelNotFound)
        assert "has no model named 'good-mni'. Did you mean good-mini" in error.message
        unlike = await failed(server, model="xyzzy")
        assert "has no model named 'xyzzy'. It has: flash, good-large, good-mini" in unlike.message


def test_models_are_listed_before_one_is_named() -> None:
    client, model = ProviderClient.by_settings(EngineSpec("llm"), {"OPENAI_API_KEY": "k"})
    assert (client.address, client.key, model) == ("https://api.openai.com/v1", "k", "")
    with pytest.raises(
        failures.NotConfigured, match="no model and no key is set up: `agentsup setup`"
    ):
        ProviderClient.by_settings(EngineSpec("llm"), {})


@pytest.mark.parametrize(
    "reply, kind, said",
    [
        (Reply(status=402, error="pay"), failures.ProviderQuotaExceeded, "no credit left: pay"),
        (
            Reply(status=429, error="pay", error_code="insufficient_quota"),
            failures.ProviderQuotaExceeded,
            "no credit left",
        ),
        (Reply(status=429), failures.ProviderRateLimited, "too many requests"),
        (Reply(status=500), failures.ServerFailed, "failed with status 500: scripted failure"),
        (
            Reply(status=400, error=f"no {KEY}"),
            failures.RequestRejected,
            "refused the request: no ***",
        ),
        (
            Reply(status=307, headers=(("Location", "http://127.0.0.1:1/v1"),)),
            failures.NotConfigured,
            "redirects elsewhere",
        ),
    ],
)
async def test_refusals_are_kinds_of_failures(
    reply: Reply, kind: type[EngineFailed], said: str
) -> None:
    async with ModelServer([reply], models=MODELS, key=KEY) as server:
        error = await failed(server, model="good-mini")
        assert type(error) is kind
        assert said in error.message
        assert len(server.asked) == 1, "nothing is asked twice, and no redirect is followed"


async def test_a_server_that_is_away_is_named_with_how_to_start_it() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(failures.ConnectionFailed, match="can't be reached"):
        await ProviderClient(Endpoint("openai", url, NO_KEY, 5.0)).models()


def test_providers_are_known_by_their_address() -> None:
    for each in PROVIDERS.values():
        if each.base_url:
            assert provider_at(each.dialect, each.base_url) is each
    assert provider_at("anthropic", "").name == "anthropic"
    assert provider_at("openai", "http://10.0.0.1/v1").name == "compatible"


def test_names_are_near_by_their_last_part_too() -> None:
    assert near_names("gemma-3", ["google/gemma-3", "other"]) == ("google/gemma-3",)


@pytest.mark.parametrize(
    "model, is_known",
    [
        ("claude-x-4-20260101", True),
        ("claude-x-4", True),
        ("claude-x-4-latest", True),
        ("claude-x", False),
        ("gpt-9", True),
        ("llama", True),
        ("gpt", False),
    ],
)
def test_short_names_of_versions_are_known(model: str, is_known: bool) -> None:
    assert has_model(model, ("claude-x-4-20260101", "gpt-9-2026-01-31", "llama:latest")) == is_known
