"""Files that people send: fetched once the homeserver can, and given up in words, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.catalogue import words
from agentsup.channels.core.errors import (
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.files.inbox_files import Write
from agentsup.channels.core.receiving.downloads import Downloads, Fetched
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.errors import EventTooLarge
from agentsup.channels.matrix.incoming import MatrixMessages
from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.pool import BoundedPool
from agentsup.model.errors import TooLarge
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual
FILE = Attachment("file", "mxc://here/1", "notes.txt", 5)


class Media(MatrixClient):
    """Raises what it is told to for a while, and then has the file."""

    def __init__(self, clock: LoopClock, error: Exception, until_s: float = 1e9) -> None:
        self.clock, self.error, self.until_s = clock, error, until_s
        self.asked = 0

    async def download(self, mxc: str, write: Write, max_bytes: int) -> int:
        self.asked += 1
        await write(b"hel")
        if self.clock.monotonic() < self.until_s:
            raise self.error
        await write(b"lo")
        return 5


class Bot:
    channel, agent_id, max_file_bytes = "matrix", "x", 1024

    def __init__(self, workspace: Path, client: Media) -> None:
        self.workspace, self.client, self.clock = workspace, client, client.clock
        self.entropy, self.files = SeededEntropy(self.clock, 1), BoundedPool("files")


async def got(folder: Path, media: Media) -> Fetched:
    bot: Any = Bot(folder, media)
    return await Downloads(bot, MatrixMessages(bot, lambda event: True)).fetch(FILE, words())


@pytest.mark.parametrize(
    "error",
    [
        NotSent("no way there"),
        OutcomeUnknown("HTTP 502"),
        RateLimited(3.0),
        TokenRefused("a new session is being made", soft=True),
    ],
)
async def test_a_homeserver_that_is_away_for_a_while_costs_no_file(
    tmp_path: Path, error: PlatformError
) -> None:
    clock = LoopClock()
    media = Media(clock, error, clock.monotonic() + 30.0)
    found = await got(tmp_path, media)
    assert found.part is not None
    assert (tmp_path / (found.part.path or "")).suffix == ".txt"
    assert 3 < media.asked < 20, "not too often"
    assert len(list((tmp_path / "inbox").iterdir())) == 1, "no half of it is left"


@pytest.mark.parametrize(
    "error", [NotSent("no way there"), RateLimited(3_600.0), TokenRefused("no")]
)
async def test_one_that_stays_away_is_given_up_with_a_word(
    tmp_path: Path, error: PlatformError
) -> None:
    clock = LoopClock()
    began = clock.monotonic()
    found = await got(tmp_path, Media(clock, error))
    assert found.part is None
    assert "notes.txt" in found.problem
    assert clock.monotonic() - began < 150.0
    assert list((tmp_path / "inbox").iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        lambda: RequestRefused(404, "no such file", "M_NOT_FOUND"),
        lambda: EventTooLarge(413, "too large", ""),
        lambda: TooLarge("over the limit", limit=1),
        lambda: ValueError("no usable address"),
        lambda: OSError(28, "No space left on device"),
    ],
)
async def test_what_no_further_try_changes_is_said_at_once(
    tmp_path: Path, error: Callable[[], Exception]
) -> None:
    clock = LoopClock()
    media = Media(clock, error())
    found = await got(tmp_path, media)
    assert found.part is None
    assert "notes.txt" in found.problem
    assert media.asked == 1
