"""Files that people send to a Matrix bot: fetched into the agent's workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from agentsup.catalogue import Words
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.event import Attachment
from agentsup.channels.received import FOLDER, Landing
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import TooLarge
from agentsup.model.message import Part

__all__ = ["Fetched", "FileClient", "discard", "fetch"]

_PATIENCE_S = 60.0
"""A homeserver that is started anew is back within this time; what comes behind in the room waits."""
_PAUSE_CAP_S = 10.0


class FileClient(Protocol):
    """What is needed of a client."""

    async def download(self, mxc: str, to: IO[bytes], max_bytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as a part of the message, or ``problem``: what to tell the person instead."""

    part: Part | None = None
    problem: str = ""


async def fetch(
    client: FileClient,
    attachment: Attachment,
    workspace: Path,
    *,
    owner: str,
    clock: Clock,
    entropy: Entropy,
    max_bytes: int,
    say: Words,
) -> Fetched:
    """Fetch one file to ``<workspace>/inbox/<date>-<name>``; trouble comes back in words.

    ``owner`` names whose unfinished files a ``sweep`` finds.
    """
    if attachment.size is not None and attachment.size > max_bytes:
        return Fetched(problem=_too_large(attachment, max_bytes, say))
    until = clock.monotonic() + _PATIENCE_S
    failures = 0
    while True:
        try:
            landing = await asyncio.to_thread(
                Landing, workspace, owner=owner, token=entropy.token()
            )
            try:
                await client.download(attachment.mxc, landing.out, max_bytes)
                to = await asyncio.to_thread(landing.keep, attachment.name, now_ms=clock.now_ms())
            finally:
                await asyncio.to_thread(landing.close)
            return Fetched(Part("file", path=f"{FOLDER}/{to.name}", name=attachment.name))
        except TooLarge:
            return Fetched(problem=_too_large(attachment, max_bytes, say))
        except (NotSent, FateUnknown, RateLimited, TokenRefused) as error:
            # Reading a file twice does no harm; a refused token ends this life, and the next one
            # takes the message up again.
            pause_s = delay_s(failures, base_s=1.0, cap_s=_PAUSE_CAP_S, unit=0.5)
            if isinstance(error, RateLimited):
                pause_s = error.retry_after_s
            failures += 1
            if clock.monotonic() + pause_s > until:
                return Fetched(problem=_failed(attachment, error.message, say))
            await clock.sleep(pause_s)
        except MatrixError as error:
            return Fetched(problem=_failed(attachment, error.message, say))
        except OSError as error:
            why = error.strerror or say("file.unwritable")
            return Fetched(problem=_failed(attachment, why, say))
        except ValueError as error:
            return Fetched(problem=_failed(attachment, str(error), say))


async def discard(parts: Sequence[Part], workspace: Path) -> None:
    """Remove what was fetched for a message that was not taken."""

    def remove() -> None:
        for part in parts:
            if part.path:
                (workspace / part.path).unlink(missing_ok=True)

    if parts:
        await asyncio.to_thread(remove)


def _too_large(attachment: Attachment, max_bytes: int, say: Words) -> str:
    size = f" ({attachment.size / 1_048_576:.0f} MB)" if attachment.size else ""
    return say("file.over_ours", name=attachment.name + size, mb=max_bytes // 1_048_576)


def _failed(attachment: Attachment, why: str, say: Words) -> str:
    return say("file.not_fetched", name=attachment.name, why=why)
