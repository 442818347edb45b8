"""Files that are read again and again: each version is read once, and an edit counts at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.known_files import MOST, KnownFiles
from agentsup.kit.pool import BoundedPool

LONG_AGO_S = 1_000_000_000


class CountingPool(BoundedPool):
    """Counts its steps."""

    steps = 0

    async def run(self, step: Any, **more: Any) -> Any:
        self.steps += 1
        return await super().run(step, **more)


class Reading:
    """Reads one file through ``KnownFiles`` and counts how often it was opened and looked at."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home
        self.loads = 0
        self.pool = CountingPool("files")
        self.known: KnownFiles[str] = KnownFiles(self.pool)

    async def __call__(self, key: object = "it") -> str:
        return await self.known.get(
            key, lambda: self.path, self._load, home=str(self.home), slot="it"
        )

    def _load(self, path: Path) -> str:
        self.loads += 1
        return path.read_text()


def written(path: Path, text: str, at_s: float = LONG_AGO_S) -> None:
    path.write_text(text)
    os.utime(path, (at_s, at_s))


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path / "file", tmp_path)


async def test_an_unchanged_file_costs_neither_a_read_nor_a_thread(reading: Reading) -> None:
    written(reading.path, "one")
    assert [await reading() for _ in range(3)] == ["one"] * 3
    assert (reading.loads, reading.pool.steps) == (1, 1)


async def test_each_edit_counts_at_once(reading: Reading) -> None:
    for number, text in enumerate(("one", "two", "three")):
        written(reading.path, text, LONG_AGO_S + number)
        assert [await reading(), await reading()] == [text, text]
    assert (reading.loads, reading.pool.steps) == (3, 3)


async def test_a_file_in_place_of_another_is_read_though_time_and_size_are_equal(
    reading: Reading,
) -> None:
    written(reading.path, "one")
    assert await reading() == "one"
    other = reading.path.with_name("other")
    written(other, "two")
    other.replace(reading.path)
    assert await reading() == "two"


async def test_a_file_written_just_now_is_read_again(reading: Reading) -> None:
    written(reading.path, "one", time.time())
    await reading()
    await reading()
    assert reading.loads == 2, "it could be written again within the same tick"


async def test_a_missing_file_is_looked_at_in_line(reading: Reading) -> None:
    for _ in range(3):
        with pytest.raises(FileNotFoundError, match="file"):
            await reading()
    assert (reading.loads, reading.pool.steps) == (0, 1)
    written(reading.path, "one")
    assert await reading() == "one"
    reading.path.unlink()
    with pytest.raises(FileNotFoundError):
        await reading()


async def test_a_link_is_followed_in_the_pool_only(reading: Reading) -> None:
    target = reading.path.with_name("target")
    written(target, "one")
    reading.path.symlink_to(target)
    assert [await reading(), await reading()] == ["one", "one"]
    assert (reading.loads, reading.pool.steps) == (1, 2)
    written(target, "two!")
    assert await reading() == "two!"


async def test_a_file_that_becomes_a_link_is_not_followed_in_line(reading: Reading) -> None:
    written(reading.path, "one")
    await reading()
    target = reading.path.with_name("target")
    written(target, "two")
    reading.path.unlink()
    reading.path.symlink_to(target)
    steps = reading.pool.steps
    assert await reading() == "two"
    assert reading.pool.steps == steps + 1


async def test_another_disk_is_looked_at_in_the_pool(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "file", Path("/proc"))
    written(reading.path, "one")
    assert [await reading(), await reading()] == ["one", "one"]
    assert (reading.loads, reading.pool.steps) == (1, 2)


async def test_a_failure_is_not_remembered(reading: Reading) -> None:
    reading.path.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            await reading()
    reading.path.rmdir()
    written(reading.path, "one")
    assert await reading() == "one"


async def test_the_number_of_known_files_is_bounded(reading: Reading) -> None:
    written(reading.path, "one")
    for number in range(MOST + 1):
        await reading(number)
    loads = reading.loads
    await reading(MOST)
    assert reading.loads == loads
    await reading(0)
    assert reading.loads == loads + 1, "the oldest was forgotten"
