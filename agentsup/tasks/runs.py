"""Runs: one message each, with a session of its own, started, waited for, steered and stopped.

A run has no state beside its message's, so what holds for messages holds for runs: it survives a
crash, ends once, is stopped by every stop, and its result is delivered in the transaction that ends
it. Waiting is for the event of that end (P1, P5, P6).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import ending, waits
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.budget.scopes import ScopeKind
from agentsup.mailbox.bus import Asker
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.rows import OPEN_SQL, message_of, need_message
from agentsup.model.errors import BadRequest, Conflict, WouldDeadlock
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    DeliverTo,
    Kind,
    Lane,
    Lease,
    Message,
    NewMessage,
    Outcome,
    Priority,
    State,
    text_parts,
)
from agentsup.model.principal import Principal
from agentsup.model.question import Question
from agentsup.model.task import MAX_PROMPT_CHARS, Run, RunKind
from agentsup.model.trace import by_turn_of
from agentsup.store.database import Database, Reader, Tx
from agentsup.store.events import append
from agentsup.tasks import asking, lineage, rows
from agentsup.tasks.reports import RunReport, is_ended, report_of

__all__ = ["NewRun", "RunReport", "Runs", "to_asker"]


def to_asker(parent: Message, *, waited: bool, silent: bool = False) -> DeliverTo:
    """Back into the session of the turn that hands work on, and from there to its own asker."""
    return DeliverTo(
        "mailbox",
        agent_id=parent.agent_id,
        session_id=parent.session_id,
        waited=waited,
        silent=silent,
        then=replace(parent.deliver_to, waited=False),
    )


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run is started from.

    ``agent_id`` is whose mailbox it is put into; ``target`` in whose place it is done (see
    ``lineage``); ``parent`` the message of the turn that hands it on. With ``key`` a repeated start
    gives the same run. ``fork_last`` entries of the parent's session go before it.
    """

    kind: RunKind
    agent_id: AgentId
    prompt: str
    principal: Principal
    deliver_to: DeliverTo
    target: str = ""
    label: str = ""
    parent: Message | None = None
    key: str = ""
    fork_last: int = 0
    session_key: str = ""
    new_session: bool = False
    lane: Lane = Lane.BACKGROUND
    priority: Priority = Priority.NORMAL
    expires_at: int | None = None
    max_usd: float | None = None
    task_id: str = ""
    run_no: int = 1
    slot_at: int | None = None
    above: int = 0
    """How deep the work is of which it is a part, where no turn hands it on now."""
    part_of: str = ""
    """The message of that work, whose bounds on cost hold for it too."""
    summary: str = ""
    traceparent: str = ""


class Runs:
    """The runs of this node."""

    def __init__(
        self,
        mailbox: Mailbox,
        database: Database,
        *,
        abort: Callable[[str], Awaitable[None]],
    ) -> None:
        """``abort`` ends the turn of a message that was cancelled, and returns when it has."""
        self._mailbox = mailbox
        self._database = database
        self._abort = abort

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, new: NewRun, *, waiter: Lease | None = None) -> Run:
        """``start_tx`` in a transaction of its own."""
        return await self._database.write(
            lambda tx: self.start_tx(tx, new, waiter=waiter), name="runs.start"
        )

    def start_tx(self, tx: Tx, new: NewRun, *, waiter: Lease | None = None) -> Run:
        """Put the run into its mailbox, or return the one that its key started before.

        With ``waiter`` that turn waits for it from now on. Raises ``DepthExceeded``,
        ``LoopDetected``, ``Overloaded``, ``Conflict``, ``WouldDeadlock``, ``BadRequest`` and
        ``LeaseLost`` (the turn that hands it on was stopped); nothing is stored then.
        """
        if not new.prompt.strip():
            raise BadRequest("the prompt is empty", field="prompt")
        if len(new.prompt) > MAX_PROMPT_CHARS:
            raise BadRequest(
                f"the prompt has {len(new.prompt)} characters, the most are {MAX_PROMPT_CHARS}; "
                "put it into a file",
                field="prompt",
            )
        faults.point("run.before_start")
        parent = new.parent
        path = lineage.path_to(parent, new.agent_id, new.target)
        accepted = self._mailbox.accept_tx(tx, self._message(new, path), waiter=waiter)
        if accepted.duplicate:
            known = rows.find_run(tx, accepted.message_id)
            if known is None:
                raise Conflict("this key was used for something that is no run", key=new.key)
            return known
        depth, root_id = 1 + new.above, str(accepted.message_id)
        if parent is not None:
            depth = 1 + rows.depth_in(tx, parent.message_id, parent.session_id)
            root_id = parent.root_id or root_id
        lineage.check_depth(depth)
        if parent is not None:
            lineage.check_count(rows.count_of_root(tx, root_id) + 1)
        at = self._mailbox.desk.clock.now_ms()
        run = Run(
            run_id=accepted.message_id,
            task_id=new.task_id,
            run_no=new.run_no,
            kind=new.kind,
            agent_id=new.agent_id,
            session_id=accepted.session_id,
            target=new.target,
            label=new.label,
            parent_message_id=parent.message_id if parent is not None else "",
            root_id=root_id,
            depth=depth,
            slot_at=new.slot_at,
            state=State.QUEUED.value,
            outcome="",
            why="",
            created_at=at,
        )
        rows.add_run_tx(tx, run)
        if new.target:
            _take_place_tx(tx, accepted.session_id, new.target, new.principal.label, at)
        if new.fork_last and parent is not None:
            _fork_tx(tx, parent.session_id, accepted.session_id, new.fork_last)
        self._bound_tx(tx, new, run, at)
        if parent is not None:
            append(
                tx,
                EventType.RUN_STARTED,
                at=at,
                agent_id=new.agent_id,
                session_id=accepted.session_id,
                message_id=accepted.message_id,
                data={
                    "kind": new.kind.value,
                    "label": new.label,
                    "depth": depth,
                    "parent": parent.message_id,
                },
            )
        tx.after_commit(partial(faults.point, "run.after_start"))
        return run

    def _message(self, new: NewRun, path: tuple[str, ...]) -> NewMessage:
        parent, key = new.parent, new.session_key
        if not key:
            place = parent.session_id if parent is not None else f"run:{new.agent_id}"
            own = new.key or self._mailbox.desk.entropy.new_id("run")
            mark = hashlib.sha256(own.encode()).hexdigest()[:12]
            key = f"{place}:sub:{new.label or new.target or new.kind.value}:{mark}"
        return NewMessage(
            agent_id=new.agent_id,
            session_key=key,
            parts=text_parts(new.prompt),
            principal=new.principal,
            kind=Kind.TASK,
            lane=new.lane,
            priority=new.priority,
            deliver_to=new.deliver_to,
            new_session=new.new_session,
            in_reply_to=parent.message_id if parent is not None else "",
            root_id=parent.root_id if parent is not None else "",
            path=path,
            traceparent=new.traceparent or (by_turn_of(parent) if parent is not None else ""),
            expires_at=new.expires_at,
            idempotency_key=new.key,
            sender_agent_id=parent.agent_id if parent is not None else "",
            summary=new.summary,
            silent=True,
        )

    def _bound_tx(self, tx: Tx, new: NewRun, run: Run, at: int) -> None:
        """What the run may cost: its own bound, or that of all runs of its task; and what it was
        handed on by, which it is a part of."""
        above = new.parent.message_id if new.parent is not None else new.part_of
        if above:
            ledger.join_as_tx(tx, run.run_id, above)
        if new.max_usd is None:
            return
        subject, nano_usd = new.task_id or run.run_id, round(new.max_usd * 1_000_000_000)
        ledger.set_limit_tx(tx, ScopeKind.TASK, subject, nano_usd=nano_usd, tokens=None, at=at)
        ledger.join_tx(tx, run.run_id, ScopeKind.TASK, subject)

    # -- looking -----------------------------------------------------------------------------------

    async def report(self, run_id: str) -> RunReport:
        """How the run is. Raises ``NotFound``."""
        return await self._database.read(lambda r: report_of(r, run_id), name="runs.report")

    async def children(self, message_id: str) -> list[RunReport]:
        """The runs that the turn on that message has started."""

        def look(reader: Reader) -> list[RunReport]:
            return [
                report_of(reader, run.run_id) for run in rows.runs_started_for(reader, message_id)
            ]

        return await self._database.read(look, name="runs.children")

    async def wait(self, run_id: str, timeout_s: float, *, asker: Asker | None = None) -> RunReport:
        """Wait until the run has ended, at most ``timeout_s`` (0: only look). The wait neither
        fails nor ends it: what goes on is reported with what holds it up.

        A turn that waits (``asker``) gives its slot back meanwhile; what it is told here it is not
        told once more by a message. Raises ``NotFound`` and ``LeaseLost``.
        """
        if asker is None:
            return await self._watched(run_id, timeout_s)
        report = await self.report(run_id)
        if not report.is_ended and timeout_s > 0:
            if not await self._begin_to_wait(run_id, asker.lease):
                return await self.report(run_id)
            try:
                async with asker.slot.released():
                    report = await self._watched(run_id, timeout_s)
            finally:
                if not report.is_ended:
                    await self._database.write(
                        lambda tx: waits.give_up_tx(tx, asker.lease, run_id), name="runs.unwait"
                    )
            report = await self.report(run_id)
        if report.is_ended:
            await self._database.write(
                lambda tx: self._collect_tx(tx, run_id, asker.lease), name="runs.collect"
            )
        return report

    async def _begin_to_wait(self, run_id: str, lease: Lease) -> bool:
        """False where it would never end: the run waits, at some remove, for this very turn."""

        def begin(tx: Tx) -> None:
            self._mailbox.wait_tx(tx, lease, run_id)
            waits.expect_tx(tx, run_id)

        try:
            await self._database.write(begin, name="runs.wait")
        except WouldDeadlock:
            return False
        return True

    async def _watched(self, run_id: str, timeout_s: float) -> RunReport:
        changed = asyncio.Event()
        unlisten = self._database.listen(f"done:{run_id}", changed.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    # Mostly there is much to wait for, and little to be known before.
                    ended = await self._database.read(
                        lambda r: is_ended(r, run_id), name="runs.is_ended"
                    )
                    while not ended:
                        await changed.wait()
                        changed.clear()
                        report = await self.report(run_id)
                        if report.is_ended:
                            return report
        finally:
            unlisten()
        return await self.report(run_id)

    def _collect_tx(self, tx: Tx, run_id: str, lease: Lease) -> None:
        """The turn knows the result: the reply that waits behind it tells nothing new."""
        waits.hold(self._mailbox.desk, tx, lease)
        message = lease.message
        found = tx.one(
            f"SELECT * FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
            " AND state = 'queued' AND kind = 'reply' AND in_reply_to = ?",
            (message.agent_id, message.session_id, run_id),
        )
        if found is None:
            return
        at = self._mailbox.desk.clock.now_ms()
        reply = message_of(found)  # type: ignore[arg-type]  # Row is a mapping in all but name
        ending.close_tx(
            tx,
            reply,
            State.DONE,
            at=at,
            outcome=Outcome.OK,
            code="collected",
            text=f"read by the turn on {message.message_id}",
        )

    # -- steering ----------------------------------------------------------------------------------

    async def stop(self, run_id: str, by: Principal, *, asker: Asker | None = None) -> RunReport:
        """End the run and wait until its turn is gone. Raises ``NotFound`` and, for one that has
        ended, ``Conflict``."""
        report = await self.report(run_id)
        if report.is_ended:
            raise Conflict(f"run {run_id} is already {report.status}", run_id=run_id)
        cancelled = await self._mailbox.cancel(run_id, by)
        await self.end_turns(run_id, *cancelled.with_it)
        if asker is not None:
            await self._database.write(
                lambda tx: self._collect_tx(tx, run_id, asker.lease), name="runs.collect"
            )
        return await self.report(run_id)

    async def end_turns(self, *run_ids: str) -> None:
        """End the turns of runs that were cancelled, and wait until they are gone."""
        for run_id in run_ids:
            await self._abort(run_id)

    async def ask_parent(self, run_id: str, text: str, options: Sequence[str] = ()) -> Question:
        """Ask whoever handed the run on, in the name of its turn, whose end then waits for the
        answer; asked again, it is the question that was put, open or answered. Raises
        ``Conflict`` and ``BadRequest``."""
        return await self._database.write(
            lambda tx: asking.ask_tx(self._mailbox, tx, run_id, text, options, of=f"run {run_id}"),
            name="runs.ask_parent",
        )

    async def steer(self, run_id: str, text: str, by: Principal) -> None:
        """Tell a run that goes on something more: its model reads it with its next tool result, at
        the latest in a further turn of its session. Raises ``NotFound``, ``Conflict`` (it has
        ended) and ``BadRequest``."""
        if not text.strip():
            raise BadRequest("the text is empty", field="text")

        def put(tx: Tx) -> None:
            message = need_message(tx, run_id)
            report = report_of(tx, run_id)
            if report.is_ended:
                raise Conflict(f"run {run_id} is already {report.status}", run_id=run_id)
            note = self._mailbox.accept_tx(
                tx,
                NewMessage(
                    agent_id=message.agent_id,
                    session_key=message.session_id,
                    parts=text_parts(text),
                    principal=by,
                    kind=Kind.DIRECTIVE,
                    lane=message.lane,
                    priority=message.priority,
                    deliver_to=replace(message.deliver_to, waited=False),
                    in_reply_to=run_id,
                    root_id=message.root_id,
                    path=message.path,
                    traceparent=by_turn_of(message),
                    summary=message.summary,
                    silent=True,
                ),
            )
            ledger.join_as_tx(tx, note.message_id, run_id)

        await self._database.write(put, name="runs.steer")


def _take_place_tx(tx: Tx, session_id: str, target: str, by: str, at: int) -> None:
    """Let the session's turns be done in another agent's place, or in a role."""
    agent_id, role = lineage.subject_of(target)
    if agent_id:
        tx.execute(
            "INSERT INTO session_personas VALUES (?, ?) ON CONFLICT DO NOTHING",
            (session_id, agent_id),
        )
    if role:
        tx.execute(
            "INSERT INTO session_roles (session_id, role, set_by, set_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (session_id, role, by, at),
        )


def _fork_tx(tx: Tx, parent_id: str, child_id: str, last: int) -> None:
    """The child session begins with the last entries of the parent's."""
    tx.execute(
        "INSERT INTO transcript (session_id, message_id, role, text, parts, at)"
        " SELECT ?, message_id, role, text, parts, at FROM (SELECT * FROM transcript"
        " WHERE session_id = ? ORDER BY entry_id DESC LIMIT ?) ORDER BY entry_id",
        (child_id, parent_id, last),
    )
