"""The calls of one segment: what they depend on, their numbers, and their facts for the pipeline.

Calls are numbered by content: the n-th call of one tool with the same arguments has the same
``call_id`` in every segment. By it a segment after a crash finds its calls and people's answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentsup.agents.pipeline.marking import TURN_CHARS
from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.turn.own_calls import call_key
from agentsup.agents.turn.steering import SteeringNotes
from agentsup.agents.turn.usage import SuspendedTurn
from agentsup.mailbox.work import Journal, Replay, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import LeaseLost
from agentsup.model.hook import CallFacts, CallOrigin
from agentsup.model.ids import AgentId, CallId
from agentsup.model.message import Part
from agentsup.model.tool import Effect, Safety, ToolRegistry, ToolResult

_ENDED = ("done", "failed", "skipped")
"""The states of calls that are not made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What the calls of one segment depend on."""

    work: Work
    agent_id: AgentId
    """The agent that owns the message."""
    acts_as: AgentId | None = None
    """The agent that does the turn."""
    spec: AgentSpec
    bounds: RoleLimits
    workspace: str
    can_suspend: bool
    """Whether the engine can end its segment for a call that a person must allow."""
    own_tools: ToolRegistry | None = None
    """The tools of the agent's own servers."""
    notes: SteeringNotes | None = None
    """The notes that are added to results."""
    on_tool: Callable[[str, str, str], None] = lambda name, state, to: None
    """Called with the name of a tool, its state and the agent that is asked."""


class SegmentCalls:
    """Numbers the calls of one segment and knows those that were made in an earlier one."""

    def __init__(
        self, context: CallContext, journal: Journal, suspended: SuspendedTurn, answer: str | None
    ) -> None:
        """``suspended`` is the state that the earlier segment saved, ``answer`` the answer to its
        question."""
        self._context = context
        self._journal = journal
        self._counts = Counter(suspended.counts)
        self._shown = suspended.shown
        self._answers = {suspended.waiting_call: answer or ""} if suspended.waiting_call else {}
        self._before: frozenset[str] | None = None
        if not context.work.lease.resumed:
            self._before = frozenset()

    def suspended(
        self, *, files: tuple[Part, ...], checkpoint: bytes, waiting_call: str
    ) -> SuspendedTurn:
        """The state for the next segment. ``waiting_call`` is that call's id."""
        return SuspendedTurn(
            dict(self._counts), files, checkpoint, waiting_call=waiting_call, shown=self._shown
        )

    def begin_again(self) -> None:
        """Number from the start: a call that is repeated is answered from the journal."""
        self._counts, self._before = Counter(), None

    def facts(
        self,
        name: str,
        args: dict[str, Any],
        effect: Effect,
        safety: Safety,
        origin: CallOrigin,
        known_by: dict[str, Any] | None = None,
        **more: Any,
    ) -> CallFacts:
        """The facts of a new call. ``known_by``: the arguments that identify it, if not all do."""
        context, message = self._context, self._context.work.lease.message
        key = call_key(name, args if known_by is None else known_by)
        self._counts[key] += 1
        call_id = CallId(f"{message.message_id}:{key}:{self._counts[key]}")
        return CallFacts(
            call_id=call_id,
            name=name,
            args=args,
            effect=effect,
            safety=safety,
            origin=origin,
            agent_id=context.agent_id,
            agent_name=context.spec.name,
            message_id=message.message_id,
            session_id=message.session_id,
            ordinal=self._counts.total(),
            patterns=context.bounds.tools,
            role=context.bounds.role,
            role_patterns=context.bounds.ceiling,
            callers=context.bounds.callers,
            permission_mode=context.spec.permission_mode or "",
            answer=self._answers.get(call_id),
            room_chars=lambda: TURN_CHARS - self._shown,
            workspace=context.workspace,
            **more,
        )

    def postpone(self, call: CallFacts) -> None:
        """The call will be made again in the next segment, and must get the same id then."""
        self._counts[call_key(call.name, call.args)] -= 1

    def count(self, result: ToolResult) -> ToolResult:
        """Count the text of a result as shown to the model."""
        self._shown += len(result.text)
        return result

    async def made_before(
        self, call: CallFacts, name: str, known_by: dict[str, Any] | None = None
    ) -> Replay | None:
        """The result of the same call in an earlier segment, which passes no stage again; or None.

        Raises ``LeaseLost`` for a turn that was stopped: an engine that did not obey gets nothing.
        """
        work, message_id = self._context.work, call.message_id
        if work.stopped:
            raise LeaseLost(f"the turn on {message_id} was stopped", message_id=message_id)
        if self._before is None:
            calls = await self._journal.calls(message_id)
            self._before = frozenset(each.call_id for each in calls if each.state in _ENDED)
        if call.call_id not in self._before:
            return None
        # The journal checks the lease, too. A recorded call had an effect other than READ.
        return await self._journal.begin(
            call.call_id, message_id, work.lease.fence, name, Effect.BLIND, known_by or call.args
        )
