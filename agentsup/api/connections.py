"""What is open at the listener: waits, streams and sockets, each counted, bounded and endable."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agentsup.api.ports import ApiLimits
from agentsup.api.spoken import Spoken
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import NotReady, Overloaded

T = TypeVar("T")
_WAIT = "wait:"
_log = logging.getLogger(__name__)


class Connections:
    """Counts open things by kind and ends them in bounded time when the listener closes."""

    def __init__(self, limits: ApiLimits) -> None:
        """Bound each kind by `limits`."""
        self._limits = {
            "waits": limits.waiting,
            "event streams": limits.event_streams,
            "sockets": limits.sockets,
            "uploads": limits.uploads,
        }
        self._look_s = limits.heartbeat_s
        self._open = dict.fromkeys(self._limits, 0)
        self._held: Counter[tuple[str, str]] = Counter()
        """How many of a kind one person has open."""
        self._peoples: Counter[str] = Counter()
        """How many of a kind are open for people below operator."""
        self._endings: dict[object, Callable[[], Awaitable[None]]] = {}
        self._waits: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.work = TaskOwner("api", on_error=_note_failure)
        """Work that outlives the connection that asked for it, such as a command under way."""
        self.commands = Once(self.work)
        """Commands by the id that their client gave them."""
        self.spoken = Spoken()

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind are open."""
        return dict(self._open)

    @contextmanager
    def admit(self, kind: str, who: str = "", *, is_operator: bool = True) -> Iterator[None]:
        """Count one of `kind` for the block; `who` is a person in a browser, if it is one.

        A person has at most a quarter of the places (an operator half), and a quarter is kept for
        operators: nobody, and no page that has gone wild, locks the others out. Raises
        `Overloaded` over a limit.
        """
        if self._closing:
            raise closing()
        limit = self._limits[kind]
        share = max(1, limit // (2 if is_operator else 4))
        if who and self._held[kind, who] >= share:
            raise _full(kind, share, f"you have {share} {kind} open, the most for one person")
        if not is_operator and self._peoples[kind] >= max(1, limit - limit // 4):
            raise _full(kind, limit, f"too many {kind} are open; the rest is kept for operators")
        if self._open[kind] >= limit:
            raise _full(kind, limit, f"{limit} {kind} are open, the most allowed")
        self._count(kind, who, is_operator, 1)
        try:
            yield
        finally:
            self._count(kind, who, is_operator, -1)

    def _count(self, kind: str, who: str, is_operator: bool, by: int) -> None:
        self._open[kind] += by
        if not is_operator:
            self._peoples[kind] += by
        if who:
            self._held[kind, who] += by
            if not self._held[kind, who]:
                del self._held[kind, who]

    async def wait(
        self,
        start: Callable[[], Coroutine[Any, Any, T]],
        *,
        name: str,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> T:
        """Await what `start` begins as one counted wait.

        Raises `Overloaded` over the limit, `NotReady` when the listener closes meanwhile, and
        `ConnectionError` where `is_gone`, looked at now and then, says that nobody waits any more.
        """
        with self.admit("waits"):
            task = self.work.spawn(start(), name=f"{_WAIT}{name}")
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)
            try:
                while not (await asyncio.wait({task}, timeout=self._look_s))[0]:
                    if is_gone():
                        raise ConnectionResetError("nobody waits for the answer any more")
            finally:
                task.cancel()
        if task.cancelled():
            raise closing()
        return task.result()

    @contextmanager
    def ended_by(self, ending: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """`ending` is awaited if the listener closes during the block."""
        ticket = object()
        self._endings[ticket] = ending
        try:
            yield
        finally:
            self._endings.pop(ticket, None)

    async def close(self, timeout_s: float) -> list[str]:
        """End waits, streams and sockets; wait up to `timeout_s` seconds for work under way.

        Returns the names of tasks that did not end.
        """
        self._closing = True
        for task in tuple(self._waits):
            task.cancel()
        endings = [ending() for ending in tuple(self._endings.values())]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*endings, return_exceptions=True)
                if self.work.tasks:
                    await asyncio.wait(self.work.tasks)
        except TimeoutError:
            pass  # what is left is cancelled below
        return await self.work.close(timeout_s)


class Once:
    """Runs a thing with a key once: said again while it is remembered, it gives the same result.

    A failure is not remembered: it changed nothing, so the next try is a new one.
    """

    def __init__(self, owner: TaskOwner, *, remembered: int = 256) -> None:
        """Run in tasks of `owner`; remember the results of the latest `remembered` keys."""
        self._owner = owner
        self._remembered = remembered
        self._known: OrderedDict[Hashable, asyncio.Task[Any]] = OrderedDict()

    def knows(self, key: Hashable) -> bool:
        """Whether it runs, or ran a while ago."""
        return key in self._known

    async def run(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of what `start` begins, or of what it began before under `key`.

        It goes on when the caller is cancelled. Raises `NotReady` if the listener closes first.
        """
        task: asyncio.Task[T] | None = self._known.get(key)
        if task is None:
            task = self._owner.spawn(start(), name=f"{_WAIT}once")
            self._known[key] = task
            self._forget_old()
        await asyncio.wait({task})
        if task.cancelled():
            raise closing()
        if task.exception() is not None:
            self._known.pop(key, None)
        return task.result()

    def _forget_old(self) -> None:
        """Results only: what still runs is never forgotten."""
        for key in list(self._known):
            if len(self._known) <= self._remembered:
                return
            if self._known[key].done():
                del self._known[key]


def _full(kind: str, limit: int, why: str) -> Overloaded:
    return Overloaded(
        f"{why}; close one or try again later",
        queue=f"api.{kind.replace(' ', '_')}",
        size=limit,
        limit=limit,
    )


def closing() -> NotReady:
    """The refusal while the listener closes."""
    return NotReady(
        "the daemon is shutting down; nothing was lost, ask again when it is back",
        retry_after_s=5,
    )


def _note_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    """A failed wait is told to its caller; other work may have no caller left."""
    if not task.get_name().startswith(_WAIT):
        _log.error("%s failed", task.get_name(), exc_info=error)
