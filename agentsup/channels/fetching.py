"""Files that people send: fetched into the agent's workspace, whichever platform keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from agentsup.catalogue import Words
from agentsup.channels.received import FOLDER, Landing, Write
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.planted import Folder
from agentsup.kit.pool import BoundedPool
from agentsup.model.errors import TooLarge
from agentsup.model.message import Part

__all__ = ["Fetched", "Later", "Never", "Opened", "Sent", "discard", "fetch"]

Opened = Callable[[], Awaitable[Write]]
_PATIENCE_S = 60.0
"""A server that is started anew is back within this time; what comes behind in the chat waits."""
_PAUSE_CAP_S = 10.0


class Later(Exception):
    """The file can't be had now; after ``after_s``, if the platform says so, or a while."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Never(Exception):
    """The file can't be had, and no further try will change that."""


class Sent(Protocol):
    """A file that a person has sent; ``size`` in bytes, None where it is not told."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as a part of the message, or ``problem``: what to tell the person instead."""

    part: Part | None = None
    problem: str = ""


async def fetch(
    pull: Callable[[Opened], Awaitable[object]],
    sent: Sent,
    workspace: Path,
    *,
    owner: str,
    clock: Clock,
    entropy: Entropy,
    max_bytes: int,
    say: Words,
    over: str = "file.over_ours",
    files: BoundedPool | None = None,
) -> Fetched:
    """Fetch one file to ``<workspace>/inbox/<date>-<name>``; trouble comes back in words.

    ``pull`` opens a file, once it knows where the content is, and writes it; it may be called
    several times, and raises ``Later``, ``Never``, ``TooLarge``
    over ``max_bytes``, or ``OSError``. ``owner`` names whose unfinished files a ``sweep`` finds;
    ``over`` is what is said of a file that is too large; ``files`` is the pool for the workspace.
    """
    run = partial((files or BoundedPool("files")).run, key=workspace.parent.name)

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
        landing: Landing | None = None

        async def opened() -> Write:
            nonlocal landing
            make = partial(Landing, workspace, owner=owner, token=entropy.token())
            landing = await run(make, undo=Landing.close)
            out = landing.out

            async def write(piece: bytes) -> None:
                await run(partial(out.write, piece))

            return write

        try:
            try:
                await pull(opened)
            except BaseException:
                if landing is not None:
                    with suppress(OSError):  # it does not answer; what ended the try counts
                        await run(landing.close)
                raise
            assert landing is not None, "what was pulled was written"
            # It closes what it keeps: a wait after this one could be given up with the file kept.
            keep = partial(_keep, landing, sent.name, clock.now_ms())
            to = await run(keep, undo=partial(_discard_one, workspace))
            return Fetched(Part("file", path=f"{FOLDER}/{to.name}", name=sent.name))
        except TooLarge:
            return too_large()
        except Later as error:
            pause_s = delay_s(failures, base_s=1.0, cap_s=_PAUSE_CAP_S, unit=0.5)
            pause_s = pause_s if error.after_s is None else error.after_s
            failures += 1
            if clock.monotonic() + pause_s > until:
                return failed(str(error))
            await clock.sleep(pause_s)
        except Never as error:
            return failed(str(error))
        except OSError as error:
            return failed(error.strerror or str(error) or say("file.unwritable"))


def _keep(landing: Landing, name: str, now_ms: int) -> Path:
    """Give it its name, and leave nothing else: the file is whole, or there is none."""
    try:
        return landing.keep(name, now_ms=now_ms)
    finally:
        landing.close()


def _discard_one(workspace: Path, kept: Path) -> None:
    Folder(workspace).remove(f"{FOLDER}/{kept.name}")


async def discard(parts: Sequence[Part], workspace: Path, files: BoundedPool | None = None) -> None:
    """Remove what was fetched for a message that was not taken."""

    def remove() -> None:
        for part in parts:
            if part.path:
                with suppress(OSError):
                    Folder(workspace).remove(part.path)

    if parts:
        with suppress(OSError):
            await (files or BoundedPool("files")).run(remove, key=workspace.parent.name)
