"""InterAgentBus: how agents, tools and programs send messages to agents.

Both ways only put a message into the mailbox: durability, order and stop are as for every message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsup.kit import faults
from agentsup.mailbox.mail.directory import AgentDirectory, DirectoryEntry, check_may_send, check_up
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages import keys
from agentsup.mailbox.queue import waits
from agentsup.model.errors import (
    BadRequest,
    EngineFailed,
    Forbidden,
    LoopDetected,
    NotFound,
    TimedOut,
)
from agentsup.model.message import (
    IN_STORE,
    Accepted,
    DeliverTo,
    LaneName,
    Lease,
    Message,
    MessageKind,
    MessageOutcome,
    MessageState,
    NewMessage,
    Priority,
    text_parts,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.tool import WaitSlot
from agentsup.model.trace import by_turn_of, child_of

DEFAULT_TIMEOUT_S = 300.0
MAX_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class BusRequest:
    """A request to an agent. ``sender`` is a name that must fit the caller; empty: the caller."""

    to: str
    text: str
    sender: str = ""
    new_session: bool = False
    thread_id: str = ""
    priority: Priority = Priority.NORMAL
    idempotency_key: str = ""
    summary: str = ""
    silent: bool = False
    reply_to: str = ""
    """The agent that is to get the result instead of the sender (Sygen's word, HTTP edge only)."""
    chat_id: str = ""
    """The conversation for the result; for a request over HTTP it has been checked before
    (``api.routes.interagent.named_chat``)."""
    topic_id: str = ""
    channel: str = "console"
    """The channel of ``chat_id``."""
    traceparent: str = ""
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class BusReply:
    """The answer to a request. ``sender`` is the name of the agent that answered."""

    sender: str
    text: str
    message_id: str
    session: str


@dataclass(frozen=True, slots=True)
class Asker:
    """The turn that asks: its lease and slot."""

    lease: Lease
    slot: WaitSlot


class InterAgentBus:
    """The API that tools, HTTP and commands use to reach an agent."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        directory: AgentDirectory,
        hex_digits: Callable[[int], str],
        redact: Callable[[str], str] = str,
    ) -> None:
        """``redact`` removes the daemon's secrets from agents' texts: a program knows its key."""
        self._mailbox = mailbox
        self._database = mailbox.database
        self._directory = directory
        self._hex_digits = hex_digits
        self._redact = redact

    async def send(
        self,
        request: BusRequest,
        *,
        caller: Principal,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        asker: Asker | None = None,
    ) -> BusReply:
        """Send a request and wait for its answer.

        Raises ``NotFound``, ``AgentDown``, ``LoopDetected``, ``DepthExceeded``, ``WouldDeadlock``,
        ``Overloaded``, ``Conflict``, ``TimedOut`` and ``EngineFailed``. After ``TimedOut`` the
        message goes on; a turn that asked gets the answer as a reply message then.
        """
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise BadRequest(
                f"timeout must be over 0 and at most {MAX_TIMEOUT_S:.0f} seconds", field="timeout"
            )
        target = self._directory.lookup(request.to)
        check_up(target, caller)
        new = self.composed(request, target, caller=caller, asker=asker, waited=True)
        waiter = asker.lease if asker else None
        faults.point("bus.before_accept")
        accepted, end = await self._mailbox.queue.accept_expecting(new, waiter=waiter)
        faults.point("bus.after_accept")
        released = asker.slot.released() if asker else contextlib.nullcontext()
        try:
            async with released:
                message = await self._mailbox.queue.wait_done(
                    accepted.message_id, timeout_s, end=end
                )
        except TimedOut:
            if asker is not None and not await self._database.write(
                waits.give_up_tx, asker.lease, accepted.message_id, name="bus.unwait"
            ):
                # The message ended just before the time-out. A waited message makes no reply
                # message, so the answer must be returned here.
                return self._reply_of(await self._mailbox.messages.get(accepted.message_id), target)
            raise TimedOut(
                f"{target.name} has not answered within {timeout_s:g} s; the message goes on",
                message_id=accepted.message_id,
                session=accepted.session_id,
            ) from None
        return self._reply_of(message, target)

    async def send_async(
        self, request: BusRequest, *, caller: Principal, asker: Asker | None = None
    ) -> Accepted:
        """Queue the message and return, also for an agent that is down.

        The result goes to the session of the asking turn or agent, to the chat that is named, or
        stays in the store.
        """
        target = self._directory.lookup(request.to)
        new = self.composed(request, target, caller=caller, asker=asker)
        faults.point("bus.before_accept")
        accepted = await self._mailbox.queue.accept(new)
        faults.point("bus.after_accept")
        return accepted

    # -- composing ---------------------------------------------------------------------------------

    def composed(
        self,
        request: BusRequest,
        target: DirectoryEntry,
        *,
        caller: Principal,
        asker: Asker | None = None,
        waited: bool = False,
        may_be_own: bool = False,
    ) -> NewMessage:
        """The message that ``send_async`` (``waited``: ``send``) would store.

        With ``may_be_own`` the target may be the sender, which is then not on the path. Raises what
        they raise before storing.
        """
        request = self.masked(request, caller)
        sender = self.sender_of(request, caller, asker)
        if not request.text.strip():
            raise BadRequest("message is empty", field="message")
        parent = asker.lease.message if asker else None
        path: tuple[str, ...] = ()
        if sender is not None:
            path = (*(parent.path if parent else ()), sender.agent_id)
            if may_be_own and sender.agent_id == target.agent_id:
                path = tuple(each for each in path if each != sender.agent_id)
            else:
                self.check_path(sender, target, path)
        name = sender.name if sender else caller.label
        sender_id = sender.agent_id if sender else ""
        person = parent.person if parent else caller.person
        return NewMessage(
            agent_id=target.agent_id,
            session_key=keys.session_key(
                caller, sender_id=sender_id, name=name, person=person, thread=request.thread_id
            ),
            parts=text_parts(request.text),
            principal=principal_of(sender, caller),
            kind=MessageKind.CHAT,
            lane=LaneName.PEER,
            priority=request.priority,
            deliver_to=self._deliver_to(request, sender, parent, waited=waited),
            new_session=request.new_session,
            thread_id=request.thread_id,
            in_reply_to=parent.message_id if parent else "",
            root_id=parent.root_id if parent else "",
            path=path,
            traceparent=child_of(
                request.traceparent or (by_turn_of(parent) if parent else ""), self._hex_digits
            ),
            expires_at=request.expires_at,
            idempotency_key=request.idempotency_key,
            sender_agent_id=sender_id,
            summary=request.summary,
            silent=request.silent,
            person=person,
        )

    def masked(self, request: BusRequest, caller: Principal) -> BusRequest:
        """The request, without the daemon's secrets if an agent made it."""
        if caller.kind not in (PrincipalKind.AGENT, PrincipalKind.RUN):
            return request
        text, summary = self._redact(request.text), self._redact(request.summary)
        return replace(request, text=text, summary=summary)

    def sender_of(
        self, request: BusRequest, caller: Principal, asker: Asker | None
    ) -> DirectoryEntry | None:
        """The sending agent, from the token and never from the body; None for the operator."""
        if asker is not None:
            return self._directory.by_id(asker.lease.message.agent_id)
        if caller.kind in (PrincipalKind.AGENT, PrincipalKind.RUN):
            own = self._directory.by_id(caller.subject)
            if own is None:
                raise NotFound("the calling agent no longer exists", agent=caller.subject)
            if request.sender and request.sender.casefold() != own.name.casefold():
                raise Forbidden(
                    f"this token belongs to {own.name}; it can't send as {request.sender}",
                    field="from",
                )
            return own
        if request.sender and caller.is_operator:
            return self._directory.lookup(request.sender)
        return None

    def check_path(
        self, sender: DirectoryEntry, target: DirectoryEntry, path: tuple[str, ...]
    ) -> None:
        """Raise ``LoopDetected`` for a request to the sender itself or to an agent on its path,
        ``Forbidden`` for one that the sender may not ask."""
        if target.agent_id == sender.agent_id:
            raise LoopDetected(f"{sender.name} can't send to itself", agent=sender.name)
        if target.agent_id in path:
            names = [getattr(self._directory.by_id(a), "name", a) for a in path]
            raise LoopDetected(
                f"{target.name} is already waiting on this request ({' → '.join(names)}); "
                "answer with what you know",
                agent=target.name,
                path=names,
            )
        check_may_send(sender, target)

    def _deliver_to(
        self,
        request: BusRequest,
        sender: DirectoryEntry | None,
        parent: Message | None,
        *,
        waited: bool,
    ) -> DeliverTo:
        if waited:
            back = parent and to_asker(parent, waited=True, silent=request.silent)
            return back or DeliverTo("http")
        back_to = self._back_to(request, sender)
        if parent is not None and back_to is None and not request.chat_id:
            return to_asker(parent, waited=False, silent=request.silent)
        back_to = back_to or sender
        if back_to is None:
            return IN_STORE
        then = None
        if request.chat_id:
            conversation = ":".join(p for p in (request.chat_id, request.topic_id) if p)
            then = DeliverTo(
                "chat",
                agent_id=back_to.agent_id,
                channel=request.channel,
                conversation=conversation,
            )
        return DeliverTo("mailbox", agent_id=back_to.agent_id, silent=request.silent, then=then)

    def _back_to(self, request: BusRequest, sender: DirectoryEntry | None) -> DirectoryEntry | None:
        """The agent that gets the result instead of the sender; None: the sender itself."""
        if not request.reply_to:
            return None
        named = self._directory.lookup(request.reply_to)
        if sender is not None:
            if named.agent_id == sender.agent_id:
                return None
            check_may_send(sender, named)
        return named

    @staticmethod
    def _reply_of(message: Message, target: DirectoryEntry) -> BusReply:
        if message.state is MessageState.DONE and message.outcome is MessageOutcome.OK:
            return BusReply(
                sender=target.name,
                text=message.result_text,
                message_id=message.message_id,
                session=message.session_id,
            )
        stopped = message.state is MessageState.CANCELLED and message.error_code != "reassigned"
        text = message.error_text or "no reason recorded"
        raise EngineFailed(
            f"the request to {target.name} was stopped"
            if stopped
            else f"{target.name} could not answer: {text}",
            engine_code="stopped" if stopped else message.error_code,
            message_id=message.message_id,
            session=message.session_id,
        )


def principal_of(sender: DirectoryEntry | None, caller: Principal) -> Principal:
    """The principal of a message that the sending agent, or else the caller, sends."""
    if sender is None:
        return caller
    return Principal(PrincipalKind.AGENT, sender.agent_id, sender.name, asker=caller.asker_name)


def to_asker(parent: Message, *, waited: bool, silent: bool = False) -> DeliverTo:
    """Deliver to the session of the asking turn, and then to the asker of that turn's message."""
    return DeliverTo(
        "mailbox",
        agent_id=parent.agent_id,
        session_id=parent.session_id,
        waited=waited,
        silent=silent,
        then=replace(parent.deliver_to, waited=False),
    )
