"""What the end of an engine's run means for its turn. Pure."""

from __future__ import annotations

from dataclasses import replace

from agentsup.agents.recovery.decisions import SICK, UNSAID, FailureKind, failure_kind_of
from agentsup.agents.recovery.tiers import ModelTier
from agentsup.agents.turn.usage import SegmentState
from agentsup.engines import EmptyAfterToolUse, NotConfigured, TurnLimitReached
from agentsup.kit.own_command import with_home
from agentsup.model.agent import OFFLINE, AgentSpec
from agentsup.model.engine import EngineDone, Suspended
from agentsup.model.message import LaneName, Message, MessageKind


def conversation_of(message: Message) -> str:
    """The conversation that shows the text while it is written. Empty outside chats, and for
    background work, whose result comes as one message."""
    to = message.deliver_to
    is_of_talk = message.kind is not MessageKind.TASK and message.lane is not LaneName.BACKGROUND
    return f"{to.channel}:{to.conversation}" if to.kind == "chat" and is_of_talk else ""


def how_well(end: EngineDone | Suspended) -> bool | None:
    """Whether an end speaks for the provider, as in ``recovery.breakers.BreakerAttempt.well``;
    None: neither."""
    if isinstance(end, Suspended) or end.outcome == "ok":
        return True
    if end.outcome == "cancelled":
        return None
    kind = failure_kind_of(end.code, permanent=end.permanent)
    if kind in SICK:
        return False
    return None if kind in UNSAID or kind is FailureKind.OTHER else True


def missing_answer(end: EngineDone, state: SegmentState) -> EngineDone:
    """``end``, or a failure if tools were used but no text was written and no file sent."""
    says_nothing = not end.text.strip() and not state.files and end.exit_code is None
    if end.outcome != "ok" or not state.used_tools or not says_nothing:
        return end
    return EngineDone(
        "failed",
        error="the model used its tools and then said nothing, also when asked once more",
        code=EmptyAfterToolUse.code,
        engine_state=end.engine_state,
    )


def no_task_offline(
    end: EngineDone | Suspended, message: Message, tier: ModelTier, spec: AgentSpec
) -> EngineDone | Suspended:
    """``end``, or a failure if it is a task's and the offline engine stood in for a model because
    nobody named one: nobody looks for work that is called done."""
    stands_in = tier.engine.name == OFFLINE and spec.engine != OFFLINE
    if isinstance(end, Suspended) or end.outcome != "ok" or not stands_in:
        return end
    if message.kind is not MessageKind.TASK:
        return end
    error = with_home(
        "no model is set up, so this task can't be done; `agentsup setup` sets one up"
    )
    return replace(end, outcome="failed", permanent=True, error=error, code=NotConfigured.code)


def joined_end(before: EngineDone, after: EngineDone | Suspended) -> EngineDone | Suspended:
    """The end of a turn whose engine was asked once more. A summary at the limit of steps is put
    after the earlier text; if the summary failed, the end is ``before``."""
    if before.code != TurnLimitReached.code or isinstance(after, Suspended):
        return after
    if after.outcome != "ok" or not after.text.strip():
        return before if after.outcome != "cancelled" else after
    text = "\n\n".join(part for part in (before.text.strip(), after.text) if part)
    return replace(after, text=text, code=before.code)
