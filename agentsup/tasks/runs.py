"""Runs: one message each, with a session of its own, started, waited for, steered and stopped.

A run has no state but that of its message. So it survives a crash, ends once, is stopped by every
stop, and its result is delivered in the transaction that ends it. To wait for a run is to wait for
the event of that end (P1, P5, P6).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import Mailbox
from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.mail import Asker
from agentsup.mailbox.messages import need_message
from agentsup.mailbox.queue import waits
from agentsup.mailbox.usage.budget import ScopeKind, ledger
from agentsup.model.errors import BadRequest, Conflict, WouldDeadlock
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    DeliverTo,
    LaneName,
    Lease,
    Message,
    MessageKind,
    MessageState,
    NewMessage,
    Priority,
    text_parts,
)
from agentsup.model.principal import Principal
from agentsup.model.question import Question
from agentsup.model.task import MAX_PROMPT_CHARS, Run, RunKind
from agentsup.model.trace import by_turn_of
from agentsup.store import Database, Tx, append
from agentsup.tasks import asking, lineage, rows, session_targets
from agentsup.tasks.reports import RunReport, report_of, report_of_end


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to start.

    ``agent_id`` is the agent whose mailbox it is put into; ``target`` the agent or role as which it
    is done (see ``tasks.lineage``); ``parent`` the message of the turn that delegates it. With
    ``key`` a repeated start gives the same run.
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
    key_by: Principal | None = None
    """The owner of ``key``, if ``principal`` may have changed since the key was first used."""
    session_key: str = ""
    new_session: bool = False
    lane: LaneName = LaneName.BACKGROUND
    priority: Priority = Priority.NORMAL
    expires_at: int | None = None
    max_usd: float | None = None
    task_id: str = ""
    run_no: int = 1
    slot_at: int | None = None
    above: int = 0
    """The depth of the work that it is a part of, if no turn delegates it now."""
    part_of: str = ""
    """The message of that work, whose budgets apply to the run too."""
    summary: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The runs of this node."""

    mailbox: Mailbox
    database: Database
    abort: Callable[[str], Awaitable[None]]
    """Ends the turn of a message that was cancelled, and returns when it has."""

    # -- starting ----------------------------------------------------------------------------------

    def start_tx(self, tx: Tx, new: NewRun, *, waiter: Lease | None = None) -> Run:
        """Put the run into its mailbox, or return the one that its key started before.

        With ``waiter`` that turn waits for it from now on. Raises ``DepthExceeded``,
        ``LoopDetected``, ``Overloaded``, ``Conflict``, ``WouldDeadlock``, ``BadRequest`` and
        ``LeaseLost`` (the delegating turn was stopped); nothing is stored then.
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
        accepted = self.mailbox.queue.accept_tx(tx, self._message(new, path), waiter=waiter)
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
        at = self.mailbox.context.clock.now_ms()
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
            state=MessageState.QUEUED.value,
            created_at=at,
        )
        rows.add_run_tx(tx, run)
        if new.target:
            session_targets.set_target_tx(
                tx, accepted.session_id, new.target, by=new.principal.label, at=at
            )
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
            session_key = parent.session_id if parent is not None else f"run:{new.agent_id}"
            own = new.key or self.mailbox.context.entropy.new_id("run")
            mark = hashlib.sha256(own.encode()).hexdigest()[:12]
            key = f"{session_key}:sub:{new.label or new.target or new.kind.value}:{mark}"
        return NewMessage(
            agent_id=new.agent_id,
            session_key=key,
            parts=text_parts(new.prompt),
            principal=new.principal,
            kind=MessageKind.TASK,
            lane=new.lane,
            priority=new.priority,
            deliver_to=new.deliver_to,
            new_session=new.new_session,
            in_reply_to=parent.message_id if parent is not None else "",
            root_id=parent.root_id if parent is not None else "",
            path=path,
            traceparent=by_turn_of(parent) if parent is not None else "",
            expires_at=new.expires_at,
            idempotency_key=new.key,
            key_by=new.key_by,
            sender_agent_id=parent.agent_id if parent is not None else "",
            summary=new.summary,
            silent=True,
        )

    def _bound_tx(self, tx: Tx, new: NewRun, run: Run, at: int) -> None:
        """Set the run's own limit (or its task's), and let budgets of the delegating work apply."""
        above = new.parent.message_id if new.parent is not None else new.part_of
        if above:
            ledger.join_as_tx(tx, run.run_id, above)
        if new.max_usd is None:
            return
        subject, nano_usd = new.task_id or run.run_id, round(new.max_usd * 1_000_000_000)
        ledger.set_limit_tx(tx, ScopeKind.TASK, subject, nano_usd=nano_usd, tokens=None, at=at)
        ledger.join_tx(tx, run.run_id, ScopeKind.TASK, subject)

    # -- reading -----------------------------------------------------------------------------------

    async def report(self, run_id: str) -> RunReport:
        """The report on a run. Raises ``NotFound``."""
        return await self.database.read(report_of, run_id, name="runs.report")

    async def wait(self, run_id: str, timeout_s: float, *, asker: Asker | None = None) -> RunReport:
        """Wait until the run has ended, at most ``timeout_s`` (0: only report).

        After the time-out the run goes on; its report says what it waits for. A turn that waits
        (``asker``) gives its slot back meanwhile; a result that it gets here does not come again as
        a message. Raises ``NotFound`` and ``LeaseLost``.
        """
        end: asyncio.Future[Message] = self.database.expect(f"done:{run_id}")
        try:
            if asker is None or timeout_s <= 0:
                report = await self.report(run_id)
                if report.is_ended and asker is not None:
                    await self._collect(run_id, asker.lease)
                if report.is_ended or timeout_s <= 0:
                    return report
            else:
                try:
                    report = await self.database.write(
                        self._begin_to_wait_tx, run_id, asker.lease, name="runs.wait"
                    )
                except WouldDeadlock:  # the run waits, directly or indirectly, for this very turn
                    return await self.report(run_id)
                if report.is_ended:
                    return report
            return await self._end_of(report.run, end, timeout_s, asker)
        finally:
            end.cancel()

    def _begin_to_wait_tx(self, tx: Tx, run_id: str, lease: Lease) -> RunReport:
        """Record the wait; of a run that has ended, collect the result instead."""
        report = report_of(tx, run_id)
        if report.is_ended:
            self._collect_tx(tx, run_id, lease)
        else:
            waits.wait_tx(self.mailbox.context, tx, lease, run_id)
            waits.expect_tx(tx, run_id)
        return report

    async def _end_of(
        self, run: Run, end: asyncio.Future[Message], timeout_s: float, asker: Asker | None
    ) -> RunReport:
        """The report on an open run when the commit of its end hands its message over, at most
        ``timeout_s`` from now."""
        run_id, ended = run.run_id, None
        try:
            async with contextlib.nullcontext() if asker is None else asker.slot.released():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        ended = await end
        finally:
            if ended is None and asker is not None:
                await self.database.write(waits.give_up_tx, asker.lease, run_id, name="runs.unwait")
        report = await self.report(run_id) if ended is None else report_of_end(run, ended)
        # A message that was waited for to its end has made no reply.
        is_waited = ended is not None and ended.deliver_to.waited
        if report.is_ended and asker is not None and not is_waited:
            await self._collect(run_id, asker.lease)
        return report

    async def _collect(self, run_id: str, lease: Lease) -> None:
        await self.database.write(self._collect_tx, run_id, lease, name="runs.collect")

    def _collect_tx(self, tx: Tx, run_id: str, lease: Lease) -> None:
        """End the queued reply with the run's result, because the turn has the result already."""
        context = self.mailbox.context
        waits.need_lease(context, tx, lease)
        replies = closing.queued_for(tx, lease.message, MessageKind.REPLY, run_id)
        closing.collect_tx(context, tx, replies[:1], lease.message, at=context.clock.now_ms())

    # -- steering ----------------------------------------------------------------------------------

    async def stop(self, run_id: str, by: Principal, *, asker: Asker | None = None) -> RunReport:
        """Cancel the run and wait until its turn has ended.

        Raises ``NotFound``, and ``Conflict`` if the run has ended.
        """
        report = await self.report(run_id)
        if report.is_ended:
            raise Conflict(f"run {run_id} is already {report.status}", run_id=run_id)
        cancelled = await self.mailbox.control.cancel(run_id, by)
        await self.end_turns(run_id, *cancelled.with_it)
        if asker is not None:
            await self._collect(run_id, asker.lease)
        return await self.report(run_id)

    async def end_turns(self, *run_ids: str) -> None:
        """End the turns of runs that were cancelled, and wait for their ends."""
        for run_id in run_ids:
            await self.abort(run_id)

    async def ask_parent(self, run_id: str, text: str, options: Sequence[str] = ()) -> Question:
        """Ask those who delegated the run a question, in the name of its running turn.

        The turn's end then waits for the answer. The same text asked again returns the earlier
        question, open or closed. Raises ``Conflict``, ``BadRequest`` and ``DepthExceeded``.
        """
        return await self.database.write(
            lambda tx: asking.ask_tx(self.mailbox, tx, run_id, text, options, of=f"run {run_id}"),
            name="runs.ask_parent",
        )

    async def steer(self, run_id: str, text: str, by: Principal) -> None:
        """Send a note to an open run.

        Its model reads the note with its next tool result, at the latest in a further turn of its
        session. Raises ``NotFound``, ``Conflict`` (it has ended) and ``BadRequest``.
        """
        if not text.strip():
            raise BadRequest("the text is empty", field="text")

        def put(tx: Tx) -> None:
            message = need_message(tx, run_id)
            report = report_of(tx, run_id)
            if report.is_ended:
                raise Conflict(f"run {run_id} is already {report.status}", run_id=run_id)
            note = self.mailbox.queue.accept_tx(
                tx,
                NewMessage(
                    agent_id=message.agent_id,
                    session_key=message.session_id,
                    parts=text_parts(text),
                    principal=by,
                    kind=MessageKind.DIRECTIVE,
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

        await self.database.write(put, name="runs.steer")
