"""Chat in a pipe: a line in, its answer out, one after another.

A text waits until the one before is answered (or asks something), so that an answer to a question
can follow it in the same pipe; a command is sent at once.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import AsyncIterator
from typing import Final

from agentsup.cli.chat.conversation import FORMS, ChatState, ShownItem, ShownKind
from agentsup.cli.chat.link import ChatConnection, is_file
from agentsup.cli.connect.failure import CommandFailed
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
    lines: asyncio.Queue[str | None] = asyncio.Queue(_LINES_AHEAD)
    await link.run_until(_say_all(link, talk, lines, notices), _read(lines))


async def _say_all(
    link: ChatConnection,
    talk: ChatState,
    lines: asyncio.Queue[str | None],
    notices: list[ShownItem],
) -> None:
    while talk.seq is None:
        await _change(link)
    while (line := await lines.get()) is not None:
        if not line.strip():
            continue
        if line.strip() in {"/quit", "/exit"}:
            break
        if is_file(line) or not line.lstrip().startswith(("/", "!")):
            await _quiet(link, talk, notices)
        await (link.say_file(line) if is_file(line) else link.say(line))
    await _quiet(link, talk, notices)


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


async def _read(lines: asyncio.Queue[str | None]) -> None:
    """Put the lines of standard input into the queue, then None."""
    try:
        await _read_stream(lines)
    finally:
        await lines.put(None)


async def _read_stream(lines: asyncio.Queue[str | None]) -> None:
    if sys.stdin is None:
        return
    source = os.dup(sys.stdin.fileno())
    if not _can_be_watched(source):
        try:
            await _put_lines(lines, _chunks_at_once(source))
        finally:
            os.close(source)
        return
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    try:
        await _put_lines(lines, _chunks_as_they_come(reader))
    finally:
        transport.close()


def _can_be_watched(descriptor: int) -> bool:
    """Whether the loop can wait until there is something to read.

    Regular files and devices such as /dev/null can't be waited for: they are always ready. For a
    device, asyncio finds that out only in a callback, where no caller gets the error.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
        return False
    with select.epoll() as probe:
        try:
            probe.register(descriptor, select.EPOLLIN)
        except PermissionError:
            return False
    return True


async def _chunks_at_once(descriptor: int) -> AsyncIterator[bytes]:
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        yield chunk


async def _chunks_as_they_come(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(_CHUNK_BYTES):
        yield chunk


async def _put_lines(lines: asyncio.Queue[str | None], chunks: AsyncIterator[bytes]) -> None:
    """Queue the lines of ``chunks``. Raises ``CommandFailed`` for a line over ``_LINE_BYTES``."""
    rest = b""
    try:
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for each in whole:
                await lines.put(each.decode("utf-8", "replace").rstrip("\r"))
            if len(rest) > _LINE_BYTES:
                raise CommandFailed(
                    f"a line of standard input is over {_LINE_BYTES // 1024} KiB; "
                    "nothing of it was sent"
                )
    except OSError as error:
        raise CommandFailed(f"standard input can't be read: {error.strerror or error}") from None
    if rest:
        await lines.put(rest.decode("utf-8", "replace"))
