"""``ask_agent``, ``ask_agent_async`` and ``list_agents``: an agent's way to the others.

Both sends are keyed by the call's id: a turn that starts again after a crash meets the message it
had sent and waits for that one.
"""

from __future__ import annotations

from typing import Any, Protocol

from agentsup.agents.tools import arguments
from agentsup.mailbox.bus import (
    AgentDirectory,
    Asker,
    BusRequest,
    InterAgentBus,
    check_may_send,
)
from agentsup.model.errors import LeaseLost
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.model.trace import UNTRACED, Tracer

ASK_TIMEOUT_S = 300.0

_TO = {"type": "string", "description": "Name of the agent, as list_agents shows it."}
_TEXT = {"type": "string", "description": "What to ask or tell it; it sees only this text."}
_NEW = {"type": "boolean", "description": "Start a fresh session with it instead of going on."}
_SILENT = {"type": "boolean", "description": "Don't tell the other agent's user."}


class Askers(Protocol):
    """Finds the running turn behind a tool call."""

    def asker(self, message_id: str) -> Asker | None: ...


_ASK = {
    "type": "object",
    "properties": {
        "to": _TO,
        "message": _TEXT,
        "new_session": _NEW,
        "timeout": {"type": "number", "description": "Seconds to wait at most; default 300."},
        "silent": _SILENT,
    },
    "required": ["to", "message"],
    "additionalProperties": False,
}
_ASK_ASYNC = {
    "type": "object",
    "properties": {
        "to": _TO,
        "message": _TEXT,
        "new_session": _NEW,
        "summary": {"type": "string", "description": "One line for the other agent's user."},
        "silent": _SILENT,
    },
    "required": ["to", "message"],
    "additionalProperties": False,
}


def peer_tools(
    bus: InterAgentBus, directory: AgentDirectory, askers: Askers, tracer: Tracer = UNTRACED
) -> tuple[Tool, ...]:
    """The three tools over one bus."""
    peers = _Peers(bus, directory, askers, tracer)
    return (
        Tool(
            "ask_agent",
            "Ask another agent and wait for its answer.",
            _ASK,
            peers.ask,
            Effect.KEYED,
            Safety.MODERATE,
            is_wait=True,
        ),
        Tool(
            "ask_agent_async",
            "Give another agent a message without waiting; its answer comes as a message later.",
            _ASK_ASYNC,
            peers.ask_async,
            Effect.KEYED,
            Safety.MODERATE,
        ),
        Tool(
            "list_agents",
            "List the other agents with their state and what they are for.",
            {"type": "object", "properties": {}, "additionalProperties": False},
            peers.listed,
            Effect.READ,
            Safety.SAFE,
            is_poll=True,
        ),
    )


class _Peers:
    """What the tools do, on behalf of the turn that calls them."""

    def __init__(
        self, bus: InterAgentBus, directory: AgentDirectory, askers: Askers, tracer: Tracer
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._askers = askers
        self._tracer = tracer

    async def ask(self, context: ToolContext, args: dict[str, Any]) -> str:
        timeout_s = arguments.number(args, "timeout", default=ASK_TIMEOUT_S)
        to = arguments.text(args, "to")
        self._check_may_ask(context, to)
        with self._tracer.waiting_for(context.message_id, context.call_id, to) as header:
            reply = await self._bus.send(
                _request(context, args, header),
                caller=_caller(context),
                timeout_s=timeout_s,
                asker=self._asker(context),
            )
        return reply.text

    async def ask_async(self, context: ToolContext, args: dict[str, Any]) -> str:
        header = self._tracer.header_of(context.message_id, context.call_id)
        wanted = _request(context, args, header)
        self._check_may_ask(context, wanted.to)
        accepted = await self._bus.send_async(
            wanted, caller=_caller(context), asker=self._asker(context)
        )
        return f"Sent to {wanted.to} as {accepted.message_id}; its answer will come as a message."

    async def listed(self, context: ToolContext, args: dict[str, Any]) -> str:
        del args
        lines = []
        for name in self._directory.names():
            entry = self._directory.lookup(name)
            if entry.agent_id not in (context.agent_id, context.self_id):
                about = f": {entry.description}" if entry.description else ""
                facts = (
                    entry.nickname if entry.nickname != entry.name else "",
                    entry.role and f"role {entry.role}",
                    entry.team and f"team {entry.team}",
                    ", ".join(entry.capabilities),
                )
                known_as = "".join(f", {fact}" for fact in facts if fact)
                lines.append(f"{entry.name} ({entry.status}{known_as}){about}")
        return "\n".join(lines) or "There are no other agents."

    def _check_may_ask(self, context: ToolContext, to: str) -> None:
        """Who works in another's place may ask only those whom that one may ask as well; the bus
        sees to whom it works for. Raises ``Forbidden``."""
        stand_in = self._directory.by_id(context.self_id)
        if stand_in is not None and context.self_id != context.agent_id:
            check_may_send(stand_in, self._directory.lookup(to))

    def _asker(self, context: ToolContext) -> Asker:
        found = self._askers.asker(context.message_id)
        if found is None or found.lease.fence != context.fence:
            raise LeaseLost("the turn that asks is over", message_id=context.message_id)
        return found


def _request(context: ToolContext, args: dict[str, Any], traceparent: str) -> BusRequest:
    return BusRequest(
        to=arguments.text(args, "to"),
        text=arguments.text(args, "message"),
        new_session=arguments.flag(args, "new_session"),
        summary=arguments.text(args, "summary", default=""),
        silent=arguments.flag(args, "silent"),
        idempotency_key=context.call_id,
        traceparent=traceparent,
    )


def _caller(context: ToolContext) -> Principal:
    return Principal(
        PrincipalKind.AGENT, context.agent_id, context.agent_name, behalf=context.person or NOBODY
    )
