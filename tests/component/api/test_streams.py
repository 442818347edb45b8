"""The event stream: resumed, complete, bounded, ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from agentsup.api.routes import events
from tests.component.api.browser import Browser
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture


@dataclass
class Stream:
    """A reader of server-sent events."""

    response: aiohttp.ClientResponse
    comments: list[str] = field(default_factory=list)

    async def next(self) -> dict[str, Any]:
        """The next event: its fields, ``data`` parsed."""
        fields: dict[str, Any] = {}
        while True:
            line = (await self.response.content.readline()).decode()
            if not line:
                raise EOFError
            line = line.rstrip("\n")
            if line.startswith(":"):
                self.comments.append(line)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = json.loads(value) if name == "data" else value
            elif "data" in fields:
                return fields
            else:
                fields = {}


@asynccontextmanager
async def stream(rig: ApiFixture, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    sent = {"Authorization": f"Bearer {OPERATOR_TOKEN}", **headers}
    async with rig.client.get(f"{rig.url}/events{query}", headers=sent) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        yield Stream(response)


async def test_new_events_arrive_as_they_are_committed(rig: ApiFixture) -> None:
    before = await rig.tell("main", "old")
    async with stream(rig) as reader:
        await reader.response.content.readline()  # retry
        seq = await rig.tell("main", "new")
        event = await reader.next()
    assert seq > before
    assert (event["id"], event["event"]) == (str(seq), "chat.out")
    assert event["data"]["data"] == {"text": "new"}
    assert event["data"]["agent_id"] == "agt_main"


async def test_a_reader_that_comes_back_misses_and_doubles_nothing(rig: ApiFixture) -> None:
    seqs = [await rig.tell("main", str(n)) for n in range(450)]
    got: list[int] = []
    async with stream(rig, "?after=0") as reader:
        got += [int((await reader.next())["id"]) for _ in range(123)]
    async with stream(rig, "?after=0", **{"Last-Event-ID": str(got[-1])}) as reader:
        got += [int((await reader.next())["id"]) for _ in range(len(seqs) - 123)]
        later = await rig.tell("main", "later")
        assert int((await reader.next())["id"]) == later
    assert got == seqs


async def test_filters_by_agent_conversation_and_type(rig: ApiFixture) -> None:
    await rig.tell("main", "a")
    wanted = await rig.tell("Scout", "b", "console:desk")
    await rig.tell("Scout", "c")
    for query in (
        "agent=scout&conversation=console:desk",
        "conversation=console:desk",
        "types=chat.out,chat.in&conversation=console:desk",
    ):
        async with stream(rig, f"?after=0&{query}") as reader:
            assert int((await reader.next())["id"]) == wanted
        await rig.until_open("event streams", 0)


async def test_a_quiet_stream_shows_that_it_lives(rig: ApiFixture) -> None:
    async with stream(rig) as reader:
        while not reader.comments:
            line = (await reader.response.content.readline()).decode()
            if line.startswith(":"):
                reader.comments.append(line)
        assert reader.comments[0].startswith(": alive")


async def test_what_retention_removed_is_told_as_a_gap(rig: ApiFixture) -> None:
    seqs = [await rig.tell("main", str(n)) for n in range(4)]
    await rig.database.write(lambda tx: tx.execute("DELETE FROM events WHERE seq <= ?", (seqs[1],)))
    async with stream(rig, "?after=0") as reader:
        gap = await reader.next()
        told = {"type": "gap", "missing_from": 1, "missing_to": seqs[1]}
        assert (gap["event"], gap["data"]) == ("gap", told)
        assert int((await reader.next())["id"]) == seqs[2]


async def test_the_first_event_of_a_store_is_no_gap_while_a_stream_begins(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, looks, told = rig.database.read, list[str](), list[int]()

    async def reading(fn: Any, *args: Any, name: str = "") -> Any:
        found = await read(fn, *args, name=name)
        looks.append(name)
        if len(looks) == 2:  # where the stream begins is known, and what is stored is read
            told.append(await rig.tell("main", "first"))
        return found

    monkeypatch.setattr(rig.database, "read", reading)
    async with stream(rig) as reader:
        first = await reader.next()
        assert (first["data"]["type"], first["id"]) == ("chat.out", str(told[0]))


async def test_a_number_from_another_store_begins_at_the_newest(rig: ApiFixture) -> None:
    await rig.tell("main", "old")
    async with stream(rig, **{"Last-Event-ID": "999999"}) as reader:
        await reader.response.content.readline()
        seq = await rig.tell("main", "new")
        assert int((await reader.next())["id"]) == seq


@pytest.mark.parametrize(
    "query, last, field",
    [
        ("?after=x", None, "after"),
        ("?types=chat.out,nonsense", None, "types"),
        ("?since=1", None, "since"),
        ("", "x1", "Last-Event-ID"),
        ("", "9" * 30, "Last-Event-ID"),
    ],
)
async def test_a_wrong_question_is_answered_by_name(
    rig: ApiFixture, query: str, last: str | None, field: str
) -> None:
    headers = {"Last-Event-ID": last} if last else {}
    status, document, _ = await rig.call("GET", f"/events{query}", headers=headers)
    assert (status, document["field"]) == (400, field)
    assert rig.server.connections["event streams"] == 0


async def test_streams_are_bounded_and_a_place_is_given_back(rig: ApiFixture) -> None:
    async with stream(rig), stream(rig):
        status, document, headers = await rig.call("GET", "/events")
        assert (status, document["queue"]) == (429, "api.event_streams")
        assert headers["Retry-After"]
    await rig.until_open("event streams", 0)
    async with stream(rig):
        pass


async def test_closing_ends_streams_at_once(rig: ApiFixture) -> None:
    loop = asyncio.get_running_loop()
    async with stream(rig) as reader:
        await reader.response.content.readline()
        began = loop.time()
        await rig.server.close()
        assert loop.time() - began < 1.0
        assert await reader.response.content.read() in (b"\n", b"")
    assert rig.server.connections["event streams"] == 0


async def test_a_page_that_was_away_for_long_looks_anew(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MISSED", 3)
    browser = Browser(rig)
    await browser.sign_in("otto")
    first = await rig.tell("main", "first")
    for number in range(3):
        await rig.tell("main", f"{number}")

    async def begins(after: int) -> Any:
        async with rig.client.get(
            f"{rig.url}/events?after={after}", headers=browser.headers(is_post=False)
        ) as response:
            while not (line := await response.content.readline()).startswith(b"data:"):
                assert not line.startswith(b"event:"), "a page hears all types with one listener"
        await rig.until_open("event streams", 0)
        return json.loads(line.removeprefix(b"data:"))

    assert (await begins(first))["type"] == "chat.out"
    assert (await begins(first - 1))["type"] == "gap"
    async with stream(rig, f"?after={first - 1}") as reader:
        # Programs resume without a loss, however long they were away.
        assert (await reader.next())["event"] == "chat.out"
