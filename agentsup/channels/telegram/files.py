"""Files that people send to a bot: fetched into the agent's workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from agentsup.catalogue import Words
from agentsup.channels.received import FOLDER, Landing
from agentsup.channels.telegram.errors import (
    FateUnknown,
    FloodWait,
    NotSent,
    TelegramError,
)
from agentsup.channels.telegram.event import Attachment
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import TooLarge
from agentsup.model.message import Part

__all__ = ["Fetched", "FileClient", "discard", "fetch"]

_TRIES = 3


class FileClient(Protocol):
    """What is needed of a client."""

    async def call(self, method: str, *, timeout_s: float = 20.0, **fields: Any) -> Any: ...

    async def download(self, file_path: str, to: IO[bytes], max_bytes: int) -> int: ...


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
    for attempt in range(1, _TRIES + 1):
        try:
            info = await client.call("getFile", file_id=attachment.file_id)
            path = info.get("file_path") if isinstance(info, dict) else None
            if not isinstance(path, str) or not path:
                raise TelegramError("the answer to getFile names no file")
            landing = await asyncio.to_thread(
                Landing, workspace, owner=owner, token=entropy.token()
            )
            try:
                await client.download(path, landing.out, max_bytes)
                to = await asyncio.to_thread(landing.keep, attachment.name, now_ms=clock.now_ms())
            finally:
                await asyncio.to_thread(landing.close)
            return Fetched(Part("file", path=f"{FOLDER}/{to.name}", name=attachment.name))
        except TooLarge:
            return Fetched(problem=_too_large(attachment, max_bytes, say))
        except (NotSent, FateUnknown, FloodWait) as error:
            # Reading a file twice does no harm.
            if attempt == _TRIES:
                return Fetched(problem=_failed(attachment, error.message, say))
            await clock.sleep(min(getattr(error, "retry_after_s", float(attempt)), 30.0))
        except TelegramError as error:
            if "too big" in error.message:
                return Fetched(problem=_too_large(attachment, max_bytes, say))
            return Fetched(problem=_failed(attachment, error.message, say))
        except OSError as error:
            return Fetched(
                problem=_failed(attachment, error.strerror or say("file.unwritable"), say)
            )
    raise AssertionError("the last try returns")


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
    return say("file.not_taken", name=attachment.name + size, mb=max_bytes // 1_048_576)


def _failed(attachment: Attachment, why: str, say: Words) -> str:
    return say("file.not_fetched", name=attachment.name, why=why)
