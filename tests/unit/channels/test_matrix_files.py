"""Files that people send: fetched once the homeserver can, and given up in words, in bounded time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentsup.catalogue import words
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    Refused,
    TokenRefused,
    TooLong,
)
from agentsup.channels.matrix.event import Attachment
from agentsup.channels.matrix.files import Fetched, fetch
from agentsup.channels.received import Write
from agentsup.kit.clock import LoopClock
from agentsup.kit.entropy import SeededEntropy
from agentsup.model.errors import TooLarge

pytestmark = pytest.mark.virtual
FILE = Attachment("file", "mxc://here/1", "notes.txt", 5)


class Media:
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


async def got(folder: Path, media: Media) -> Fetched:
    return await fetch(
        media,
        FILE,
        folder,
        owner="x",
        clock=media.clock,
        entropy=SeededEntropy(media.clock, 1),
        max_bytes=1024,
        say=words(),
    )


@pytest.mark.parametrize(
    "error",
    [
        NotSent("no way there"),
        FateUnknown("HTTP 502"),
        RateLimited(3.0),
        TokenRefused("a new session is being made", soft=True),
    ],
)
async def test_a_homeserver_that_is_away_for_a_while_costs_no_file(
    tmp_path: Path, error: MatrixError
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
    tmp_path: Path, error: MatrixError
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
        lambda: Refused(404, "M_NOT_FOUND", "no such file"),
        lambda: TooLong(413, "", "too large"),
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
