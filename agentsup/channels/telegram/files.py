"""Files that people send to a bot."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from agentsup.catalogue import Words
from agentsup.channels import fetching
from agentsup.channels.fetching import Fetched, Later, Never, Opened, discard
from agentsup.channels.received import Write
from agentsup.channels.telegram.errors import (
    FateUnknown,
    FloodWait,
    NotSent,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.event import Attachment
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.model.errors import TooLarge

__all__ = ["Fetched", "FileClient", "discard", "fetch"]


class FileClient(Protocol):
    """What is needed of a client."""

    async def call(self, method: str, *, timeout_s: float = 20.0, **fields: Any) -> Any: ...

    async def download(self, file_path: str, write: Write, max_bytes: int) -> int: ...


async def fetch(
    client: FileClient,
    attachment: Attachment,
    workspace: Path,
    *,
    files: BoundedPool | None = None,
    owner: str,
    clock: Clock,
    entropy: Entropy,
    max_bytes: int,
    say: Words,
) -> Fetched:
    """Fetch one file; see ``fetching.fetch``."""

    async def pull(opened: Opened) -> None:
        try:
            info = await client.call("getFile", file_id=attachment.file_id)
            path = info.get("file_path") if isinstance(info, dict) else None
            if not isinstance(path, str) or not path:
                raise Never("the answer to getFile names no file")
            await client.download(path, await opened(), max_bytes)
        except FloodWait as error:
            raise Later(error.message, error.retry_after_s) from None
        except (NotSent, FateUnknown, TokenRefused) as error:
            # A refused token ends this life, and the next one takes the message up again.
            raise Later(error.message) from None
        except TelegramError as error:
            if "too big" in error.message:
                raise TooLarge(error.message) from None
            raise Never(error.message) from None

    return await fetching.fetch(
        pull,
        attachment,
        workspace,
        files=files,
        owner=owner,
        clock=clock,
        entropy=entropy,
        max_bytes=max_bytes,
        say=say,
        over="file.not_taken",
    )
