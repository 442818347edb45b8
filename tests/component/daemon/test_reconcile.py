"""Reconcile over the real fleet: an edit touches what it changes, and nothing else."""

import json
from typing import Any

import pytest

from agentsup.daemon.reconcile import keep_applied
from agentsup.mailbox.bus import BusRequest
from agentsup.model.errors import AgentDown, Conflict, Gone, NotFound
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.testing.household import agent
from tests.component.conftest import Open

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
    assert (await house.daemon.mailbox.wait_done(slow, 60)).result_text == "slept"


async def test_a_live_field_is_swapped_in_place(household: Open) -> None:
    house = await household(agent("ann", description="old"))
    before = house.instances()
    assert await house.save([agent("ann", description="new")])
    await house.settled()
    assert house.instances() == before
    stack = house.unit("ann").stack
    assert stack is not None
    assert "new" in stack.system_prompt()


async def test_ten_edits_in_a_row_end_in_the_last(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    ben = house.instances()["ben"]
    for number in range(10):
        assert await house.save([agent("ann", provider=f"p{number}"), agent("ben")])
    await house.settled()
    built = house.unit("ann").built
    assert built is not None
    assert built.provider == "p9"
    assert house.instances()["ben"] == ben


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
    message = await house.daemon.mailbox.get(slow)
    assert (message.result_text, message.attempts) == ("slept", 1)


async def test_a_turn_longer_than_the_drain_is_released_and_goes_on(household: Open) -> None:
    rule = {"match": "long", "steps": [{"sleep": 40}, {"say": "at last"}]}
    house = await household(agent("ann", rule))
    long = await house.said("ann", "long")
    await house.clock.sleep(1)
    await house.save([agent("ann", rule, provider="x")])
    await house.settled()
    message = await house.daemon.mailbox.wait_done(long, 120)
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
        house.roster.lookup("ann")
    assert await house.state_of(waiting) == "queued"
    assert house.daemon.fleet.get(ann) is None
    assert await house.save([agent("ann"), agent("ben")])
    await house.settled()
    assert house.roster.entry("ann").agent_id == ann
    assert (await house.daemon.mailbox.wait_done(waiting, 60)).outcome == "ok"


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
    assert (await house.daemon.mailbox.wait_done(slow, 60)).result_text == "slept"
    assert (await house.ask("ann", "still there")).outcome == "ok"


async def test_tokens_of_a_removed_agent_die(household: Open) -> None:
    house = await household(agent("ann"))
    token = house.tokens.issue_run(house.roster.entry("ann").agent_id, "ann", "msg_1")
    assert house.tokens.identify(token) is not None
    await house.save([])
    await house.settled()
    assert house.tokens.identify(token) is None
    assert house.tokens.identify("token-of-the-operator") is not None


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
    assert (await house.daemon.mailbox.wait_done(waiting, 60)).outcome == "ok"


async def test_auto_that_chooses_another_engine_rebuilds(household: Open) -> None:
    entry = {"name": "ann", "engine": "auto", "engine_options": {"api_key": "key-key-key"}}
    house = await household(entry)
    before = house.instances()
    assert (await house.daemon.control.agent("ann")).engine == "scripted"
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


async def test_overrides_persist_and_end_with_an_edit_of_their_field(household: Open) -> None:
    house = await household(thinker(model="file-1"))
    reply = await house.command("ann", "/model mine")
    assert "mine" in reply.text
    assert house.unit("ann").spec.model == "mine"
    assert (await house.daemon.control.diff())["overrides"] == ["ann: model = 'mine'"]
    await house.restart()
    assert house.unit("ann").spec.model == "mine"
    await house.save([thinker(model="file-1", description="another field")])
    assert house.unit("ann").spec.model == "mine"
    await house.save([thinker(model="file-2")])
    assert house.unit("ann").spec.model == "file-2"
    assert (await house.daemon.control.diff())["overrides"] == []
    await house.until(lambda: any("override" in text for text in house.texts()))


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
    house.daemon.reconciler.close()
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


async def test_unknown_names_get_a_suggestion(household: Open) -> None:
    house = await household(agent("coder"))
    with pytest.raises(NotFound, match="coder") as found:
        await house.daemon.control.agent("codr")
    assert found.value.facts["did_you_mean"] == "coder"
    assert (await house.daemon.control.agent("CODER")).name == "coder"
    user = Principal(PrincipalKind.PERSON, "eve")
    reply = await house.command("main", "/agent_stop coder", who=user)
    assert not reply.ok
    assert "operator" in reply.text
