"""A daemon's system calls, and the judge of what they say about offsets (P1).

The rule, seen from outside: a ``getUpdates`` with offset N goes out only after a sync of the store
that began when a page with update N - 1 had been written. The numbers are read out of the bytes
that were written and sent; nothing that the daemon says about itself is used.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HAS_STRACE: Final = shutil.which("strace") is not None
CALLS: Final = "fsync,fdatasync,pwrite64,sendto,sendmsg"
BYTES: Final = 6000
"""How much of each buffer is kept: more than a page of the store, more than a request."""
END_S: Final = 10.0

Step = tuple[str, int]
"""("kept", update id), ("synced", how many steps there were when it began), ("asked", offset or 0),
("killed", 0)."""


class Tracer:
    """``strace`` on a process, as ``async with``; it ends with the process, or with the block."""

    def __init__(self, pid: int, output: Path) -> None:
        self._pid = pid
        self._process: subprocess.Popen[bytes] | None = None
        self.output = output
        self.why_not = ""
        """Why it could not attach; empty if it did."""

    async def __aenter__(self) -> Self:
        self._process = subprocess.Popen(
            [
                *("strace", "-f", "-yy", "-s", str(BYTES), "-e", f"trace={CALLS}"),
                *("-o", str(self.output), "-p", str(self._pid)),
            ],
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        told = await asyncio.to_thread(self._process.stderr.readline)
        self.why_not = "" if b"attached" in told else told.decode(errors="replace").strip()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # it lets go of what still runs
        await asyncio.to_thread(self._process.wait)
        self._process.stderr.close()

    async def ended(self) -> None:
        """Wait until it has seen the end of the process and has ended itself."""
        assert self._process is not None
        await asyncio.to_thread(self._process.wait, END_S)

    async def steps(self) -> list[Step]:
        """What was seen so far."""
        return await asyncio.to_thread(lambda: steps(self.output.read_text(errors="replace")))


_SYNC: Final = re.compile(r"f(?:data)?sync\(\d+<[^>]*state\.db-wal>")
_WRITE: Final = re.compile(r"pwrite64\(\d+<[^>]*state\.db-wal>")
_NUMBER: Final = re.compile(r'update_id\\*": ?(\d+)')
_OFFSET: Final = re.compile(r"\boffset=(\d+)")
_DONE: Final = re.compile(r"\) += (\d+)$")


def steps(trace: str) -> list[Step]:
    """What counts of a trace, in order."""
    found: list[Step] = []
    writing: dict[str, list[int]] = {}
    syncing: dict[str, int] = {}
    for line in trace.splitlines():
        thread, _, call = line.partition(" ")
        call = call.lstrip()
        done = _DONE.search(call)
        if call.startswith("+++ killed by SIGKILL"):
            found.append(("killed", 0))
        elif _WRITE.match(call):
            writing[thread] = [int(each) for each in _NUMBER.findall(call)]
        elif _SYNC.match(call):
            syncing[thread] = len(found)
        elif call.startswith("send") and "<TCP" in call and "getUpdates" in call:
            offset = _OFFSET.search(call)
            found.append(("asked", int(offset[1]) if offset else 0))
        # On the line where it began, or, where another thread came between, on the one that
        # tells that it was resumed.
        if done and "pwrite64" in call[:20]:
            found += [("kept", number) for number in writing.pop(thread, ())]
        elif done and "sync" in call[:20] and thread in syncing:
            found.append(("synced", syncing.pop(thread)))
    return found


def judge(found: Sequence[Step]) -> int:
    """How many updates of this life were confirmed, each after the sync that holds it.

    Raises ``AssertionError`` at the first that was not. The offset that a life begins with is what an
    earlier one kept, if it did not get as far as the sync: so a sync of this life comes before it.
    """
    kept: dict[int, int] = {}
    safe: set[int] = set()
    confirmed: set[int] = set()
    last: int | None = None
    is_synced = False
    for at, (what, number) in enumerate(found):
        if what == "kept":
            kept.setdefault(number, at)
        elif what == "synced":
            is_synced = True
            safe |= {update for update, since in kept.items() if since < number}
        elif what == "asked":
            assert is_synced or not number, f"offset {number} before any sync"
            for update in _newly_confirmed(number, last, kept):
                assert update in kept, f"offset {number}, and {update} was never written"
                assert update in safe, f"{update} confirmed before the sync"
                confirmed.add(update)
            last = number
    return len(confirmed)


def _newly_confirmed(offset: int, last: int | None, kept: Collection[int]) -> Iterable[int]:
    """What an offset confirms, of this life; ``last`` is the one before, None at the first request.

    The fake counts without gaps.
    """
    if last is None or not offset:
        return ()
    return range(last, offset) if last else {offset - 1, *(u for u in kept if u < offset)}
