"""Work done jointly: cheaper, and to every caller as if each function had run by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentsup.model.errors import Conflict, StoreUnavailable
from agentsup.store import Database, Tx

Opener = Callable[..., Awaitable[Database]]
Joint = Callable[[Tx, Sequence[Any]], Sequence[Any] | None]
ITEMS = "INSERT INTO items (item_id) VALUES (?)"


class Kind:
    """A kind of function that can be done jointly: stores its item and says how it was done."""

    def __init__(self, then: Callable[[Tx], None] | None = None) -> None:
        self.jointly: list[list[str]] = []
        self.alone: list[str] = []
        self._then = then

    def fn(self, item: str) -> Callable[[Tx], str]:
        def alone(tx: Tx) -> str:
            self.alone.append(item)
            if item == "refused":
                raise Conflict("no", item=item)
            tx.execute(ITEMS, (item,))
            return f"alone {item}"

        return alone

    def joint(self, tx: Tx, items: Sequence[str]) -> list[str] | None:
        self.jointly.append(list(items))
        tx.insert(ITEMS, [(item,) for item in items])
        if self._then is not None:
            self._then(tx)
        return None if "refused" in items else [f"joint {item}" for item in items]


async def write_all(store: Database, kind: Kind, items: Sequence[str], joint: Joint) -> list[Any]:
    return await asyncio.gather(
        *(store.write(kind.fn(item), joint=joint, item=item) for item in items),
        return_exceptions=True,
    )


async def stored(store: Database) -> list[str]:
    rows = await store.read(lambda r: r.all("SELECT item_id FROM items ORDER BY rowid"))
    return [row[0] for row in rows]


async def test_functions_that_follow_each_other_are_done_by_one_call(store: Database) -> None:
    kind = Kind()
    assert await write_all(store, kind, ["a", "b", "c"], kind.joint) == [
        "joint a",
        "joint b",
        "joint c",
    ]
    assert (kind.jointly, kind.alone) == ([["a", "b", "c"]], [])
    assert await stored(store) == ["a", "b", "c"]
    assert (store.stats.commits, store.stats.functions) == (1, 3)


async def test_one_alone_runs_as_ever(store: Database) -> None:
    kind = Kind()
    assert await store.write(kind.fn("a"), joint=kind.joint, item="a") == "alone a"
    assert kind.jointly == []


async def test_what_comes_between_keeps_its_place(store: Database) -> None:
    kind, other = Kind(), Kind()
    joint, other_joint = kind.joint, other.joint
    await asyncio.gather(
        store.write(kind.fn("a"), joint=joint, item="a"),
        store.write(kind.fn("b"), joint=joint, item="b"),
        store.write(lambda tx: tx.execute(ITEMS, ("between",)).rowcount),
        store.write(kind.fn("c"), joint=joint, item="c"),
        store.write(other.fn("d"), joint=other_joint, item="d"),
        store.write(other.fn("e"), joint=other_joint, item="e"),
    )
    assert await stored(store) == ["a", "b", "between", "c", "d", "e"]
    assert kind.jointly == [["a", "b"]]
    assert kind.alone == ["c"]
    assert other.jointly == [["d", "e"]]


async def test_one_that_is_refused_rolls_back_alone(store: Database) -> None:
    kind = Kind()
    results = await write_all(store, kind, ["a", "refused", "c"], kind.joint)
    assert [str(result) for result in results] == ["alone a", "no", "alone c"]
    assert isinstance(results[1], Conflict)
    assert kind.jointly == [["a", "refused", "c"]], "asked once, not again for what is left"
    assert await stored(store) == ["a", "c"]
    assert (store.stats.commits, store.stats.rolled_back) == (1, 1)


@pytest.mark.parametrize("error", [Conflict("no"), sqlite3.IntegrityError("twice"), KeyError("x")])
async def test_one_that_raises_leaves_nothing_and_each_runs_by_itself(
    store: Database, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(tx: Tx) -> None:
        raise error

    kind = Kind(fail)
    assert await write_all(store, kind, ["a", "b"], kind.joint) == ["alone a", "alone b"]
    assert await stored(store) == ["a", "b"]
    is_a_mistake = isinstance(error, KeyError)
    assert ("can't be done jointly" in caplog.text) is is_a_mistake


async def test_a_wrong_number_of_results_is_nobodys(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Kind()

    def short(tx: Tx, items: Sequence[str]) -> list[str]:
        return (kind.joint(tx, items) or [])[1:]

    assert await write_all(store, kind, ["a", "b"], short) == ["alone a", "alone b"]
    assert "1 results for 2 functions" in caplog.text


async def test_callbacks_and_topics_hold_for_what_was_done_and_not_for_what_was_undone(
    store: Database,
) -> None:
    told: list[str] = []

    def tell(tx: Tx) -> None:
        tx.after_commit(lambda: told.append("committed"))
        tx.after_rollback(lambda: told.append("undone"))
        tx.touch("news")

    store.listen("news", lambda: told.append("news"))
    kind = Kind(tell)
    await write_all(store, kind, ["a", "refused"], kind.joint)
    assert told == ["undone"]
    await write_all(store, kind, ["b", "c"], kind.joint)
    assert told == ["undone", "committed", "news"]


async def test_trouble_of_the_disk_concerns_everyone(store: Database) -> None:
    def failing_disk(tx: Tx) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    kind = Kind(failing_disk)
    joint = kind.joint
    results = await asyncio.gather(
        store.write(lambda tx: tx.execute(ITEMS, ("before",)).rowcount),
        store.write(kind.fn("a"), joint=joint, item="a"),
        store.write(kind.fn("b"), joint=joint, item="b"),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert kind.alone == []
    assert await stored(store) == []


async def test_a_transaction_that_was_ended_within_confirms_nothing(store: Database) -> None:
    def end(tx: Tx) -> None:
        tx.execute("INSERT OR ROLLBACK INTO items (item_id) VALUES ('a')")

    kind = Kind(end)
    results = await write_all(store, kind, ["a", "b"], kind.joint)
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    assert await stored(store) == []


async def test_without_a_reserve_each_is_refused(open_store: Opener) -> None:
    store = await open_store(reserve_bytes=1_000_000)
    store._reserve.free()
    store._reserve.size_bytes = 1 << 60  # nothing has twice that free
    kind = Kind()
    results = await write_all(store, kind, ["a", "b"], kind.joint)
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    assert not kind.jointly
    assert not kind.alone


async def test_who_has_gone_is_left_out(store: Database) -> None:
    kind = Kind()
    joint = kind.joint
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.write(kind.fn(item), joint=joint, item=item)) for item in "abc"]
    loop.call_soon(tasks[1].cancel)
    assert [await tasks[0], await tasks[2]] == ["joint a", "joint c"]
    assert await stored(store) == ["a", "c"]


async def test_a_large_crowd_is_done_in_parts(store: Database) -> None:
    kind = Kind()
    items = [f"i{n:03}" for n in range(100)]
    results = await write_all(store, kind, items, kind.joint)
    assert results == [f"joint {item}" for item in items]
    assert await stored(store) == items
    assert [item for part in kind.jointly for item in part] == items
    assert max(map(len, kind.jointly)) <= 32, "what is repeated where one is refused has a bound"


@pytest.mark.parametrize("count", [0, 1, 2, 7, 32, 33, 100])
async def test_many_rows_go_in_in_order(store: Database, count: int, path: Path) -> None:
    rows = [(f"i{n:03}", "a \ud800 b") for n in range(count)]
    sql = "INSERT INTO items (item_id, body) VALUES (?, ?)"
    assert await store.write(lambda tx: tx.insert(sql, rows)) == count
    assert await stored(store) == [row[0] for row in rows]
    bodies = await store.read(lambda r: r.all("SELECT DISTINCT body FROM items"))
    assert [row[0] for row in bodies] == ["a ? b"][:count]


async def test_an_insert_needs_its_values_last(store: Database) -> None:
    with pytest.raises(ValueError, match="values of one row"):
        await store.write(lambda tx: tx.insert("INSERT INTO items SELECT 1", [()]))
