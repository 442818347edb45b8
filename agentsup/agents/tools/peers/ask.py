"""``ask_agent``, ``ask_agent_async`` and ``list_agents``: tools for talking to other agents.

Both sends have the call's id as idempotency key: a turn that is resumed after a crash finds the
message that it had sent and waits for that one.
"""

from __future__ import annotations

from pydantic import Field

from agentsup.agents.tools.arguments import Arguments, Flag, Number, Text
from agentsup.agents.tools.declaring import tool, tools_of
from agentsup.mailbox.mail import AgentDirectory, Asker, BusRequest, InterAgentBus, check_may_send
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

ASK_TIMEOUT_S = 300.0


class _Asking(Arguments):
    to: Text = Field(description="Name of the agent, as list_agents shows it.")
    message: Text = Field(description="What to ask or tell it; it sees only this text.")
    new_session: Flag = Field(
        False, description="Start a fresh session with it instead of going on."
    )
    silent: Flag = Field(False, description="Don't tell the other agent's user.")


class Ask(_Asking):
    """The arguments of ``ask_agent``."""

    timeout: Number = Field(ASK_TIMEOUT_S, description="Seconds to wait at most; default 300.")


class AskAsync(_Asking):
    """The arguments of ``ask_agent_async``."""

    summary: Text = Field("", description="One line for the other agent's user.")


def peer_tools(bus: InterAgentBus, directory: AgentDirectory) -> tuple[Tool, ...]:
    """The three tools over one bus."""
    return tools_of(_Peers(bus, directory))


class _Peers:
    """The functions of the tools, on behalf of the turn that calls them."""

    def __init__(self, bus: InterAgentBus, directory: AgentDirectory) -> None:
        self._bus = bus
        self._directory = directory

    @tool("ask_agent", Effect.KEYED, Safety.MODERATE, is_wait=True)
    async def ask(self, context: ToolContext, args: Ask) -> str:
        """Ask another agent and wait for its answer."""
        self._check_may_ask(context, args.to)
        reply = await self._bus.send(
            _request(context, args),
            caller=caller_of(context),
            timeout_s=args.timeout,
            asker=Asker(context.lease, context.slot),
        )
        return reply.text

    @tool("ask_agent_async", Effect.KEYED, Safety.MODERATE)
    async def ask_async(self, context: ToolContext, args: AskAsync) -> str:
        """Give another agent a message without waiting; its answer comes as a message later."""
        self._check_may_ask(context, args.to)
        accepted = await self._bus.send_async(
            _request(context, args, args.summary),
            caller=caller_of(context),
            asker=Asker(context.lease, context.slot),
        )
        return f"Sent to {args.to} as {accepted.message_id}; its answer will come as a message."

    @tool("list_agents", Effect.READ, Safety.SAFE, is_poll=True)
    async def listed(self, context: ToolContext) -> str:
        """List the other agents with their state and what they are for."""
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
        """Check that the turn's persona, if it is another agent, may ask ``to`` itself.

        The bus checks the agent whose message it is. Raises ``Forbidden``.
        """
        acting_agent = self._directory.by_id(context.self_id)
        if acting_agent is not None and context.self_id != context.agent_id:
            check_may_send(acting_agent, self._directory.lookup(to))


def _request(context: ToolContext, args: _Asking, summary: str = "") -> BusRequest:
    return BusRequest(
        to=args.to,
        text=args.message,
        new_session=args.new_session,
        summary=summary,
        silent=args.silent,
        idempotency_key=context.call_id,
    )


def caller_of(context: ToolContext) -> Principal:
    """The agent that calls, on behalf of the person for whom its turn works."""
    return Principal(
        PrincipalKind.AGENT, context.agent_id, context.agent_name, behalf=context.person or NOBODY
    )
