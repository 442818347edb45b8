"""The open requests, waits, streams, sockets and uploads of the listener: counted, limited, and
ended."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeVar

from agentsup.api.http.dependencies import ApiDependencies, ApiLimits
from agentsup.channels.core.files import sweep_inbox
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Conflict, NotReady, Overloaded
from agentsup.model.message import Accepted
from agentsup.store import Tx

T = TypeVar("T")
_WAIT = "wait:"
_PEOPLE = "people"
_log = get_logger(__name__)
_SAY_EVERY_S: Final = 60.0
OWNER: Final = "web"
"""The channel whose incomplete files are removed; other channels remove their own."""
_SWEEPS_AT_ONCE: Final = 4
"""Sweeps at the same time; fewer than the pool has threads."""
_SWEEP_S: Final = 2.0


class _Use(IntEnum):
    """The use of a connection. At the limit, one with the lowest value is closed first."""

    STRANGER = 0
    IDLE = 1
    """It has served a request with a token, and serves none now."""
    SERVING = 2


class ConnectionTable:
    """The open connections of one listener, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Transport, _Use] = {}
        """In the order of their last change."""
        self._said_at = -_SAY_EVERY_S

    def add(self, transport: asyncio.Transport) -> None:
        """Count a new connection; at the limit, close another one for it, or itself."""
        if len(self._open) >= self._most:
            leaving = min(
                filter(self._may_go, self._open), key=self._open.__getitem__, default=None
            )
            if leaving is None:
                self._say_full()
                transport.abort()
                return
            del self._open[leaving]
            leaving.abort()
        self._open[transport] = _Use.STRANGER

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._open.pop(transport, None)

    @contextmanager
    def serving(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Serve a request with a valid token or session inside the block."""
        if transport not in self._open:  # closed meanwhile, or of another server
            yield
            return
        assert isinstance(transport, asyncio.Transport)
        self._change(transport, _Use.SERVING)
        try:
            yield
        finally:
            if transport in self._open:
                self._change(transport, _Use.IDLE)

    def _change(self, transport: asyncio.Transport, use: _Use) -> None:
        del self._open[transport]
        self._open[transport] = use

    def _may_go(self, transport: asyncio.Transport) -> bool:
        use = self._open[transport]
        is_read = use is _Use.STRANGER or not transport.get_write_buffer_size()
        return use is not _Use.SERVING and is_read

    def _say_full(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            _log.warning(
                f"all {self._most} connections serve requests; further ones are refused "
                "(said once a minute)"
            )


class Connections:
    """Counts what is open by kind and ends it in bounded time when the listener closes."""

    def __init__(self, limits: ApiLimits) -> None:
        """Limit each kind by ``limits``."""
        self._limits = {
            "connections": limits.connections,
            "waits": limits.waiting,
            "event streams": limits.event_streams,
            "sockets": limits.sockets,
            "uploads": limits.uploads,
        }
        self._look_s = limits.heartbeat_s
        self._open: Counter[tuple[str, str]] = Counter()
        """Number of open ones of a kind: in all (``""``), for people who are no operators, and for
        one person."""
        self._endings: set[Callable[[], Awaitable[None]]] = set()
        self._waits: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.work = TaskOwner("api", on_error=_note_failure)
        """Work that outlives the connection that asked for it, such as a running command."""
        self.commands = Once(self.work)
        """Commands by the id that their client gave them."""
        self.spoken: set[PendingText] = set()
        """The texts of all clients of ``/ws`` that are not accepted yet, for stops to find."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of open ones of each kind."""
        return {kind: self._open[kind, ""] for kind in self._limits}

    @contextmanager
    def admit(self, kind: str, who: str = "", *, is_operator: bool = True) -> Iterator[None]:
        """Count one of ``kind`` for the block; ``who`` is the person of a browser or the agent
        whose share it counts in, else empty.

        A person or agent may have at most a quarter of the limit open (an operator half), and a
        quarter is reserved for operators, so that no person, agent or faulty page locks the others
        out. Raises ``Overloaded`` over a limit, ``NotReady`` while the listener closes.
        """
        if self._closing:
            raise closing()
        limit = self._limits[kind]
        share = max(1, limit // (2 if is_operator else 4))
        if who and self._open[kind, who] >= share:
            raise _full(kind, share, f"you have {share} {kind} open, the most for one caller")
        if not is_operator and self._open[kind, _PEOPLE] >= max(1, limit - limit // 4):
            raise _full(kind, limit, f"too many {kind} are open; the rest is kept for operators")
        if self._open[kind, ""] >= limit:
            raise _full(kind, limit, f"{limit} {kind} are open, the most allowed")
        counted = Counter((kind, of) for of in {"", who, "" if is_operator else _PEOPLE})
        self._open += counted
        try:
            yield
        finally:
            self._open -= counted  # drops the counts that are zero now

    async def wait(
        self,
        start: Callable[[], Coroutine[Any, Any, T]],
        *,
        name: str,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> T:
        """Await the coroutine of ``start`` as one counted wait.

        Raises ``Overloaded`` over the limit, ``NotReady`` if the listener closes meanwhile, and
        ``ConnectionError`` if ``is_gone``, called every ``heartbeat_s`` seconds, returns True.
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
        """Await ``ending`` if the listener closes during the block."""
        self._endings.add(ending)
        try:
            yield
        finally:
            self._endings.discard(ending)

    async def close(self, timeout_s: float) -> list[str]:
        """End waits, streams and sockets; wait up to ``timeout_s`` seconds for work under way.

        Returns the names of tasks that did not end.
        """
        self._closing = True
        for task in tuple(self._waits):
            task.cancel()
        endings = [ending() for ending in tuple(self._endings)]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*endings, return_exceptions=True)
                if self.work.tasks:
                    await asyncio.wait(self.work.tasks)
        except TimeoutError:
            pass  # what is left is cancelled below
        return await self.work.close(timeout_s)


class Once:
    """Runs the work of a key once: while the key is remembered, a second call gets the same result.

    A failure is not remembered: it changed nothing, so the next call is a new attempt.
    """

    def __init__(self, owner: TaskOwner, *, remembered: int = 256) -> None:
        """Run in tasks of ``owner``; remember the results of the latest ``remembered`` keys."""
        self._owner = owner
        self._remembered = remembered
        self._known: OrderedDict[Hashable, asyncio.Task[Any]] = OrderedDict()

    def knows(self, key: Hashable) -> bool:
        """Whether the work of ``key`` runs, or its result is still remembered."""
        return key in self._known

    async def run(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the coroutine of ``start``, or of an earlier one with this ``key``.

        The work goes on if the caller is cancelled. Raises ``NotReady`` if the listener closes.
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
        """Drop the oldest results; work that still runs is never dropped."""
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
    """Log a failure, except of a wait, whose caller gets it; other work may have no caller left."""
    if not task.get_name().startswith(_WAIT):
        _log.error(f"{task.get_name()} failed", exc_info=error)


class UploadSweeps:
    """Removes uploads that were incomplete when an earlier run was killed: several agents at the
    same time, each before its first upload. A complete file has another name."""

    def __init__(self, work: TaskOwner) -> None:
        self._work = work
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._side_by_side = asyncio.Semaphore(_SWEEPS_AT_ONCE)

    def start(self, deps: ApiDependencies) -> None:
        """Start. A sweep may take 2 s, so a workspace that does not answer delays others little."""
        for name in deps.directory.names():
            sweep = self._sweep(deps, name)
            self._agents[name] = self._work.spawn(sweep, name=f"sweep:{name}")

    async def over(self, agent: str) -> None:
        """Wait until the sweep of that agent is done."""
        if (task := self._agents.get(agent)) is not None:
            await asyncio.wait({task})

    async def _sweep(self, deps: ApiDependencies, name: str) -> None:
        async with self._side_by_side:
            workspace, files = deps.web.workspace(name), deps.web.files
            await sweep_inbox(workspace, owner=OWNER, files=files, limit_s=_SWEEP_S)
        del self._agents[name]


# -- texts from clients of ``/ws`` that are not accepted yet: order, limits, stops -------------------
#
# A text waits for the text before it, for its files and for the store. If a stop is read meanwhile,
# the text must not begin after it (P5). So the stop marks the text, and the transaction that accepts
# the text checks the mark. The store runs one transaction after the other. A text is therefore either
# accepted before the stop is written, and cancelled by the stop, or not accepted at all.


class StoppedBeforeAccept(Conflict):
    """A stop came before the text was accepted."""

    code: ClassVar[str] = "stopped"


@dataclass(slots=True, eq=False)
class PendingText:
    """One text on its way into the mailbox."""

    agent_id: str
    conversation: str
    after: tuple[asyncio.Event, ...]
    """Set when the stops end that the same client gave before the text."""
    is_stopped: bool = False

    async def turn(self) -> None:
        """Wait for the stops before the text. Raises ``StoppedBeforeAccept`` for one after it."""
        for ended in self.after:
            await ended.wait()
        self._check()

    def also(self, tx: Tx, accepted: Accepted) -> None:
        """Check the mark a last time, in the transaction that accepts the text."""
        del tx
        if not accepted.duplicate:
            self._check()

    def _check(self) -> None:
        if self.is_stopped:
            raise StoppedBeforeAccept(
                "a stop came before this text was accepted; say it again if it counts"
            )


class PendingTexts:
    """The texts and commands of one client that are not accepted or answered yet.

    Commands are counted separately, so that many texts can't block a stop.
    """

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` texts, and as many commands."""
        self._limit = limit
        self._counts = {"texts": 0, "commands": 0}
        self._stops: set[asyncio.Event] = set()
        self.in_order = asyncio.Lock()
        """Held by the text that is being accepted."""

    def begin(self, *, is_command: bool) -> None:
        """Count one more until ``end``. Raises ``Overloaded`` at the limit."""
        kind = "commands" if is_command else "texts"
        if self._counts[kind] >= self._limit:
            raise Overloaded(
                f"{self._limit} {kind} of this connection are not accepted yet; wait for them",
                queue="ws.says",
                size=self._limit,
                limit=self._limit,
            )
        self._counts[kind] += 1

    def end(self, *, is_command: bool) -> None:
        """The text or command was accepted, answered or refused."""
        self._counts["commands" if is_command else "texts"] -= 1

    def said(self, agent_id: str, conversation: str, *, is_command: bool) -> PendingText:
        """Make the ``PendingText`` of what was read just now. A command waits for no stop."""
        return PendingText(agent_id, conversation, () if is_command else tuple(self._stops))

    def stop(self) -> asyncio.Event:
        """A stop was read: later texts wait for the returned event, which ``stopped`` sets."""
        ended = asyncio.Event()
        self._stops.add(ended)
        return ended

    def stopped(self, ended: asyncio.Event) -> None:
        """That stop has ended."""
        ended.set()
        self._stops.discard(ended)
