"""Chat in a pipe: a line in, its answer out, one after another.

A text waits until the one before is answered (or asks something), so that an answer to a question
can follow it in the same pipe; a command is sent at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from agentsup.cli.chat.conversation import FORMS, ChatState, ShownItem, ShownKind
from agentsup.cli.chat.link import ChatConnection, is_file
from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.kit.clock import Clock
from agentsup.kit.terminal import clean

GIVE_UP_S: Final = 60.0
_LINES_AHEAD: Final = 100
_CHUNK_BYTES: Final = 64 * 1024
_LINE_BYTES: Final = 256 * 1024
"""The most bytes of one text."""


async def chat_in_lines(location: DaemonLocation, talk: ChatState, clock: Clock) -> None:
    """Send each line of standard input; returns once it has ended and all is answered."""
    notices: list[ShownItem] = []

    def show(one: ShownItem) -> None:
        text = line_of(one)
        if one.kind is ShownKind.WARNING:
            tell(one.sentence)  # no part of the conversation
        elif text is not None:
            print(clean(text), flush=True)
        if one.kind is ShownKind.NOTICE or (one.kind is ShownKind.REPLY and talk.awaited):
            notices.append(one)

    def tell(text: str) -> None:
        print(clean(text), file=sys.stderr, flush=True)

    link = ChatConnection(location, talk, clock=clock, show=show, tell=tell, give_up_s=GIVE_UP_S)
    lines: asyncio.Queue[str | CommandFailed | None] = asyncio.Queue()
    room, loop = threading.Semaphore(_LINES_AHEAD), asyncio.get_running_loop()

    def put(line: str | CommandFailed | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(lines.put_nowait, line)

    async def following() -> str | CommandFailed | None:
        room.release()
        return await lines.get()

    # A thread that ends with the program, as a read of standard input may never return.
    threading.Thread(target=_read, args=(put,), name="stdin", daemon=True).start()
    await link.run_until(_say_all(link, talk, following, notices))


async def _say_all(
    link: ChatConnection,
    talk: ChatState,
    following: Callable[[], Awaitable[str | CommandFailed | None]],
    notices: list[ShownItem],
) -> None:
    while talk.seq is None:
        await _change(link)
    while isinstance(line := await following(), str):
        if not line.strip():
            continue
        if line.strip() in {"/quit", "/exit"}:
            break
        if is_file(line) or not line.lstrip().startswith(("/", "!")):
            await _quiet(link, talk, notices)
        await (link.say_file(line) if is_file(line) else link.say(line))
    await _quiet(link, talk, notices)
    if line is not None and not isinstance(line, str):
        raise line


async def _quiet(link: ChatConnection, talk: ChatState, notices: list[ShownItem]) -> None:
    """Return once no text is unconfirmed or unanswered, except those that wait for the person."""
    while talk.is_waiting:
        if notices and talk.awaited:
            # A note may be about messages that end without an answer of their own.
            notices.clear()
            await link.check_awaited()
            continue
        await _change(link)


async def _change(link: ChatConnection) -> None:
    link.changed.clear()
    await link.changed.wait()


def line_of(one: ShownItem) -> str | None:
    """A line for a pipe; None for what a pipe does not show (history, streaming)."""
    if one.old or one.kind not in FORMS:
        return None
    if one.kind is ShownKind.ERROR:
        return f"* {one.text}"
    return one.sentence + "".join(f"\n  {n}. {o}" for n, o in enumerate(one.options, start=1))


def _read(put: Callable[[str | CommandFailed | None], None]) -> None:
    """Hand the lines of standard input to ``put``, then None or what went wrong."""
    with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits for more
        try:
            for line in _lines():
                put(line)
            put(None)
        except CommandFailed as failure:
            put(failure)


def _lines() -> Iterator[str]:
    """The lines of standard input. Raises ``CommandFailed`` if it can't be read, or for a line over
    ``_LINE_BYTES``."""
    rest = b""
    with failing_as("standard input can't be read"):
        while sys.stdin is not None and (chunk := os.read(sys.stdin.fileno(), _CHUNK_BYTES)):
            *whole, rest = (rest + chunk).split(b"\n")
            for each in whole:
                yield each.decode("utf-8", "replace").rstrip("\r")
            if len(rest) > _LINE_BYTES:
                raise CommandFailed(
                    f"a line of standard input is over {_LINE_BYTES // 1024} KiB; "
                    "nothing of it was sent"
                )
    if rest:
        yield rest.decode("utf-8", "replace")
