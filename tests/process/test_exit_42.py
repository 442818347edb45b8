"""Exit 42 is a request, never a failure; crashes back off, give up loudly, are revived from chat."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    {"match": "exit", "steps": [{"effect": "effects.txt"}, {"say": "bye"}, {"exit": 42}]},
    {"match": "exit slowly", "steps": [{"sleep": 0.3}, {"say": "bye"}, {"exit": 42}]},
    {"match": "crash (.*)", "steps": [{"effect": "effects.txt"}, {"crash": "boom $1"}]},
    {
        "match": "wait for it",
        "steps": [
            {
                "tool": {
                    "name": "exec",
                    "args": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]},
                }
            },
            {"say": "so"},
        ],
    },
    {"match": "hi", "steps": [{"say": "hello"}]},
]
WITHIN_AN_HOUR = (
    "import sys\n"
    "from agentsup.daemon import main\n"
    "main.STORM_WINDOW_MS = 3_600_000\n"
    "from agentsup.cli.main import main\n"
    "sys.exit(main())\n"
)
FAST = {"base_s": 0.05, "cap_s": 0.1, "max_restarts": 1}


def effects(daemon: DaemonProcess, agent: str) -> list[str]:
    path = daemon.home / "agents" / agent / "workspace" / "effects.txt"
    return path.read_text().split() if path.exists() else []


async def notice(chat: Chat, text: str, timeout_s: float = BOUND_S) -> str:
    """The first notice with ``text`` in it."""
    seen = 0
    async with asyncio.timeout(timeout_s):
        while True:
            for frame in chat.frames[seen:]:
                data = frame.get("event", {}).get("data", {})
                if data.get("kind") == "notice" and text in data["text"]:
                    return str(data["text"])
            seen = len(chat.frames)
            await chat.more()


@pytest.mark.timeout(180)
async def test_a_sub_agent_asks_three_times_for_a_rebuild(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "ann", "bob"], RULES)
    await daemon.start()
    pid, before = daemon.pid, await daemon.agents()
    chat = await daemon.chat("bob")
    instances = {before["bob"]["instance_id"]}
    for _ in range(3):
        assert await chat.ask("exit") == "bye"
        view = await daemon.until("bob", "running", last_crash_error="")
        while view["instance_id"] in instances:
            view = await daemon.until("bob", "running", last_crash_error="")
        instances.add(view["instance_id"])
        assert await chat.ask("hi") == "hello"
    after = await daemon.agents()
    assert len(instances) == 4
    assert (daemon.pid, daemon.is_running) == (pid, True)
    for name in ("main", "ann"):
        assert after[name]["instance_id"] == before[name]["instance_id"], name
    assert after["bob"]["last_crash_error"] == ""
    assert after["bob"]["restarts"] == 0
    # One line per message: none of the three triggers was run again.
    lines = effects(daemon, "bob")
    assert len(lines) == len(set(lines)) == 3
    assert after["bob"]["agent_id"] == before["bob"]["agent_id"]


@pytest.mark.timeout(180)
async def test_a_stop_that_races_42_wins_and_sticks(make_daemon: MakeDaemon) -> None:
    """D5: stopped stays stopped, through edits and restarts, until started."""
    daemon = make_daemon(["main", "bob"], RULES)
    await daemon.start()
    chat, main = await daemon.chat("bob"), await daemon.chat("main")
    message_id = await chat.say("exit slowly")
    reply = await main.command("/agent_stop bob")
    assert "stopped" in reply["text"]
    assert (await chat.event(message_id))["text"] == "bye"
    view = (await daemon.agents())["bob"]
    assert (view["status"], view["desired"], view["last_crash_error"]) == ("stopped", "down", "")
    # An edit of another agent does not revive it, and neither does a restart of the daemon.
    path = daemon.home / "agents.json"
    path.write_text(path.read_text().replace("[", '[{"name": "ann", "engine": "scripted"},', 1))
    await daemon.until("ann", "running")
    assert (await daemon.agents())["bob"]["status"] == "stopped"
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert (await daemon.agents())["bob"]["status"] == "stopped"
    main = await daemon.chat("main")
    assert (await main.command("/agent_start bob"))["ok"]
    assert await (await daemon.chat("bob")).ask("hi") == "hello"


@pytest.mark.timeout(180)
async def test_main_that_loops_on_42_ends_with_1(make_daemon: MakeDaemon) -> None:
    """Under something that restarts on 42: after ten in a while the storm is a failure."""
    tools = {"tools": ["exec"], "permission_mode": "bypassPermissions"}
    never = 'restart_in_place = "never"\n'
    command = ("-c", WITHIN_AN_HOUR)
    daemon = make_daemon([{"name": "main", **tools}], RULES, never, command=command, loaded=DAEMON)
    await daemon.start()
    await daemon.send("main", "wait for it")
    for number in range(12):
        await daemon.send("main", "exit", idempotency_key=f"exit-{number}")
    (daemon.home / "agents/main/workspace/go").touch()
    codes = [await daemon.ended()]
    while codes[-1] == 42:
        assert len(codes) < 15
        daemon.launch()
        codes.append(await daemon.ended())
    assert codes == [42] * 10 + [1]
    lines = effects(daemon, "main")
    assert len(lines) == len(set(lines)) == 11
    assert "restart" in daemon.tail()


@pytest.mark.timeout(180)
async def test_42_of_main_without_anyone_above_is_done_in_place(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "bob"], RULES, 'restart_in_place = "always"\n')
    await daemon.start()
    pid, boot = daemon.pid, (await daemon.get("/status"))["boot_id"]
    message_id = await (await daemon.chat("main")).say("exit")
    await daemon.ready()
    await daemon.leave()
    # The socket may have closed before the answer got through it; who comes back has it.
    assert (await (await daemon.chat("main", after=0)).event(message_id))["text"] == "bye"
    status = await daemon.get("/status")
    assert (daemon.is_running, status["pid"]) == (True, pid)
    assert status["boot_id"] != boot
    assert await (await daemon.chat("main")).ask("hi") == "hello"
    assert len(effects(daemon, "main")) == 1
    assert await daemon.stop() == 0


@pytest.mark.timeout(180)
async def test_restart_is_42_from_chat_http_and_by_a_tool(make_daemon: MakeDaemon) -> None:
    """Each begins anew once, with its mail kept, and no other agent with it."""
    tool = {"match": "renew", "steps": [{"tool": {"name": "restart"}}, {"say": "so be it"}]}
    home: list[Any] = [
        "main",
        {"name": "bob", "tools": ["restart"], "permission_mode": "bypassPermissions"},
        "ann",
    ]
    daemon = make_daemon(home, [tool, *RULES], 'restart_in_place = "always"\n')
    await daemon.start()
    pid, before = daemon.pid, await daemon.agents()

    bob = await daemon.chat("bob")
    refused = await bob.command("/restart ann")
    assert not refused["ok"]
    assert "bob" in (await bob.command("/restart"))["text"]
    view = await daemon.until("bob", "running", last_crash_error="")
    assert view["instance_id"] != before["bob"]["instance_id"]
    assert await bob.ask("renew") == "so be it"
    async with asyncio.timeout(BOUND_S):
        while (await daemon.agents())["bob"]["instance_id"] == view["instance_id"]:
            await asyncio.sleep(0.05)
    await daemon.until("bob", "running", last_crash_error="")
    after = await daemon.agents()
    assert after["ann"]["instance_id"] == before["ann"]["instance_id"]
    assert after["bob"]["restarts"] == 0

    main, boot = await daemon.chat("main"), (await daemon.get("/status"))["boot_id"]
    assert "The daemon restarts" in (await main.command("/restart"))["text"]
    boot = await begun_anew(daemon, boot)
    assert await (await daemon.chat("main")).ask("hi") == "hello"
    answer = await daemon.post("/restart", {})
    assert answer.body["state"] == "restarting"
    await begun_anew(daemon, boot)
    assert (daemon.pid, daemon.is_running) == (pid, True)
    assert await daemon.stop() == 0


async def begun_anew(daemon: DaemonProcess, boot: str) -> str:
    """The id of the next boot, once it is ready."""
    await daemon.ready()
    await daemon.leave()
    now = str((await daemon.get("/status"))["boot_id"])
    assert now != boot
    return now


@pytest.mark.timeout(180)
async def test_a_crash_gives_up_loudly_and_is_revived_from_chat(make_daemon: MakeDaemon) -> None:
    """D3, D4: restarts are counted and shown, a dead agent can be started again."""
    daemon = make_daemon(["main", {"name": "bob", "restart": FAST}, "ann"], RULES)
    await daemon.start()
    main, chat = await daemon.chat("main"), await daemon.chat("bob")
    ann = (await daemon.agents())["ann"]["instance_id"]
    message_id = await chat.say("crash one")
    told = await notice(main, "bob")
    assert "boom one" in told
    assert "/agent_start bob" in told
    view = await daemon.until("bob", "failed")
    assert view["restarts"] >= 1
    assert "boom one" in view["last_crash_error"]
    health = (await daemon.get("/interagent/health"))["agents"]["bob"]
    assert (health["status"], health["crashed"]) == ("failed", True)
    assert health["restart_count"] >= 1
    refused = await daemon.post("/interagent/send", {"to": "bob", "message": "hi"})
    assert refused.status == 409
    assert "/agent_start bob" in refused.body["detail"]
    assert refused.body["success"] is False
    # What crashed its stack twice is dead, and its asker knows.
    result = await daemon.result(message_id)
    assert (result["state"], result["success"]) == ("dead", False)
    await notice(chat, "boom one")
    assert "crash one" in (await main.command("/dead"))["text"]
    assert (await main.command("/agent_start bob"))["ok"]
    assert await chat.ask("hi") == "hello"
    assert (await daemon.agents())["ann"]["instance_id"] == ann


@pytest.mark.timeout(180)
async def test_a_start_that_always_fails_ends_in_failed(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", {"name": "bob", "restart": FAST}], RULES)
    place = daemon.home / "agents" / "bob"
    place.mkdir(parents=True)
    (place / "workspace").write_text("a file where a folder should be")
    await daemon.start()
    view = await daemon.until("bob", "failed")
    assert "workspace" in view["last_crash_error"], view
    assert await (await daemon.chat("main")).ask("hi") == "hello"
    (place / "workspace").unlink()
    assert (await (await daemon.chat("main", "other")).command("/agent_start bob"))["ok"]
    assert await (await daemon.chat("bob")).ask("hi") == "hello"


HANGING = """
import asyncio, sys
from agentsup.agents.workspace.shared_memory import SharedKnowledge
real = SharedKnowledge.copy_to
async def copy_to(self, workspace):
    if workspace.parent.name == "bob" and not (workspace.parent / "go").exists():
        await asyncio.Event().wait()
    await real(self, workspace)
SharedKnowledge.copy_to = copy_to
from agentsup.cli.main import main
sys.exit(main())
"""


@pytest.mark.timeout(180)
async def test_a_start_that_always_hangs_ends_in_failed(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    launcher = tmp_path / "hanging.py"
    launcher.write_text(HANGING)
    daemon = make_daemon(
        ["main", {"name": "bob", "restart": FAST}],
        RULES,
        "[limits]\nready_timeout_s = 1\n",
        command=(str(launcher),),
    )
    await daemon.start()
    main = await daemon.chat("main")
    assert "bob" in await notice(main, "bob")
    assert (await daemon.agents())["bob"]["status"] == "failed"
    assert await main.ask("hi") == "hello"
    (daemon.home / "agents" / "bob" / "go").touch()
    assert (await main.command("/agent_start bob"))["ok"]
    assert await (await daemon.chat("bob")).ask("hi") == "hello"


@pytest.mark.timeout(180)
async def test_a_crash_of_main_ends_the_daemon_with_1(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "bob"], RULES)
    await daemon.start()
    bob, main = await daemon.chat("bob"), await daemon.chat("main")
    await main.say("crash main")
    assert await daemon.ended() == 1
    del bob
    # The message that did it runs once more, is dead then, and main is there for others.
    daemon.launch()
    assert await daemon.ended() == 1
    await daemon.start()
    assert await (await daemon.chat("main", "other")).ask("hi") == "hello"
    assert len(set(effects(daemon, "main"))) == 1
