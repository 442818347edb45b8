"""Edits of agents.json on a running daemon (P4; D1, D2, D6, D20, D26).

Each round saves a damaged file, waits until it is complained of, then saves a valid one and waits
until it is applied. ``TEST_EDITS`` says how many damaged files (40); ``TEST_EDIT_SEED``
replays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

pytestmark = pytest.mark.process

MANY = 1000 if int(os.environ.get("TEST_KILLS", "0")) >= 500 else 40
EDITS = int(os.environ.get("TEST_EDITS", str(MANY)))
SEED = int(os.environ.get("TEST_EDIT_SEED") or random.SystemRandom().randrange(1 << 32))
SCRIPTED = {"engine": "scripted", "engine_options": {"script": "file:rules.yaml"}}
CHUNKS = 30
RULES: list[dict[str, Any]] = [
    {"match": "stream", "steps": [{"stream": {"chunks": ["a"] * CHUNKS, "every": 0.1}}]},
    {"match": "ask (\\w+)", "steps": [{"tool": {"name": "ask_agent", "args": {"to": "$1",
     "message": "hi"}}}, {"say": "$result"}]},
    {"match": "slow", "steps": [{"sleep": 1}, {"say": "slow"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]  # fmt: skip
Entries = list[dict[str, Any]]
Damage = Callable[[random.Random, Entries], bytes]


def dump(entries: Entries) -> bytes:
    return json.dumps(entries, indent=2).encode()


def half_saved(chance: random.Random, entries: Entries) -> bytes:
    data = dump(entries)
    return data[: chance.randrange(1, len(data) - 1)]


def nothing(chance: random.Random, entries: Entries) -> bytes:
    return b""


def foreign_mark(chance: random.Random, entries: Entries) -> bytes:
    return dump(entries).decode().encode("utf-16")


def doubled_name(chance: random.Random, entries: Entries) -> bytes:
    copy = dict(chance.choice(entries))
    copy["name"] = chance.choice([copy["name"], copy["name"].upper()])
    return dump([*entries, copy])


def unknown_key(chance: random.Random, entries: Entries) -> bytes:
    chance.choice(entries)[chance.choice(["nmae", "enigne", "colour", "Model", "slot"])] = "x"
    return dump(entries)


WRONG: list[tuple[str, Any]] = [
    ("name", 5),
    ("name", None),
    ("slots", "many"),
    ("enabled", "perhaps"),
    ("allowed_user_ids", {"a": 1}),
    ("restart", 7),
    ("tools", 1),
    ("queue_limit", "lots"),
    ("matrix", []),
]


def wrong_type(chance: random.Random, entries: Entries) -> bytes:
    key, value = chance.choice(WRONG)
    chance.choice(entries)[key] = value
    return dump(entries)


def traversal(chance: random.Random, entries: Entries) -> bytes:
    chance.choice(entries)["name"] = chance.choice(["../../x", "..", "/etc/x", "a/b", "a\\b", ""])
    return dump(entries)


def token_twice(chance: random.Random, entries: Entries) -> bytes:
    for entry in entries[:2]:
        entry["telegram_token"] = "123:the-same-secret"
    return dump(entries)


def junk(chance: random.Random, entries: Entries) -> bytes:
    return chance.choice(
        [chance.randbytes(5 << 20), b"[" * (5 << 20), b" " * (5 << 20), b"\0" * 99]
    )


def no_array(chance: random.Random, entries: Entries) -> bytes:
    return chance.choice([b"7", b'"agents"', b"{}x", b"[1]", b"[[]]", b"null", b"[{}]"])


DAMAGES: tuple[Damage, ...] = (
    half_saved, nothing, foreign_mark, doubled_name, unknown_key, wrong_type, traversal,
    token_twice, junk, no_array,
)  # fmt: skip


class Editor:
    """Edits the file of one running daemon and waits for what it says."""

    def __init__(self, daemon: DaemonProcess, seed: int) -> None:
        self.daemon = daemon
        self.chance = random.Random(seed)
        self.path = daemon.home / "agents.json"
        self.number = 0
        self.entries = self.valid()

    def valid(self) -> Entries:
        """A new valid file: ``steady`` as ever, the others come, go and change."""
        self.number += 1
        entries: Entries = [{"name": "steady", **SCRIPTED}]
        for name in self.chance.sample(["ann", "bob", "cleo", "dan"], k=self.chance.randint(1, 4)):
            entry = {"name": name, **SCRIPTED, "description": f"edit {self.number}"}
            if self.chance.random() < 0.3:
                entry["slots"] = {"peer": self.chance.randint(1, 4)}
            if self.chance.random() < 0.2:
                entry["engine_options"] = {"rules": [{"match": "x", "steps": [{"say": "y"}]}]}
            entries.append(entry)
        return entries

    def write(self, data: bytes) -> None:
        """Save in place, in pieces, or by replacement, as editors do."""
        way = self.chance.choice(["in place", "in pieces", "replace"])
        if way == "replace":
            fresh = self.path.with_name(".agents.json.swp")
            fresh.write_bytes(data)
            fresh.replace(self.path)
        elif way == "in place":
            self.path.write_bytes(data)
        else:
            with self.path.open("wb", buffering=0) as file:
                for start in range(0, len(data), 1 + len(data) // 3):
                    file.write(data[start : start + 1 + len(data) // 3])

    async def until(self, what: str, is_so: Callable[[], Any]) -> Any:
        """Follow the events until ``is_so`` is; returns what it gave."""
        found = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BOUND_S):
                async for _ in self.daemon.events():
                    if found := await is_so():
                        return found
        status = await self.daemon.get("/status")
        raise AssertionError(f"edit {self.number}: {what} did not come; {status['config_error']!r}")

    async def complaint(self) -> str:
        return str((await self.daemon.get("/status"))["config_error"])

    async def is_applied(self) -> bool:
        """The running set is the file's, with its descriptions."""
        if await self.complaint():
            return False
        wanted = {"main", *(entry["name"] for entry in self.entries)}
        names = set((await self.daemon.get("/interagent/agents"))["agents"])
        if names != wanted:
            return False
        for entry in self.entries[1:]:
            rows = await self.daemon.get(f"/agents/{entry['name']}/explain")
            told = {row["field"]: row["value"] for row in rows["values"]}
            if told["description"] != entry["description"]:
                return False
        return True

    async def damage(self, damage: Damage) -> None:
        data = damage(self.chance, [dict(entry) for entry in self.valid()])
        self.write(data)
        told = await self.until(f"a complaint of {damage.__name__}", self.complaint)
        assert "agents.json" in told, told
        assert re.search(r"agents\.json:\d+:\d+|line \d+|MiB|MB|bytes", told), (damage, told)
        assert "the-same-secret" not in told
        if damage in {unknown_key, wrong_type}:
            assert re.search(r"[a-z_]+", told)

    async def mend(self) -> None:
        self.entries = self.valid()
        data = dump(self.entries)
        kind = self.chance.choice(["plain", "crlf", "mark", "ten"])
        if kind == "crlf":
            data = data.replace(b"\n", b"\r\n")
        elif kind == "mark":
            data = b"\xef\xbb\xbf" + data
        elif kind == "ten":
            for _ in range(9):
                self.write(self.chance.choice(DAMAGES[:8])(self.chance, self.valid()))
                await asyncio.sleep(0.01)
        self.write(data)
        await self.until(f"the valid file ({kind})", self.is_applied)


@pytest.mark.timeout(90 + EDITS)
async def test_damaged_files_change_nothing_and_valid_ones_apply(make_daemon: MakeDaemon) -> None:
    print(f"replay: TEST_EDIT_SEED={SEED} TEST_EDITS={EDITS}")
    daemon = make_daemon(["steady", "ann"], RULES)
    await daemon.start()
    before = await daemon.agents()
    editor = Editor(daemon, SEED)
    chat = await daemon.chat("steady")
    streams = [await chat.say("stream")]
    await chat.frame(type="delta")
    for number in range(EDITS):
        await editor.damage(DAMAGES[number % len(DAMAGES)])
        names = set((await daemon.get("/interagent/agents"))["agents"])
        if number:
            assert names == {"main", *(entry["name"] for entry in editor.entries)}
        await editor.mend()
        if (await daemon.result(streams[-1], 0))["state"] == "done":
            streams.append(await chat.say("stream"))
    for message_id in streams:
        assert (await chat.event(message_id))["text"] == "a" * CHUNKS
    assert len(streams) > 1
    after = await daemon.agents()
    for name in ("main", "steady"):
        assert after[name]["instance_id"] == before[name]["instance_id"], name
    assert set(after) == {"main", *(entry["name"] for entry in editor.entries)}
    refused = [line for line in daemon.log() if line.get("event") == "edit not applied"]
    assert refused
    assert all(line["file"].endswith("agents.json") for line in refused)
    assert any(line["line"] and line["column"] for line in refused)
    assert not list(daemon.home.parent.glob("x")), "a name led out of the home"
    # A start on the broken file goes on with what was applied last, and says so.
    editor.path.write_bytes(b'[{"name": ')
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert set((await daemon.get("/interagent/agents"))["agents"]) == set(after)
    assert "agents.json" in (await daemon.get("/status"))["config_error"]


@pytest.mark.timeout(180)
async def test_a_removed_agent_is_gone_and_comes_back_as_itself(make_daemon: MakeDaemon) -> None:
    """D26: nothing of it runs on, its work waits or is told of; re-added, it is the same agent."""
    daemon = make_daemon(["ann", "bob"], RULES)
    await daemon.start()
    before = await daemon.agents()
    chat = await daemon.chat("bob")
    running, queued = await chat.say("slow"), await chat.say("hi")
    path: Path = daemon.home / "agents.json"
    whole = path.read_bytes()
    path.write_bytes(dump([{"name": "ann", **SCRIPTED}]))
    # It is drained: the turn in flight ends, the one behind it is not begun.
    assert (await chat.event(running))["text"] == "slow"
    answer = None
    async with asyncio.timeout(BOUND_S):
        async for _ in daemon.events():
            answer = await daemon.post("/interagent/send", {"to": "bob", "message": "hi"})
            if answer.status in {404, 410}:
                break
    assert answer is not None
    assert answer.body["success"] is False
    assert "bob" in answer.body["error"]
    assert "bob" not in await daemon.agents()
    assert (await daemon.agents())["ann"]["instance_id"] == before["ann"]["instance_id"]
    path.write_bytes(whole)
    view = await daemon.until("bob", "running")
    assert view["agent_id"] == before["bob"]["agent_id"]
    result = await daemon.result(queued, BOUND_S)
    assert result["state"] in {"done", "cancelled"}, result


@pytest.mark.timeout(180)
async def test_a_live_edit_is_in_effect_for_the_next_turn(make_daemon: MakeDaemon) -> None:
    """D20: no restart, no lost identity; the very next turn goes by the new value."""
    daemon = make_daemon(["ann", "bob"], RULES)
    await daemon.start()
    before = await daemon.agents()
    chat = await daemon.chat("ann")
    assert await chat.ask("ask bob") == "hello"
    path = daemon.home / "agents.json"
    path.write_bytes(
        dump([{"name": "ann", **SCRIPTED, "can_delegate_to": []}, {"name": "bob", **SCRIPTED}])
    )
    async with asyncio.timeout(BOUND_S):
        async for event in daemon.events(after=0, types="config.applied"):
            if "ann" in event.get("data", {}).get("changed", {}):
                break
    assert "can_delegate_to" in await chat.ask("ask bob")
    after = await daemon.agents()
    assert after["ann"]["instance_id"] == before["ann"]["instance_id"]
    assert after["ann"]["name"] == "ann"


@pytest.mark.timeout(180)
async def test_many_hands_on_one_agent_leave_one_instance(make_daemon: MakeDaemon) -> None:
    """D6: starts, stops and edits at once end in one life, the one that was asked for last."""
    daemon = make_daemon(["ann", "bob"], RULES)
    await daemon.start()
    path = daemon.home / "agents.json"
    chance = random.Random(7)
    acts = [chance.choice(["start", "stop", "restart"]) for _ in range(20)]
    calls = [asyncio.create_task(daemon.post(f"/agents/bob/{act}")) for act in acts]
    for number in range(5):
        path.write_bytes(
            dump([{"name": n, **SCRIPTED, "description": f"{number}"} for n in ("ann", "bob")])
        )
        await asyncio.sleep(0.02)
    for call in calls:
        assert (await call).status == 200
    assert (await daemon.post("/agents/bob/start")).status == 200
    view = await daemon.until("bob", "running")
    assert await (await daemon.chat("bob")).ask("hi") == "hello"
    assert (await daemon.agents())["bob"]["instance_id"] == view["instance_id"]
