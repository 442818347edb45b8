"""Reconcile over the real fleet: an edit touches what it changes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsup.config import validate
from agentsup.daemon.assembly import children
from agentsup.daemon.runtime.reconcile import keep_applied
from agentsup.mailbox.mail import BusRequest
from agentsup.model.errors import AgentDown, Conflict, Gone
from agentsup.model.health import AgentState
from agentsup.model.principal import OPERATOR
from agentsup.supervision import SupervisedChild
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

SLOW = {"match": "slow", "steps": [{"sleep": 20}, {"say": "slept"}]}
HOLD = {"match": "hold", "steps": [{"sleep": 3600}]}


async def test_an_edit_leaves_the_others_alone(household: Open) -> None:
    house = await household(agent("ann", SLOW), agent("ben"))
    before = house.instances()
    slow = await house.said("ann", "slow")
    assert await house.save([agent("ann", SLOW), agent("ben", provider="x"), agent("cat")])
    await house.settled()
    after = house.instances()
    assert after["ann"] == before["ann"]
    assert after["main"] == before["main"]
    assert after["ben"] != before["ben"]
    assert "cat" in after
    assert (await house.daemon.mailbox.queue.wait_done(slow, 60)).result_text == "slept"


async def test_who_has_failed_is_tried_again_by_an_edit_of_its_own_entry_only(
    household: Open,
) -> None:
    crash = {"match": "crash", "steps": [{"crash": "boom"}]}
    once = {"restart": {"max_restarts": 0}}
    house = await household(agent("ann"), agent("ben", crash, **once))
    await house.said("ben", "crash")
    await house.unit("ben").child.until(AgentState.FAILED)
    failed = house.unit("ben").instance_id
    assert await house.save([agent("ann", provider="x"), agent("ben", crash, **once)])
    await house.settled()
    assert house.unit("ben").instance_id == failed
    assert house.unit("ben").child.state is AgentState.FAILED
    assert await house.save([agent("ann", provider="x"), agent("ben", provider="x", **once)])
    await house.settled()
    assert house.unit("ben").child.state is AgentState.RUNNING


async def test_an_edit_while_it_drains_is_part_of_the_next_life(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    assert await house.save([agent("ann", SLOW, provider="one")])
    await house.clock.sleep(1)
    assert house.state("ann") == "stopping"
    assert "rebuild pending" in (await house.daemon.control.agent("ann")).pending
    assert await house.save([agent("ann", SLOW, provider="two")])
    await house.settled()
    assert house.unit("ann").child.status.life == 2
    built = house.unit("ann").built
    assert built is not None
    assert built.provider == "two"
    assert (await house.daemon.control.agent("ann")).pending == ""
    # Its turn ended within the drain: once, and undisturbed.
    message = await house.daemon.mailbox.messages.get(slow)
    assert (message.result_text, message.attempts) == ("slept", 1)


async def test_a_turn_longer_than_the_drain_is_released_and_goes_on(household: Open) -> None:
    rule = {"match": "long", "steps": [{"sleep": 40}, {"say": "at last"}]}
    house = await household(agent("ann", rule))
    long = await house.said("ann", "long")
    await house.clock.sleep(1)
    await house.save([agent("ann", rule, provider="x")])
    await house.settled()
    message = await house.daemon.mailbox.queue.wait_done(long, 120)
    assert message.result_text == "at last"
    assert message.attempts == 1
    assert message.fence == 2


async def test_a_removed_agent_keeps_its_mail_and_id(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    await house.command("main", "/agent_stop ann")
    waiting = await house.said("ann", "hello")
    ann = house.roster.entry("ann").agent_id
    assert await house.save([agent("ben")])
    await house.settled()
    with pytest.raises(Gone):
        house.daemon.directory.lookup("ann")
    assert await house.state_of(waiting) == "queued"
    assert house.daemon.fleet.get(ann) is None
    assert await house.save([agent("ann"), agent("ben")])
    await house.settled()
    assert house.roster.entry("ann").agent_id == ann
    assert (await house.daemon.mailbox.queue.wait_done(waiting, 60)).outcome == "ok"


async def test_an_agent_that_comes_back_while_it_drains_is_the_same_agent(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    assert await house.save([])
    await house.clock.sleep(1)
    assert house.unit_of_any("ann").child.state.value == "stopping"
    assert await house.save([agent("ann", SLOW)])
    await house.settled()
    assert house.state("ann") == "running"
    assert (await house.daemon.mailbox.queue.wait_done(slow, 60)).result_text == "slept"
    assert (await house.ask("ann", "still there")).outcome == "ok"


async def test_disabled_agents_are_down_and_their_mail_waits(household: Open) -> None:
    house = await household(agent("ann", enabled=False))
    assert house.state("ann") == "stopped"
    waiting = await house.said("ann", "hello")
    assert (await house.daemon.control.agent("ann")).desired == "down"
    reply = await house.command("main", "/agent_start ann")
    assert not reply.ok
    assert "enabled" in reply.text
    await house.save([agent("ann", enabled=True)])
    await house.settled()
    assert (await house.daemon.mailbox.queue.wait_done(waiting, 60)).outcome == "ok"


async def test_auto_that_chooses_another_engine_rebuilds(household: Open) -> None:
    entry = {"name": "ann", "engine": "auto"}
    house = await household(entry)
    before = house.instances()
    assert (await house.daemon.control.agent("ann")).engine == "scripted", "nobody named a model"
    await house.save([{**entry, "model": "some-model"}])
    await house.settled()
    view = await house.daemon.control.agent("ann")
    stack = house.unit("ann").stack
    assert stack is not None
    assert (view.engine, stack.engine.name) == ("llm", "llm")
    assert house.instances()["ann"] != before["ann"]
    assert house.instances()["main"] == before["main"]


def thinker(**more: Any) -> dict[str, Any]:
    """An agent whose engine is told a model; it is not run here."""
    return {"name": "ann", "engine": "command", "engine_options": {"command": ["true"]}, **more}


async def test_an_override_over_broken_files_says_so(household: Open) -> None:
    house = await household(thinker(model="file"))
    await house.save("[{")
    with pytest.raises(Conflict, match="mended"):
        await house.daemon.control.set_override("ann", "model", "mine", OPERATOR)
    await house.save([thinker(model="file")])
    assert house.unit("ann").spec.model == "mine"


async def test_a_boot_over_a_broken_file_uses_what_was_applied_last(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    house.write('[{"name": "ann"},')
    await house.restart(kill=True)
    assert {"main", "ann", "ben"} == set(house.instances())
    status = await house.daemon.control.status()
    assert "agents.json" in status.config_error
    assert "line 1" in status.config_error or ":1:" in status.config_error
    await house.until(lambda: any("not applied" in text for text in house.texts()))
    before = house.instances()
    await house.save([agent("ann"), agent("ben")])
    await house.settled()
    assert house.instances() == before
    assert (await house.daemon.control.status()).config_error == ""


async def test_what_is_kept_as_applied_was_valid(household: Open) -> None:
    """A save between reading and keeping must not slip into the copy that a boot relies on."""
    house = await household(agent("ann"))
    good = house.home.agents_json.read_text()
    applied = house.home.root / "applied" / "agents.json"
    assert applied.read_text() == good
    snapshot = house.daemon.reconciler.snapshot
    house.write("[{ half")
    keep_applied(house.home, snapshot)
    assert applied.read_text() == good
    house.write(json.loads(good))


async def test_one_complaint_per_state_of_the_file(household: Open) -> None:
    house = await household(agent("ann"))
    before = house.instances()
    for _ in range(5):
        assert not await house.save('[{"name": "ann", "modle": "x"}]')
    await house.until(lambda: any("modle" in text for text in house.texts()))
    await house.clock.sleep(5)
    assert sum("modle" in text for text in house.texts()) == 1
    assert house.instances() == before
    error = (await house.daemon.control.diff())["config_error"]
    assert "modle" in error
    assert "model" in error


async def test_starting_and_stopping_race_edits(household: Open) -> None:
    house = await household(agent("ann", HOLD), agent("ben"))
    control = house.daemon.control
    await house.said("ann", "hold")
    await house.clock.sleep(1)
    await house.save([agent("ann", HOLD, provider="x"), agent("ben")])
    await house.clock.sleep(1)
    assert house.state("ann") == "stopping"
    # The stop is not lost behind the rebuild under way, and a start after it is not, either.
    await control.stop_agent("ann", OPERATOR)
    await house.until(lambda: house.state("ann") == "stopped")
    await control.start_agent("ann", OPERATOR)
    await house.settled()
    assert house.state("ann") == "running"
    built = house.unit("ann").built
    assert built is not None
    assert built.provider == "x"
    assert house.unit("ann").child.status.abandoned == 0


async def test_nothing_is_started_once_the_daemon_ends(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    house.daemon.ending.end(0, "asked")
    await house.daemon.fleet.stop_all(None)
    await house.save([agent("ann", provider="x"), agent("ben"), agent("cat")])
    house.daemon.reconciler.wake(house.unit("ann"), was_edited=True)
    await house.clock.sleep(5)
    assert house.state("ann") == "stopped"
    assert house.instances() == {}


async def test_waiting_for_an_agent_that_is_rebuilt(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    await house.said("ann", "slow")
    await house.clock.sleep(1)
    await house.save([agent("ann", SLOW, provider="x")])
    await house.clock.sleep(1)
    assert house.state("ann") == "stopping"
    reply = await house.daemon.bus.send(BusRequest("ann", "hello"), caller=OPERATOR, timeout_s=60)
    assert reply.sender == "ann"
    await house.daemon.control.stop_agent("ann", OPERATOR)
    with pytest.raises(AgentDown, match="/agent_start ann"):
        await house.daemon.bus.send(BusRequest("ann", "hello"), caller=OPERATOR, timeout_s=60)


def scripted(name: str, script: str) -> dict[str, Any]:
    return {"name": name, "engine": "scripted", "engine_options": {"script": script}}


async def test_an_edit_that_names_no_usable_script_is_refused_until_there_is_one(
    household: Open,
) -> None:
    house = await household(agent("ann"))
    before = house.instances()
    rules = house.home.root / "rules.yaml"
    house.write([agent("ann"), agent("ben"), scripted("cat", "file:rules.yaml")])
    for text in (None, "- match: x\n  shout: y\n"):
        if text is not None:
            rules.write_text(text)
        assert not await house.daemon.reconciler.reload()
        assert house.instances() == before
        assert "script" in house.daemon.reconciler.config_error
    own = {"name": "ann", "engine": "scripted", "engine_options": {"rules": [{"match": "("}]}}
    assert not await house.save([own])
    house.write([agent("ann"), agent("ben"), scripted("cat", "file:rules.yaml")])
    child = SupervisedChild(
        children.scripts_spec(house.daemon.reconciler),
        clock=house.clock,
        entropy=house.entropy,
        record=house.daemon.board.record,
    )
    assert not await house.daemon.reconciler.reload()
    child.start()
    rules.write_text("- match: '(.+)'\n  steps: [{say: purr}]\n")
    await house.until(lambda: "cat" in house.instances())
    await house.settled()
    assert (await house.ask("cat", "hello")).result_text == "purr"
    # Broken later, it degrades its agent alone until it is mended, and refuses no edit of others.
    rules.write_text("- match: (\n")
    await house.until(lambda: house.state("cat") == "degraded")
    assert "the script of cat" in (await house.daemon.control.agent("cat")).last_reason
    await house.until(lambda: any("needs a look" in text for text in house.texts()))
    assert sum("the script of cat" in text for text in house.texts()[-2:]) == 1
    edited = [agent("ann", description="new"), agent("ben"), scripted("cat", "file:rules.yaml")]
    assert await house.save(edited)
    assert house.unit("ann").spec.description == "new"
    rules.write_text("- match: '(.+)'\n  steps: [{say: again}]\n")
    await house.until(lambda: house.state("cat") == "running")
    assert (await house.ask("cat", "hello")).result_text == "again"
    await child.stop()


async def test_a_start_with_a_broken_script_is_degraded(household: Open) -> None:
    house = await household(agent("ann"))
    (house.home.root / "rules.yaml").write_text("[]")
    assert await house.save([agent("ann"), scripted("cat", "rules.yaml")])
    (house.home.root / "rules.yaml").unlink()
    await house.restart()
    assert (house.state("ann"), house.state("cat")) == ("running", "degraded")


async def test_what_waits_for_a_restart_is_told_and_forgotten_when_it_is_put_back(
    household: Open,
) -> None:
    house = await household(agent("ann"))
    config = house.home.config_toml
    before = config.read_bytes() if config.exists() else b""
    config.write_bytes(before + b"\n[api]\nport = 8801\n")
    assert await house.daemon.reconciler.reload()
    assert (await house.daemon.control.diff())["process"] == ["api.port"]
    await house.until(lambda: any("api.port" in text for text in house.texts()))
    assert "restart" in next(text for text in house.texts() if "api.port" in text)
    config.write_bytes(before)
    assert await house.daemon.reconciler.reload()
    assert (await house.daemon.control.diff())["process"] == []


async def test_main_hears_who_was_removed_and_what_an_edit_brings_to_look_at(
    household: Open,
) -> None:
    house = await household(agent("ann"), agent("ben"), agent("cat"))
    for _ in range(3):
        assert await house.save([agent("ann", can_delegate_to=["bem"]), agent("ben")])
    await house.until(lambda: any("'bem'" in text for text in house.texts()))
    assert sum("'bem'" in text for text in house.texts()) == 1
    assert sum("Removed: cat." in text for text in house.texts()) == 1


async def test_a_file_that_vanished_removes_nobody_over_a_restart_either(household: Open) -> None:
    house = await household(agent("ann"))
    house.home.agents_json.unlink()
    assert not await house.daemon.reconciler.reload()
    await house.restart(kill=True)
    assert set(house.instances()) == {"main", "ann"}
    assert "the file is gone" in house.daemon.reconciler.config_error
    (found,) = validate(house.home, {})
    assert (found.is_error, "the file is gone" in found.message) == (True, True)
    assert await house.save([])
    await house.settled()
    assert set(house.instances()) == {"main"}


async def test_a_role_that_an_edit_breaks_is_told_once(household: Open) -> None:
    house = await household(agent("ann"))
    path = house.put_role("smith", "description: Forges.")
    await house.command("main", "/role")  # looks at the files
    path.write_text("---\nname: smith\nmax_tools: [nothing]\n---\nBe.\n")
    for _ in range(2):
        await house.command("main", "/role")
    await house.until(lambda: any("not used as its file stands" in t for t in house.texts()))
    assert sum("'nothing'" in text for text in house.texts()) == 1


async def test_a_rebuild_that_was_asked_for_is_no_reason(household: Open) -> None:
    house = await household(agent("ann"))
    await house.daemon.control.restart_agent("ann", OPERATOR)
    await house.settled()
    assert (await house.daemon.control.agent("ann")).last_reason == ""


async def test_an_edit_that_is_applied_is_told_in_one_line(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"), agent("cat"))
    edited = [
        agent("ann", description="new"),
        agent("ben", {"match": "x", "steps": [{"say": "y"}]}),
        agent("cat", enabled=False),
        agent("dan"),
    ]
    for _ in range(2):  # saved twice, it is told once
        assert await house.save(edited)
    await house.until(lambda: any("Edit applied" in text for text in house.texts()))
    (line,) = [text for text in house.texts() if "Edit applied" in text]
    assert line == (
        "Edit applied: + dan, ~ ann (description; goes on), "
        "~ ben (engine_options.rules; is rebuilt when its turns have ended), ~ cat (enabled; stops). "
        "No other agent was touched."
    )
