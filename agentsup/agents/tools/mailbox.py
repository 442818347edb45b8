"""``mailbox_send``, ``mailbox_reply``, ``mailbox_broadcast`` and ``mailbox_read``: letters between
agents.

Who sends is the agent of the turn, never an argument. What changes something is keyed by the call's
id, so that a turn which starts again meets what it sent. A refusal is a result that names the
field, and no end of the turn. Offered only to agents whose ``tools`` name them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from agentsup.agents.tools import arguments
from agentsup.agents.tools.peers import Askers
from agentsup.mailbox.bus import AgentDirectory, Asker
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.history import MailHistory, Received
from agentsup.mailbox.letters import Letter, Sent
from agentsup.mailbox.naming import is_of_work
from agentsup.model.errors import BadRequest, LeaseLost, NotFound
from agentsup.model.message import Message
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.model.trace import UNTRACED, Tracer

MAX_READ = 50
MAX_SUBJECT_CHARS = 200
_SHOWN_CHARS = 4_000


def _words(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


def _schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_SUBJECT, _BODY = _words("What it is about, in one line."), _words("The text; only this is seen.")
_SEND = _schema(
    ("subject", "body"),
    to_agent_id=_words("Name or id of the agent; or give to_role."),
    to_role=_words("A role: whoever of it has least to do gets it; or give to_agent_id."),
    to_team=_words("With to_role: only in this team."),
    subject=_SUBJECT,
    body=_BODY,
    reply_to_id=_words("Id of a message that this answers, or whose thread it goes on with."),
)
_REPLY = _schema(
    ("message_id", "body"), message_id=_words("Id of the message that is answered."), body=_BODY
)
_BROADCAST = _schema(
    ("team_id", "subject", "body"),
    team_id=_words("Name of the team; everyone of it but you gets a copy."),
    subject=_SUBJECT,
    body=_BODY,
)
_READ = _schema(
    (),
    limit={"type": "integer", "minimum": 1, "maximum": MAX_READ, "description": "Default 20."},
    unread_only={"type": "boolean", "description": "Only what no turn of yours has begun on."},
    mark={"type": "boolean", "description": "Mark what is shown as read; default true."},
)


def mailbox_tools(
    dispatcher: Dispatcher,
    history: MailHistory,
    directory: AgentDirectory,
    askers: Askers,
    tracer: Tracer = UNTRACED,
) -> tuple[Tool, ...]:
    """The four tools over one dispatcher."""
    mail = _Mail(dispatcher, history, directory, askers, tracer)
    keyed, moderate = Effect.KEYED, Safety.MODERATE
    return (
        Tool(
            "mailbox_send",
            "Send a letter to an agent, or to whoever of a role has least to do. Its answer comes "
            "as a message later.",
            _SEND,
            mail.send,
            keyed,
            moderate,
            is_optional=True,
        ),
        Tool(
            "mailbox_reply",
            "Answer a message of another agent, in its thread. While you work on that message, "
            "this is its answer; what you say at the end is not sent, too.",
            _REPLY,
            mail.reply,
            keyed,
            moderate,
            is_optional=True,
        ),
        Tool(
            "mailbox_broadcast",
            "Tell everyone of a team but yourself, all or nobody. Nobody has to answer.",
            _BROADCAST,
            mail.broadcast,
            keyed,
            moderate,
            is_optional=True,
        ),
        Tool(
            "mailbox_read",
            "Read the letters that other agents sent you, newest first.",
            _READ,
            mail.read,
            Effect.IDEMPOTENT,
            Safety.SAFE,
            is_optional=True,
            is_poll=True,
        ),
    )


class _Mail:
    """What the tools do, on behalf of the turn that calls them."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        history: MailHistory,
        directory: AgentDirectory,
        askers: Askers,
        tracer: Tracer,
    ) -> None:
        self._dispatcher = dispatcher
        self._history = history
        self._directory = directory
        self._askers = askers
        self._tracer = tracer

    async def send(self, context: ToolContext, args: dict[str, Any]) -> str:
        to, role = _optional(args, "to_agent_id"), _optional(args, "to_role")
        if bool(to) == bool(role):
            raise BadRequest(
                "give either 'to_agent_id' or 'to_role'", field="to_role" if to else "to_agent_id"
            )
        team, reply_to = _optional(args, "to_team"), _optional(args, "reply_to_id")
        letter, asker = self._letter(context, args), self._asker(context)
        caller = _caller(context)
        if team and not role:
            raise BadRequest("'to_team' goes with 'to_role'", field="to_team")
        before = await self._before(reply_to, asker) if reply_to else None
        if role:
            letter = _in_thread_of(before, letter)
            sent = await self._dispatcher.assign(
                letter, role=role, team=team, caller=caller, asker=asker, stand_in=context.self_id
            )
            address = f"role:{role}@{team}" if team else f"role:{role}"
        elif before is not None:
            self._check_answers(before, to)
            sent = await self._dispatcher.reply(reply_to, letter, caller=caller, asker=asker)
            address = sent.agent_id
        else:
            sent = await self._dispatcher.send(
                to, letter, caller=caller, asker=asker, stand_in=context.self_id
            )
            address = sent.agent_id
        return _told(address, letter.subject, sent)

    async def _before(self, message_id: str, asker: Asker) -> Message:
        """A message to or from the agent itself. Raises ``NotFound``, also for mail of others:
        their threads are none of its business."""
        found, own = await self._dispatcher.message(message_id), asker.lease.message.agent_id
        own_work = is_of_work(asker.lease.message.person or NOBODY, found.person)
        if own not in (found.agent_id, found.sender_agent_id) or not own_work:
            raise NotFound(
                f"'reply_to_id': there is no message {message_id} in your mail", field="reply_to_id"
            )
        return found

    def _check_answers(self, before: Message, to: str) -> None:
        addressee = self._directory.by_id(to) or self._directory.lookup(to)
        if before.sender_agent_id != addressee.agent_id:
            raise BadRequest(
                f"'reply_to_id' names a message of {before.principal.label}, and 'to_agent_id' "
                f"{addressee.name}; answer whoever sent it",
                field="reply_to_id",
            )

    async def reply(self, context: ToolContext, args: dict[str, Any]) -> str:
        message_id = _given(args, "message_id")
        letter = self._letter(context, args, has_subject=False)
        sent = await self._dispatcher.reply(
            message_id, letter, caller=_caller(context), asker=self._asker(context)
        )
        return _told(sent.agent_id, "", sent)

    async def broadcast(self, context: ToolContext, args: dict[str, Any]) -> str:
        team = _given(args, "team_id")
        letter = self._letter(context, args)
        told = await self._dispatcher.broadcast(
            letter,
            team=team,
            caller=_caller(context),
            asker=self._asker(context),
            stand_in=context.self_id,
        )
        return _encode(
            {
                "sent": True,
                "team_id": team,
                "subject": letter.subject,
                "broadcast_id": told.broadcast_id,
                "agents": [copy.agent for copy in told.copies],
            }
        )

    async def read(self, context: ToolContext, args: dict[str, Any]) -> str:
        limit = round(arguments.number(args, "limit", default=20))
        if not 1 <= limit <= MAX_READ:
            raise BadRequest(f"'limit' must be from 1 to {MAX_READ}", field="limit")
        is_marking = arguments.flag(args, "mark", default=True)
        own = self._asker(context).lease.message
        letters = await self._history.history(
            own.agent_id,
            limit=limit,
            unread_only=arguments.flag(args, "unread_only"),
            person=own.person,
        )
        if is_marking:
            ids = [each.message.message_id for each in letters if each.read_at is None]
            await self._history.mark_read(own.agent_id, ids)
        unread = await self._history.unread_counts((own.agent_id,), person=own.person)
        return _encode(
            {
                "messages": [_shown(each) for each in letters],
                "unread": unread.get(own.agent_id, 0),
            }
        )

    def _letter(
        self, context: ToolContext, args: dict[str, Any], *, has_subject: bool = True
    ) -> Letter:
        return Letter(
            text=_given(args, "body"),
            subject=_subject(args) if has_subject else "",
            idempotency_key=context.call_id,
            traceparent=self._tracer.header_of(context.message_id, context.call_id),
        )

    def _asker(self, context: ToolContext) -> Asker:
        found = self._askers.asker(context.message_id)
        if found is None or found.lease.fence != context.fence:
            raise LeaseLost("the turn that asks is over", message_id=context.message_id)
        return found


def _in_thread_of(before: Message | None, letter: Letter) -> Letter:
    if before is None:
        return letter
    return Letter(
        letter.text,
        letter.subject,
        thread_id=before.thread_id or before.root_id,
        idempotency_key=letter.idempotency_key,
        traceparent=letter.traceparent,
    )


def _given(args: dict[str, Any], name: str) -> str:
    """A text that must be there and not blank. Raises ``BadRequest`` naming the field."""
    text = arguments.text(args, name)
    if not text.strip():
        raise BadRequest(f"the argument {name!r} is blank", field=name)
    return text.strip()


def _subject(args: dict[str, Any]) -> str:
    """One line that is not blank. Raises ``BadRequest``."""
    _given(args, "subject")
    return arguments.short(args, "subject", MAX_SUBJECT_CHARS)


def _optional(args: dict[str, Any], name: str) -> str:
    return arguments.text(args, name, default="").strip() if args.get(name) is not None else ""


def _told(address: str, subject: str, sent: Sent) -> str:
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


def _shown(received: Received) -> dict[str, Any]:
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


def _caller(context: ToolContext) -> Principal:
    return Principal(
        PrincipalKind.AGENT, context.agent_id, context.agent_name, behalf=context.person or NOBODY
    )
