"""Files that people send to a Matrix bot."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agentsup.catalogue import Words
from agentsup.channels import fetching
from agentsup.channels.fetching import Fetched, Later, Never, Opened, discard
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.event import Attachment
from agentsup.channels.received import Write
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool

__all__ = ["Fetched", "FileClient", "discard", "fetch"]


class FileClient(Protocol):
    """What is needed of a client."""

    async def download(self, mxc: str, write: Write, max_bytes: int) -> int: ...


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
            await client.download(attachment.mxc, await opened(), max_bytes)
        except RateLimited as error:
            raise Later(error.message, error.retry_after_s) from None
        except (NotSent, FateUnknown, TokenRefused) as error:
            # A refused token ends this life, and the next one takes the message up again.
            raise Later(error.message) from None
        except MatrixError as error:
            raise Never(error.message) from None
        except ValueError as error:
            raise Never(str(error)) from None

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
    )
