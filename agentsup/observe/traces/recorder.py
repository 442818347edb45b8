"""Writes spans beside the reported work: a bounded buffer, a separate task, batches.

Reporting a span takes no time and never fails. A store that is slow, full or missing costs only
spans, which are counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.trace import SpanKind
from agentsup.observe.traces import rows
from agentsup.observe.traces.buffer import SpanBuffer
from agentsup.observe.traces.span import Span
from agentsup.store import Database, Tx

_log = get_logger(__name__)

EVERY_S = 0.5
"""The seconds for which a span waits for others before it is written."""
BATCH = 256
SETTLE_EVERY_S = 60.0
SHOWN_EVERY_S = 0.5
"""Readers within this many seconds of another one cause no settling of their own."""
LAST_S = 1.0
"""The seconds for which the end of the daemon waits for the last spans."""


class SpanRecorder:
    """Buffers reported spans and writes them in batches."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        boot_id: str,
        *,
        on_written: Callable[[Sequence[Span]], None] = lambda spans: None,
    ) -> None:
        """``on_written`` is called with each batch after it is written or given up; it must not
        block or raise."""
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
        self._buffer = SpanBuffer()
        self._on_written = on_written
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failures = 0
        self._has_interrupted = False
        self._settle_at_s = clock.monotonic() + SETTLE_EVERY_S
        self._shown_at_s = -math.inf
        self.written = 0

    @property
    def dropped(self) -> int:
        """Spans lost since the start: there was no room, or the store refused them."""
        return self._buffer.dropped

    @property
    def waiting(self) -> int:
        """The number of spans that are not written yet."""
        return len(self._buffer)

    def put(self, span: Span) -> None:
        """Buffer the present state of a span."""
        self._buffer.put(span)
        self._changed.set()

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Implements the life of a supervised child."""
        ready()
        waking = TaskOwner("traces-end")
        waking.spawn(call_after(draining, self._changed.set), name="drain:traces")
        try:
            while not draining.is_set():
                await self._write_all(settle=self._is_settling_time())
                await self._changed.wait()
                self._changed.clear()
                await self._gather(draining)
        finally:
            await waking.close(0.1)
        try:
            async with asyncio.timeout(LAST_S):
                await self._write_all(settle=True)
        except TimeoutError:
            _log.warning("traces are not whole", waiting=self.waiting)

    async def flush(self, timeout_s: float = 1.0) -> None:
        """Write buffered spans for a reader, for at most ``timeout_s``."""
        now_s = self._clock.monotonic()
        is_settling = now_s - self._shown_at_s >= SHOWN_EVERY_S
        if is_settling:
            self._shown_at_s = now_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._write_all(settle=is_settling)
        except TimeoutError:
            return

    # -- inside ------------------------------------------------------------------------------------

    def _is_settling_time(self) -> bool:
        now_s = self._clock.monotonic()
        is_time = now_s >= self._settle_at_s
        if is_time:
            self._settle_at_s = now_s + SETTLE_EVERY_S
        return is_time

    async def _gather(self, draining: asyncio.Event) -> None:
        """Wait for more spans, or for the store to recover; ends when the daemon drains."""
        wait_s = EVERY_S
        if self._failures:
            wait_s = delay_s(self._failures, cap_s=30.0, jitter=0.0)
        await is_set_within(draining, wait_s)

    async def _write_all(self, *, settle: bool) -> None:
        """Write batch after batch until the buffer is empty or the store refuses."""
        async with self._writing:
            while self._buffer or settle or not self._has_interrupted:
                batch = self._buffer.take(BATCH)
                is_stored = await self._write(batch, settle=settle)
                settle = False
                if is_stored is None:
                    self._buffer.give_back(batch)
                    self._changed.set()
                    return
                self._on_written(batch)

    async def _write(self, batch: list[Span], *, settle: bool) -> bool | None:
        """Write a batch. True if it is stored, False if it is lost, None: try again later."""
        is_first, at = not self._has_interrupted, self._clock.now_ms()
        made = [rows.row_of(span, self._boot_id) for span in batch]
        turns = [span.span_id for span in batch if span.kind is SpanKind.TURN]

        def write(tx: Tx) -> None:
            if is_first:
                rows.interrupt_tx(tx, self._boot_id, at)
            rows.write_tx(tx, made, turns)
            if settle:
                rows.settle_tx(tx)

        try:
            await self._database.write(write, name="traces.write")
        except (StoreUnavailable, Overloaded) as error:
            self._failures += 1
            if self._failures == 1:
                _log.warning("traces wait for the store", reason=error.message)
            return None
        except asyncio.CancelledError:
            # The caller is gone, and whether the batch is stored is unknown; writing it twice does
            # no harm.
            self._buffer.give_back(batch)
            raise
        except Exception:  # noqa: BLE001 - supervision boundary: a trace must not end the daemon
            _log.exception("spans could not be written", count=len(batch))
            self._buffer.lose(len(batch))
            self._has_interrupted = True
            return False
        self._failures, self._has_interrupted = 0, True
        self.written += len(batch)
        return True
