"""A pause that the platform asked for, and processes that are killed while it lasts.

What was refused keeps its time in the outbox; nothing else about pauses outlives a process. While
a pause runs the server goes on refusing, so every call that comes too early is counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsup.kit.tasks import stop_task
from tests.component.channels.telegram.bench import FAST, StreamFixture, benched
from tests.support.bound import BOUND_S

KILLS = 6
PAUSE_S = 200
"""Nothing waits for its end: the clock is put forward."""


class Lives:
    """One process after the other, each killed."""

    def __init__(self, context: StreamFixture) -> None:
        self.bench = context
        self._relay: asyncio.Task[None] | None = None

    async def start(self) -> None:
        _, self._relay, _ = await self.bench.start_relay()

    async def next(self) -> None:
        """A kill, and the next process."""
        await self.kill()
        await self.bench.reborn()
        await self.start()

    async def later(self) -> None:
        """A kill, and the next process when the pause is over."""
        await self.kill()
        self.bench.clock.ahead_s += PAUSE_S
        await self.bench.reborn()
        await self.start()

    async def kill(self) -> None:
        if self._relay is not None:
            await stop_task(self._relay, timeout_s=BOUND_S)
            self._relay = None

    async def refused(self, *parts: int) -> None:
        """Wait until these were refused or held back."""
        for part in parts:
            await self.bench.until(part, lambda row: "pause" in row["detail"])

    async def calls(self) -> int:
        """Messages sent or refused so far."""
        return int((await self.bench.people.report())["calls"].get("sendMessage", 0))

    async def delivered(self, *parts: int) -> list[dict[str, Any]]:
        return [await self.bench.settled(part) for part in parts]


async def test_kills_within_a_pause_do_not_hammer_and_burn_no_attempt(tmp_path: Path) -> None:
    """However often the process is killed, and whatever is added meanwhile: the refused chat sees
    one call too many, the others none."""
    async with benched(tmp_path, limits="count", rates=FAST) as bench:
        lives = Lives(bench)
        ann, chat = await bench.person("Ann")
        others = [await bench.person(f"P{number}") for number in range(2)]
        fault = await bench.people.fault("flood", chat_id=ann, retry_after=PAUSE_S)
        await lives.start()
        parts = [await bench.add(ann, "answer 0")]
        await lives.refused(*parts)
        for number in range(1, KILLS + 1):
            parts.append(await bench.add(ann, f"answer {number}"))
            await lives.next()
            told = [await bench.add(user, f"news {number}") for user, _ in others]
            await lives.delivered(*told)
        await bench.people.clear_faults(fault)
        assert {(await bench.row(part))["state"] for part in parts} == {"pending"}
        await lives.later()
        rows = await lives.delivered(*parts)
        await lives.kill()
        assert {(row["state"], row["attempts"]) for row in rows} == {("delivered", 1)}
        assert await bench.people.texts(chat) == [f"answer {n}" for n in range(KILLS + 1)]
        assert await lives.calls() == 1 + len(parts) + KILLS * len(others)
        assert (await bench.people.report())["hammered"] == 0


async def test_the_next_process_learns_of_a_pause_by_one_refusal(tmp_path: Path) -> None:
    """Where the chat has another conversation, a topic, of which nothing was refused yet; the kills
    after that cost nothing."""
    async with benched(tmp_path, limits="count", rates=FAST) as bench:
        lives = Lives(bench)
        ann, _ = await bench.person("Ann")
        team = [ann, bench.bot_id]
        group = await bench.people.group("t", team, administrators=[bench.bot_id], forum=True)
        topics = [await bench.people.topic(group, name, user=ann) for name in ("a", "b", "c")]
        fault = await bench.people.fault("flood", chat_id=group, retry_after=PAUSE_S)
        await lives.start()
        parts = [await bench.add(f"{group}/{topics[0]}", "first")]
        await lives.refused(*parts)
        await lives.next()
        # Of what comes now in two topics one is refused; the process knows then.
        parts += [await bench.add(f"{group}/{topic}", "later") for topic in topics[1:]]
        await lives.refused(*parts)
        refused = await lives.calls()
        assert refused in (2, 3), "both may be under way when the first is refused"
        for _ in range(KILLS):
            await lives.next()
            await lives.delivered(await bench.add(ann, "elsewhere"))
        assert await lives.calls() == refused + KILLS
        await bench.people.clear_faults(fault)
        await lives.later()
        rows = await lives.delivered(*parts)
        await lives.kill()
        assert {(row["state"], row["attempts"]) for row in rows} == {("delivered", 1)}
        assert sorted(await bench.people.texts(group)) == ["first", "later", "later"]


async def test_a_pause_of_the_whole_bot_is_kept_by_all_its_parts(tmp_path: Path) -> None:
    async with benched(tmp_path, limits="count", rates=FAST) as bench:
        lives = Lives(bench)
        people = [await bench.person(f"P{number}") for number in range(8)]
        fault = await bench.people.fault("flood", method="sendMessage", retry_after=PAUSE_S)
        await lives.start()
        parts: list[int] = []
        for user, _ in people:
            parts.append(await bench.add(user, "answer"))
            await lives.refused(parts[-1])
        refused = await lives.calls()
        assert refused == 2, "after two chats it is about the bot"
        for _ in range(KILLS):
            await lives.next()
        await bench.people.clear_faults(fault)
        await lives.later()
        rows = await lives.delivered(*parts)
        await lives.kill()
        assert {(row["state"], row["attempts"]) for row in rows} == {("delivered", 1)}
        assert await lives.calls() == refused + len(parts)
        assert (await bench.people.report())["hammered"] == 0


async def test_killed_while_it_waits_for_our_own_pace_nothing_is_in_doubt(tmp_path: Path) -> None:
    """More is said at once than our limits allow: whatever waits is sent by the next process."""
    rates = replace(FAST, private=(2, 0.6))
    async with benched(tmp_path, limits="count", rates=rates) as bench:
        lives = Lives(bench)
        people = [await bench.person(f"P{number}") for number in range(4)]
        await lives.start()
        parts = [[await bench.add(user, f"answer {n}") for n in range(3)] for user, _ in people]
        await lives.delivered(*(part for mine in parts for part in mine[:2]))
        await lives.next()
        rows = await lives.delivered(*(mine[2] for mine in parts))
        await lives.kill()
        assert [row["state"] for row in rows] == ["delivered"] * len(people)
        for _, chat in people:
            assert await bench.people.texts(chat) == ["answer 0", "answer 1", "answer 2"]


async def test_killed_while_what_was_refused_waits_in_another_form_nothing_is_in_doubt(
    tmp_path: Path,
) -> None:
    refusal = {"status": 400, "description": "Bad Request: can't parse entities: unexpected end"}
    async with benched(tmp_path, limits="count", rates=replace(FAST, private=(1, 0.25))) as bench:
        lives = Lives(bench)
        ann, chat = await bench.person()
        await bench.people.fault("error", method="sendMessage", count=1, **refusal)
        await lives.start()
        part = await bench.add(ann, "so **bold**")
        while not await lives.calls():
            await asyncio.sleep(0.01)  # the fake tells of no call
        row = await bench.until(part, lambda row: row["begun_boot"] == "")
        assert row["state"] == "pending"
        await lives.next()
        (row,) = await lives.delivered(part)
        await lives.kill()
        assert row["state"] == "delivered"
        assert await bench.people.texts(chat) == ["so bold"]


async def test_killed_on_the_way_to_a_connection_nothing_is_in_doubt(tmp_path: Path) -> None:
    """A server that takes no connection has nothing of the piece."""
    async with benched(tmp_path, rates=FAST) as bench:
        lives = Lives(bench)
        ann, chat = await bench.person()
        served, taken = bench.url, asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.set()
            await reader.read()
            writer.close()

        # It speaks no TLS, so the connection is never made.
        silent = await asyncio.start_server(hold, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        bench.url = f"https://127.0.0.1:{port}"
        await bench.reborn()
        await lives.start()
        part = await bench.add(ann, "hello")
        async with asyncio.timeout(BOUND_S):
            await taken.wait()
        assert (await bench.row(part))["begun_boot"] == ""
        bench.url = served
        await lives.next()
        silent.close()
        await silent.wait_closed()
        (row,) = await lives.delivered(part)
        await lives.kill()
        assert row["state"] == "delivered"
        assert await bench.people.texts(chat) == ["hello"]
