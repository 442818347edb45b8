"""``/model``: the provider's own list, what each costs, and a check before a model is set."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.engines import Price, Prices
from agentsup.engines.failures import ConnectionFailed
from agentsup.engines.providers import ProviderClient
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
KNOWN = tuple(sorted(f"gpt-{n}" for n in range(10, 50)))
LLM = {
    "name": "ann",
    "engine": "llm",
    "model": "gpt-10",
    "engine_options": {"api_key": "sk-of-nobody-1234"},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Providers answer with ``KNOWN``; the addresses that were asked."""
    seen: list[str] = []

    async def models(self: ProviderClient, *, limit_s: float = 0) -> tuple[str, ...]:
        seen.append(self.address)
        return KNOWN

    async def price(self: Prices, provider: str, model: str) -> Price | None:
        return Price(1.5, 6.0) if model == "gpt-11" else None

    monkeypatch.setattr(ProviderClient, "models", models)
    monkeypatch.setattr(Prices, "of", price)
    return seen


async def test_the_list_is_the_providers_own(household: Open, asked: list[str]) -> None:
    house = await household(LLM)
    text = (await house.command("ann", "/model")).text
    assert asked == ["https://api.openai.com/v1"]
    assert "● gpt-10\n" in text
    assert "gpt-11   $1.5 in, $6 out for a million tokens\n" in text
    assert ("gpt-39" in text, "gpt-40" in text, "… and 10 more" in text) == (True, False, True)
    assert "gpt-11" not in (await house.command("ann", "/model", who=EVE)).text
    assert len(asked) == 1, "only operators make the daemon ask"


async def test_what_the_provider_lacks_is_refused_with_names_like_it(
    household: Open, asked: list[str]
) -> None:
    house = await household(LLM)
    for wrong, near in (("gpt-1", "gpt-10 or gpt-11"), ("gtp-12", "gpt-12")):
        reply = await house.command("ann", f"/model {wrong}")
        assert (reply.ok, reply.code) == (False, "conflict")
        assert f"Did you mean {near}" in reply.text
    assert not (await house.command("ann", "/set model gpt-1")).ok
    assert house.unit("ann").spec.model == "gpt-10"
    reply = await house.command("ann", "/model gpt-11")
    assert reply.ok
    assert "$1.5 in, $6 out" in reply.text
    assert house.unit("ann").spec.model == "gpt-11"


async def test_a_provider_that_is_away_leaves_the_choice_to_the_person(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: ProviderClient, *, limit_s: float = 0) -> tuple[str, ...]:
        raise ConnectionFailed("it can't be reached")

    monkeypatch.setattr(ProviderClient, "models", away)
    house = await household(LLM)
    assert "no list of models: it can't be reached" in (await house.command("ann", "/model")).text
    reply = await house.command("ann", "/model gpt-99")
    assert (reply.ok, "could not be checked: it can't be reached" in reply.text) == (True, True)


async def test_other_engines_are_not_asked(household: Open, asked: list[str]) -> None:
    house = await household(agent("ann"), {"name": "bob", "engine": "claude"})
    assert "no list" not in (await house.command("ann", "/model")).text
    assert "models of its own" in (await house.command("bob", "/model")).text
    assert asked == []


async def test_nobody_but_an_operator_gets_the_list(household: Open, asked: list[str]) -> None:
    house = await household(LLM)
    control: Any = house.daemon.control
    assert (await control.models("ann", OPERATOR)).names == KNOWN
    with pytest.raises(Exception, match="only an operator"):
        await control.models("ann", EVE)
