"""Tools for talking to other agents: ``ask_agent`` and ``list_agents``, and ``mailbox_*`` for mail.

The sender is the agent of the turn, never an argument. Calls that send have the call's id as
idempotency key, so a turn that is resumed finds what it has sent. A refusal is a result that names
the field and does not end the turn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from agentsup.agents.tools.declaring import (
    Arguments,
    Check,
    Filled,
    Flag,
    Number,
    Text,
    Trimmed,
    between,
    line,
    tool,
    tools_of,
)
from agentsup.mailbox.mail import (
    AgentDirectory,
    AgentMailbox,
    Asker,
    BusRequest,
    Dispatcher,
    InterAgentBus,
    ReceivedMail,
    SentMail,
    check_may_send,
    new_mail,
)
from agentsup.mailbox.messages import is_of_work
from agentsup.model.errors import BadRequest, NotFound
from agentsup.model.message import Message
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

ASK_TIMEOUT_S = 300.0
MAX_READ = 50
MAX_SUBJECT_CHARS = 200
_SHOWN_CHARS = 4_000
_SUBJECT, _BODY = "What it is about, in one line.", "The text; only this is seen."
_LIMIT = Check(
    lambda value: round(between(1, MAX_READ, f"must be from 1 to {MAX_READ}").run(value)),
    {"type": "integer", "minimum": 1, "maximum": MAX_READ},
)
Subject = Annotated[str, line(MAX_SUBJECT_CHARS, is_needed=True)]


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


@dataclass(frozen=True, slots=True)
class _Peers:
    """The functions of the tools, on behalf of the turn that calls them."""

    bus: InterAgentBus
    directory: AgentDirectory

    @tool("ask_agent", Effect.KEYED, Safety.MODERATE, is_wait=True)
    async def ask(self, context: ToolContext, args: Ask) -> str:
        """Ask another agent and wait for its answer."""
        self._check_may_ask(context, args.to)
        reply = await self.bus.send(
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
        accepted = await self.bus.send_async(
            _request(context, args, args.summary),
            caller=caller_of(context),
            asker=Asker(context.lease, context.slot),
        )
        return f"Sent to {args.to} as {accepted.message_id}; its answer will come as a message."

    @tool("list_agents", Effect.READ, Safety.SAFE, is_poll=True)
    async def listed(self, context: ToolContext) -> str:
        """List the other agents with their state and what they are for."""
        lines = []
        for name in self.directory.names():
            entry = self.directory.lookup(name)
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
        acting_agent = self.directory.by_id(context.self_id)
        if acting_agent is not None and context.self_id != context.agent_id:
            check_may_send(acting_agent, self.directory.lookup(to))


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


class SendMail(Arguments):
    """The arguments of ``mailbox_send``."""

    to_agent_id: Trimmed = Field("", description="Name or id of the agent; or give to_role.")
    to_role: Trimmed = Field(
        "", description="A role: whoever of it has least to do gets it; or give to_agent_id."
    )
    to_team: Trimmed = Field("", description="With to_role: only in this team.")
    subject: Subject = Field(description=_SUBJECT)
    body: Filled = Field(description=_BODY)
    reply_to_id: Trimmed = Field(
        "", description="Id of a message that this answers, or whose thread it goes on with."
    )


class ReplyMail(Arguments):
    """The arguments of ``mailbox_reply``."""

    message_id: Filled = Field(description="Id of the message that is answered.")
    body: Filled = Field(description=_BODY)


class BroadcastMail(Arguments):
    """The arguments of ``mailbox_broadcast``."""

    team_id: Filled = Field(description="Name of the team; everyone of it but you gets a copy.")
    subject: Subject = Field(description=_SUBJECT)
    body: Filled = Field(description=_BODY)


class ReadMail(Arguments):
    """The arguments of ``mailbox_read``."""

    limit: Annotated[int, _LIMIT] = Field(20, description="Default 20.")
    unread_only: Flag = Field(False, description="Only what no turn of yours has begun on.")
    mark: Flag = Field(True, description="Mark what is shown as read; default true.")


def mailbox_tools(
    dispatcher: Dispatcher,
    history: AgentMailbox,
    directory: AgentDirectory,
) -> tuple[Tool, ...]:
    """The four tools over one dispatcher."""
    return tools_of(_Mail(dispatcher, history, directory))


@dataclass(frozen=True, slots=True)
class _Mail:
    """The functions of the tools, on behalf of the turn that calls them."""

    dispatcher: Dispatcher
    history: AgentMailbox
    directory: AgentDirectory

    @tool("mailbox_send", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def send(self, context: ToolContext, args: SendMail) -> str:
        """Send mail to an agent, or to the agent of a role with the least load. Its answer comes as
        a message later."""
        to, role, team, reply_to = args.to_agent_id, args.to_role, args.to_team, args.reply_to_id
        if bool(to) == bool(role):
            raise BadRequest(
                "give either 'to_agent_id' or 'to_role'", field="to_role" if to else "to_agent_id"
            )
        mail, caller = self._mail(context, args.body, args.subject), caller_of(context)
        asker = Asker(context.lease, context.slot)
        if team and not role:
            raise BadRequest("'to_team' goes with 'to_role'", field="to_team")
        before = await self._before(reply_to, asker) if reply_to else None
        if role:
            if before is not None:
                mail = replace(mail, thread_id=before.thread_id or before.root_id)
            sent = await self.dispatcher.assign(
                mail, role=role, team=team, caller=caller, asker=asker, persona_id=context.self_id
            )
            address = f"role:{role}@{team}" if team else f"role:{role}"
            return _sent_document(address, args.subject, sent)
        if before is not None:
            self._check_answers(before, to)
            sent = await self.dispatcher.reply(reply_to, mail, caller=caller, asker=asker)
        else:
            sent = await self.dispatcher.send(
                to, mail, caller=caller, asker=asker, persona_id=context.self_id
            )
        return _sent_document(sent.agent_id, args.subject, sent)

    async def _before(self, message_id: str, asker: Asker) -> Message:
        """A message to or from the agent itself, in work that its turn may use.

        Raises ``NotFound``, also for mail of others, whose threads the agent may not use.
        """
        found, own = await self.dispatcher.message(message_id), asker.lease.message.agent_id
        own_work = is_of_work(asker.lease.message.person or NOBODY, found.person)
        if own not in (found.agent_id, found.sender_agent_id) or not own_work:
            raise NotFound(
                f"'reply_to_id': there is no message {message_id} in your mail", field="reply_to_id"
            )
        return found

    def _check_answers(self, before: Message, to: str) -> None:
        addressee = self.directory.by_id(to) or self.directory.lookup(to)
        if before.sender_agent_id != addressee.agent_id:
            raise BadRequest(
                f"'reply_to_id' names a message of {before.principal.label}, and 'to_agent_id' "
                f"{addressee.name}; answer whoever sent it",
                field="reply_to_id",
            )

    @tool("mailbox_reply", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def reply(self, context: ToolContext, args: ReplyMail) -> str:
        """Answer a message of another agent, in its thread. While you work on that message, this is
        its answer; what you say at the end is not sent, too."""
        mail = self._mail(context, args.body)
        sent = await self.dispatcher.reply(
            args.message_id,
            mail,
            caller=caller_of(context),
            asker=Asker(context.lease, context.slot),
        )
        return _sent_document(sent.agent_id, "", sent)

    @tool("mailbox_broadcast", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def broadcast(self, context: ToolContext, args: BroadcastMail) -> str:
        """Tell everyone of a team but yourself, all or nobody. Nobody has to answer."""
        mail = self._mail(context, args.body, args.subject)
        sent = await self.dispatcher.broadcast(
            mail,
            team=args.team_id,
            caller=caller_of(context),
            asker=Asker(context.lease, context.slot),
            persona_id=context.self_id,
        )
        return _encode(
            {
                "sent": True,
                "team_id": args.team_id,
                "subject": args.subject,
                "broadcast_id": sent.broadcast_id,
                "agents": [copy.agent for copy in sent.copies],
            }
        )

    @tool("mailbox_read", Effect.IDEMPOTENT, Safety.SAFE, is_optional=True, is_poll=True)
    async def read(self, context: ToolContext, args: ReadMail) -> str:
        """Read the mail that other agents sent you, newest first."""
        own = context.lease.message
        mails = await self.history.history(
            own.agent_id,
            limit=args.limit,
            unread_only=args.unread_only,
            person=own.person,
        )
        if args.mark:
            ids = [each.message.message_id for each in mails if each.read_at is None]
            await self.history.mark_read(own.agent_id, ids)
        unread = await self.history.unread_counts((own.agent_id,), person=own.person)
        return _encode(
            {
                "messages": [_shown(each) for each in mails],
                "unread": unread.get(own.agent_id, 0),
            }
        )

    def _mail(self, context: ToolContext, text: str, subject: str = "") -> BusRequest:
        return new_mail(text, subject, idempotency_key=context.call_id)


def _sent_document(address: str, subject: str, sent: SentMail) -> str:
    facts = {
        "sent": True,
        "to": address,
        "subject": subject,
        "agent": sent.agent,
        "message_id": sent.message_id,
        "thread_id": sent.thread_id,
        "reason": sent.reason,
    }
    return _encode({name: value for name, value in facts.items() if value or name == "subject"})


def _shown(received: ReceivedMail) -> dict[str, Any]:
    message = received.message
    text = message.text
    facts = {
        "message_id": message.message_id,
        "kind": message.kind.value,
        "from": message.principal.label,
        "from_agent_id": message.sender_agent_id,
        "subject": message.summary,
        "body": text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…",
        "thread_id": message.thread_id or message.root_id,
        "in_reply_to": message.in_reply_to,
        "state": message.state.value,
        "created_at": _time(message.accepted_at),
        "read_at": None if received.read_at is None else _time(received.read_at),
    }
    return {name: value for name, value in facts.items() if value != ""}


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")


def _encode(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
