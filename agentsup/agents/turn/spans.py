"""The spans that a turn sends by OTLP: its segments, its engine's runs and their requests."""

from __future__ import annotations

from contextlib import AbstractContextManager, AsyncExitStack

from agentsup.agents.recovery.tiers import ModelTier
from agentsup.agents.turn.usage import SegmentState
from agentsup.mailbox.work import Work
from agentsup.model.engine import EngineDone, EngineEvent, ModelRequest, Suspended
from agentsup.model.message import Message
from agentsup.model.trace import by_turn_of, turn_span
from agentsup.observe.traces import OtelTracer, SentSpan


def of_segment(tracer: OtelTracer, work: Work, agent: str) -> AbstractContextManager[SentSpan]:
    """Around a segment. The span of the first one has the id that others name as the cause of their
    work."""
    message, name = work.lease.message, f"turn {agent}"
    if work.lease.resumed or message.attempts > 1:
        return tracer.span(name, by_turn_of(message))
    return tracer.span(name, message.traceparent, span_id=turn_span(message.message_id))


def of_engine(
    tracer: OtelTracer, message: Message, tier: ModelTier
) -> AbstractContextManager[SentSpan]:
    """Around an engine's run."""
    return tracer.span(f"engine {tier.engine.name}", by_turn_of(message))


def engine_ended(sent: SentSpan, end: EngineDone | Suspended, state: SegmentState) -> None:
    """Note how the run ended and what it used."""
    sent.facts = {
        "gen_ai.request.model": state.tier.model,
        "gen_ai.usage.input_tokens": sum(each.input_tokens for each in state.usage),
        "gen_ai.usage.output_tokens": sum(each.output_tokens for each in state.usage),
        "agentsup.provider": state.tier.provider,
    }
    if isinstance(end, EngineDone) and end.outcome != "ok":
        sent.error, sent.text = end.code or end.outcome, end.error


async def follow_requests(
    tracer: OtelTracer, event: EngineEvent, state: SegmentState, asked: AsyncExitStack
) -> None:
    """Keep a span in ``asked`` while the engine reports that it waits for its model."""
    if isinstance(event, ModelRequest):
        await asked.aclose()
        if not event.has_ended:
            name = f"model {state.tier.model or state.tier.engine.name}"
            asked.enter_context(tracer.span(name, by_turn_of(state.message), is_request=True))
