"""What people see of the daemon, and what the daemon writes down about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.daemon.assembly.metrics import REPORTED_EVERY_S, StallReporter
from agentsup.kit.lag import Stall
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.principal import OPERATOR
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent, bar_workspace

pytestmark = pytest.mark.virtual

BAD = {"match": "bad", "steps": [{"crash": "boom"}]}
SLOW = {"match": "slow", "steps": [{"sleep": 600}]}


QUICKLY = {"restart": {"base_s": 1, "jitter": 0}}


async def test_a_view_tells_restarts_reason_and_next_try(household: Open) -> None:
    house = await household(agent("ann", BAD))
    await house.said("ann", "bad")
    await house.until(lambda: house.state("ann") == "backoff")
    view = await house.daemon.control.agent("ann")
    assert view.status == "backoff"
    assert "boom" in view.last_reason
    assert "boom" in view.last_crash_error
    assert view.next_retry_at is not None
    assert view.next_retry_at > house.clock.now_ms()
    assert view.instance_id == ""
    await house.settled()
    view = await house.daemon.control.agent("ann")
    assert view.restarts >= 1
    assert view.uptime_s is not None
    assert view.uptime_s < 60
    text = (await house.command("main", "/agents")).text
    assert "restart" in text
    assert "boom" in text


async def test_giving_up_is_told_once_and_left_by_a_start(household: Open, tmp_path: Path) -> None:
    bar = bar_workspace(tmp_path / "home", "bad")
    house = await household(agent("ann"), agent("bad", **QUICKLY))
    await house.until(lambda: house.state("bad") == "failed", within_s=3600)
    await house.until(lambda: any("bad has failed and stays down" in t for t in house.texts()))
    await house.clock.sleep(3600)
    assert sum("has failed" in text for text in house.texts()) == 1
    assert house.state("bad") == "failed"
    assert house.state("ann") == "running"
    health = (await house.daemon.control.agent("bad")).last_reason
    assert "bad" in health
    bar.unlink()
    reply = await house.command("main", "/agent_start bad")
    assert "bad is running" in reply.text


async def test_endings_are_kept_and_shown_after_a_restart(household: Open) -> None:
    house = await household(agent("ann", BAD))
    await house.ask("ann", "bad")
    await house.until(lambda: house.unit("ann").child.status.life == 3)
    rows = await house.sql("SELECT child_id, kind, reason FROM endings")
    ann = house.roster.entry("ann").agent_id
    crashes = [row for row in rows if row[:2] == (ann, "crashed")]
    assert len(crashes) == 2, "both lives that ended in a crash"
    assert all("boom" in row[2] for row in crashes)
    await house.restart()
    view = await house.daemon.control.agent("ann")
    assert "boom" in view.last_reason


async def test_an_operators_stop_is_sticky(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    await house.command("main", "/agent_stop ann")
    await house.save([agent("ann", description="edited"), agent("ben", provider="x")])
    await house.settled()
    assert house.state("ann") == "stopped"
    await house.restart()
    assert house.state("ann") == "stopped"
    view = await house.daemon.control.agent("ann")
    assert (view.status, view.desired) == ("stopped", "down")
    await house.command("main", "/agent_restart ann")
    assert house.state("ann") == "running"
    assert (await house.daemon.control.agent("ann")).desired == "up"


async def test_main_cant_be_stopped_alone(household: Open) -> None:
    house = await household()
    with pytest.raises(Conflict, match="agentsup stop"):
        await house.daemon.control.stop_agent("main", OPERATOR)
    before = house.instances()
    await house.daemon.control.restart_agent("main", OPERATOR)
    assert house.instances() != before


async def test_status_diff_and_explain(household: Open) -> None:
    house = await household(
        agent("ann", SLOW, model="m1"), config="[agent_defaults]\nprovider = 'p'\n"
    )
    status = await house.daemon.control.status()
    assert (status.agents_up, status.agents_total) == (2, 2)
    assert status.conservation["accepted"] == 0
    rows = {row["field"]: row for row in await house.daemon.control.explain("ann")}
    assert (rows["model"]["value"], rows["model"]["origin"]) == ("m1", "agents.json")
    assert rows["provider"]["value"] == "p"
    assert rows["provider"]["origin"] != rows["model"]["origin"]
    assert rows["slots.peer"]["origin"] not in (rows["model"]["origin"], rows["provider"]["origin"])
    with pytest.raises(NotFound):
        await house.daemon.control.explain("nobody")
    house.home.config_toml.write_text("[agent_defaults]\nprovider = 'p'\n[api]\nport = 9999\n")
    assert await house.daemon.reconciler.reload()
    assert "api.port" in (await house.daemon.control.diff())["process"]
    assert "Needs a restart" in (await house.command("main", "/agent_diff")).text


async def test_tell_of_a_stalled_loop_at_most_every_ten_minutes(household: Open) -> None:
    house = await household()
    tasks = TaskOwner("stalls")
    teller = StallReporter(house.clock, tasks, house.daemon.alarm.tell)
    teller.report(Stall(0.5, "turn:short"))
    for _ in range(5):
        teller.report(Stall(2.0, "turn:msg_1"))
        await house.clock.sleep(10)
    await house.clock.sleep(REPORTED_EVERY_S)
    teller.report(Stall(3.0, "turn:msg_2"))
    await house.clock.sleep(5)
    told = [text for text in house.texts() if "stood still" in text]
    assert len(told) == 2
    assert "turn:msg_1" in told[0]
    assert "turn:short" not in "".join(told)
    await tasks.close(1)


async def test_the_way_of_a_boot_is_written_down(household: Open) -> None:
    house = await household()
    await house.restart(kill=True)
    await house.restart()
    rows = await house.sql("SELECT boot_id, ended_at FROM boots ORDER BY started_at, boot_id")
    assert [row[0] for row in rows] == ["boot-1", "boot-2", "boot-3"]
    assert {e.exit_code for e in house.boot.earlier} == {None}
    assert isinstance(house, VirtualDaemon)
