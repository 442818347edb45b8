"""Files that people send: fetched from any platform into the agent's workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.errors import (
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.core.files.inbox_files import FOLDER, InboxFolder, Write
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.errors import TooLarge
from agentsup.model.message import Part

Opened = Callable[[], Awaitable[Write]]
_PATIENCE_S = 60.0
"""Longest time for all tries of one file: enough for a restart of the platform's server. Later
messages of the chat wait meanwhile."""
_PAUSE_CAP_S = 10.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a person has sent, by its id or address on the platform.

    ``size`` in bytes, None if the platform does not tell it.
    """

    kind: str
    file_id: str
    name: str
    size: int | None = None


class Receiver(Protocol):
    """The bot of one agent, to which files are sent."""

    @property
    def channel(self) -> str: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def files(self) -> BoundedPool: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def entropy(self) -> Entropy: ...
    @property
    def max_file_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as a part of the message, or ``problem``: the text for the person if it failed."""

    part: Part | None = None
    problem: str = ""


async def fetch(
    pull: Callable[[Opened], Awaitable[object]],
    sent: Attachment,
    receiver: Receiver,
    say: LocalizedTexts,
    *,
    over: str = "file.over_ours",
) -> Fetched:
    """Fetch one file to ``<workspace>/inbox/<date>-<name>``; a failure is returned as a text.

    ``pull`` finds the content, then opens the local file and writes it. It is called again while
    the platform cannot be reached, and raises a ``PlatformError``, ``OSError``, or ``TooLarge`` for
    more than the receiver's ``max_file_bytes``. ``over`` is the key of the text for a file that is
    too large.
    """
    clock, max_bytes = receiver.clock, receiver.max_file_bytes

    def failed(why: str) -> Fetched:
        return Fetched(problem=say("file.not_fetched", name=sent.name, why=why))

    def too_large() -> Fetched:
        size = f" ({sent.size / 1_048_576:.0f} MB)" if sent.size else ""
        return Fetched(problem=say(over, name=sent.name + size, mb=max_bytes // 1_048_576))

    if sent.size is not None and sent.size > max_bytes:
        return too_large()
    until = clock.monotonic() + _PATIENCE_S
    failures = 0
    while True:
        try:
            return Fetched(await _fetched(pull, sent, receiver))
        except TooLarge:
            return too_large()
        except (RateLimited, NotSent, OutcomeUnknown, TokenRefused) as error:
            # A refused token ends this life of the bot, and the next one handles the message.
            pause_s = delay_s(failures, base_s=1.0, cap_s=_PAUSE_CAP_S, unit=0.5)
            if isinstance(error, RateLimited):
                pause_s = error.retry_after_s
            failures += 1
            if clock.monotonic() + pause_s > until:
                return failed(error.message)
            await clock.sleep(pause_s)
        except PlatformError as error:
            return failed(error.message)
        except OSError as error:
            return failed(error.strerror or str(error) or say("file.unwritable"))


async def _fetched(
    pull: Callable[[Opened], Awaitable[object]], sent: Attachment, receiver: Receiver
) -> Part:
    """Fetch one file, in one attempt. Raises what ``pull`` raises, and ``OSError``."""
    workspace = receiver.workspace
    run = partial(receiver.files.run, key=workspace.parent.name)
    # By this name a sweep finds unfinished files.
    owner = f"{receiver.channel}-{receiver.agent_id}"
    landing: InboxFolder | None = None

    async def opened() -> Write:
        nonlocal landing
        make = partial(InboxFolder, workspace, owner=owner, token=receiver.entropy.token())
        landing = await run(make, undo=InboxFolder.close)
        out = landing.out

        async def write(piece: bytes) -> None:
            await run(partial(out.write, piece))

        return write

    try:
        await pull(opened)
    except BaseException:
        if landing is not None:
            with suppress(OSError):  # the file system is stuck; the first error counts
                await run(landing.close)
        raise
    assert landing is not None, "what was pulled was written"
    # ``_keep`` also closes: a second call could time out after the file was published.
    keep = partial(_keep, landing, sent.name, receiver.clock.now_ms())
    to = await run(keep, undo=partial(_discard_one, workspace))
    return Part("file", path=f"{FOLDER}/{to.name}", name=sent.name)


def _keep(landing: InboxFolder, name: str, now_ms: int) -> Path:
    """Give the file its final name and remove the temporary one: it is whole or does not exist."""
    try:
        return landing.keep(name, now_ms=now_ms)
    finally:
        landing.close()


def _discard_one(workspace: Path, path: Path) -> None:
    GuardedFolder(workspace).remove(f"{FOLDER}/{path.name}")


async def discard(parts: Sequence[Part], receiver: Receiver) -> None:
    """Remove the files that were fetched for a message that was then not accepted."""
    workspace = receiver.workspace

    def remove() -> None:
        for part in parts:
            if part.path:
                with suppress(OSError):
                    GuardedFolder(workspace).remove(part.path)

    if parts:
        with suppress(OSError):
            await receiver.files.run(remove, key=workspace.parent.name)
