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

from agentsup.cli.chat.conversation import Conversation, Kind, Shown
from agentsup.cli.chat.link import Link
from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.kit.terminal import clean

GIVE_UP_S: Final = 60.0
_LINES_AHEAD: Final = 100
_CHUNK_BYTES: Final = 64 * 1024
_LINE_BYTES: Final = 256 * 1024
"""A text may have no more."""


async def chat_in_lines(place: Place, agent: str, conversation: str, *, warns: bool) -> int:
    """Say each line of standard input; returns 0 once it has ended and all is answered."""
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    talk = Conversation(agent, conversation, lambda: entropy.new_id("say"), warns)
    notices: list[Shown] = []

    def show(one: Shown) -> None:
        text = line_of(one)
        if one.kind is Kind.WARNING:
            tell(clean(f"* {one.text}"))  # no part of what was said
        elif text is not None:
            print(clean(text), flush=True)
        if one.kind is Kind.NOTICE or (one.kind is Kind.REPLY and talk.awaited):
            notices.append(one)

    def tell(text: str) -> None:
        print(clean(text), file=sys.stderr, flush=True)

    link = Link(place, talk, clock=clock, show=show, tell=tell, give_up_s=GIVE_UP_S)
    lines: asyncio.Queue[str | None] = asyncio.Queue(_LINES_AHEAD)
    tasks = TaskOwner("chat", on_error=lambda task, error: None)
    connected = tasks.spawn(link.run(), name="link:chat")
    reading = tasks.spawn(_read(lines), name="stdin:chat")
    saying = tasks.spawn(_say_all(link, talk, lines, notices), name="say:chat")
    try:
        await asyncio.wait({connected, saying}, return_when=asyncio.FIRST_COMPLETED)
        for task in (connected, saying, reading):
            if task.done():
                task.result()
    finally:
        await tasks.close(2.0)
    return 0


async def _say_all(
    link: Link, talk: Conversation, lines: asyncio.Queue[str | None], notices: list[Shown]
) -> None:
    while talk.seq is None:
        await _change(link)
    while (line := await lines.get()) is not None:
        if not line.strip():
            continue
        if line.strip() in {"/quit", "/exit"}:
            break
        if not line.lstrip().startswith(("/", "!")):
            await _quiet(link, talk, notices)
        await link.say(line)
    await _quiet(link, talk, notices)


async def _quiet(link: Link, talk: Conversation, notices: list[Shown]) -> None:
    """Return once nothing is on its way."""
    while talk.is_waiting:
        if notices and talk.awaited:
            # A note may tell of messages that end without an answer of their own.
            notices.clear()
            await link.check_awaited()
            continue
        await _change(link)


async def _change(link: Link) -> None:
    link.changed.clear()
    await link.changed.wait()


def line_of(one: Shown) -> str | None:
    """A line for a pipe; None for what a pipe does not show (history, streaming)."""
    if one.old:
        return None
    match one.kind:
        case Kind.ANSWER:
            return f"{one.who}: {one.text}"
        case Kind.PERSON:
            return f"{one.who or 'you'}: {one.text}"
        case Kind.CORRECTED:
            return f"{one.who or 'you'} (corrected): {one.text}"
        case Kind.FILE:
            return f"{one.who}: [file {one.text}]"
        case Kind.QUESTION:
            options = "".join(f"\n  {n}. {o}" for n, o in enumerate(one.options, start=1))
            return f"{one.who} asks: {one.text}{options}"
        case Kind.NOTICE | Kind.ERROR:
            return f"* {one.text}"
        case Kind.REPLY:
            return one.text
        case _:
            return None


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

    Regular files and devices such as /dev/null can't be waited for: they are always ready. asyncio
    learns that of a device only in a callback, where nobody is left to hear of it.
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
    """Raises `Failed` for a line that is longer than any text may be."""
    rest = b""
    try:
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for each in whole:
                await lines.put(each.decode("utf-8", "replace").rstrip("\r"))
            if len(rest) > _LINE_BYTES:
                raise Failed(
                    f"a line of standard input is over {_LINE_BYTES // 1024} KiB; "
                    "nothing of it was sent"
                )
    except OSError as error:
        raise Failed(f"standard input can't be read: {error.strerror or error}") from None
    if rest:
        await lines.put(rest.decode("utf-8", "replace"))
