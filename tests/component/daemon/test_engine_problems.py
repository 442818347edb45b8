"""An engine that can't answer is seen with its true reason, and hurts no other agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.cli.output.reads import engine_notes
from agentsup.model.control import AgentView
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

WRONG_KEY = {
    "match": "refused",
    "steps": [{"trouble": {"code": "auth_failed", "text": "p.example does not accept the key"}}],
}
NO_CREDIT = {
    "match": "broke",
    "steps": [{"trouble": {"code": "quota_exceeded", "text": "no credit left"}}],
}
BUSY = {"match": "silent", "steps": [{"fail": "it fell over"}]}
ANSWERS = {"match": "well", "steps": [{"say": "yes"}]}


async def view(house: VirtualDaemon, name: str) -> AgentView:
    return await house.daemon.control.agent(name)


async def test_what_a_provider_said_is_seen_until_it_answers(household: Open) -> None:
    house = await household(agent("ann", WRONG_KEY, ANSWERS, BUSY), agent("ben", ANSWERS))
    await house.ask("ann", "silent")
    assert ((await view(house, "ann")).engine_problem, house.state("ann")) == ("", "running")
    await house.ask("ann", "refused")
    seen = await view(house, "ann")
    assert seen.engine_problem == "p.example does not accept the key"
    assert seen.engine_problem in seen.warnings
    assert (seen.status, house.state("ben")) == ("degraded", "running")
    assert engine_notes([{"name": "ann", "engine_problem": seen.engine_problem}])
    assert "does not accept the key" in (await house.command("ann", "/start")).text
    assert "does not accept the key" in (await house.command("ann", "/status")).text
    await house.ask("ann", "well")
    seen = await view(house, "ann")
    assert (seen.engine_problem, seen.status) == ("", "running")


async def test_an_edit_and_a_new_life_forget_what_a_provider_said(household: Open) -> None:
    house = await household(agent("ann", WRONG_KEY))
    await house.ask("ann", "refused")
    await house.save([agent("ann", WRONG_KEY, description="mended")])
    assert (await view(house, "ann")).engine_problem == ""
    await house.until(lambda: house.state("ann") == "running")
    await house.ask("ann", "refused")
    assert house.state("ann") == "degraded"
    await house.command("main", "/agent_restart ann")
    assert (await view(house, "ann")).status == "running"


async def test_a_fallback_that_answers_hides_no_reason(household: Open) -> None:
    spare = {"fallback_model": "spare", "fallback_options": {"rules": [ANSWERS, NO_CREDIT]}}
    house = await household(agent("ann", {**WRONG_KEY, "match": "well|broke|refused"}, **spare))
    assert (await house.ask("ann", "well")).outcome == "ok"
    assert (await view(house, "ann")).engine_problem == "p.example does not accept the key"
    await house.ask("ann", "broke")
    problem = (await view(house, "ann")).engine_problem
    assert problem == "p.example does not accept the key; its fallback: no credit left"


async def test_main_without_its_key_starts_degraded_and_answers_once_the_file_is_back(
    household: Open, tmp_path: Path
) -> None:
    """Without a stand-in for its engine, main's start failed and ended the whole daemon."""
    key = tmp_path / "home" / "secrets" / "own.key"
    main = agent("main", ANSWERS)
    main["engine_options"]["api_key"] = "file:secrets/own.key"
    house = await household(main, agent("ben", ANSWERS))
    assert (house.state("main"), house.state("ben")) == ("degraded", "running")
    seen = await view(house, "main")
    assert "own.key" in seen.engine_problem
    assert "own.key" in seen.last_reason
    refused = await house.ask("main", "well")
    assert (refused.outcome, refused.error_code) == ("failed", "engine_not_configured")
    await house.until(lambda: any("own.key" in text for text in house.texts()))
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text("sk-of-nobody")
    key.chmod(0o600)
    assert (await house.ask("main", "well")).result_text == "yes"
    await house.until(lambda: house.state("main") == "running")
    assert (await view(house, "main")).engine_problem == ""


async def test_a_model_among_the_options_is_shown_and_its_lost_key_told_first(
    household: Open,
) -> None:
    options = {"model": "good-mini", "api_key": "file:secrets/own.key"}
    house = await household({"name": "ann", "engine": "auto", "engine_options": options})
    seen = await view(house, "ann")
    assert (seen.engine, seen.model) == ("llm", "good-mini")
    why = "he secret file"
    assert seen.engine_problem.startswith(f"t{why}")
    message = await house.ask("ann", "hello")
    assert (message.outcome, message.error_code) == ("failed", "engine_not_configured")
    await house.until(lambda: any(text.startswith(f"T{why}") for text in house.texts()))
    assert any("`agentsup setup`" in text for text in house.texts())
