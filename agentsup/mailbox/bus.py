"""InterAgentBus: how agents, tools and programs hand messages to agents.

``send`` waits for the answer, ``send_async`` does not. Both only put a message into the mailbox;
the recipient's pump runs it, so durability, order, limits and stop are those of every message. An
engine failure is raised as one; it is never an answer (P1, P6, and the predecessor's D8, D17, D18).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from agentsup.kit import faults
from agentsup.mailbox import naming, waits
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.slots import TurnSlot
from agentsup.model.control import kind_of
from agentsup.model.errors import (
    AgentDown,
    BadRequest,
    EngineFailed,
    Forbidden,
    LoopDetected,
    NotFound,
    TimedOut,
)
from agentsup.model.health import AgentState
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    IN_STORE,
    Accepted,
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
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.trace import by_turn_of, child_of
from agentsup.store.database import Database

DEFAULT_TIMEOUT_S = 300.0
MAX_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """What the bus must know of an agent. ``can_delegate_to`` None: to anyone."""

    agent_id: AgentId
    name: str
    status: str
    last_reason: str = ""
    can_delegate_to: tuple[str, ...] | None = None
    description: str = ""
    is_wanted_up: bool = False
    """It is started or rebuilt where it doesn't run now; nobody keeps it down."""
    nickname: str = ""
    role: str = ""
    role_problem: str = ""
    """Why it can't work in that role, and so has no tools; empty where it can."""
    team: str = ""
    capabilities: tuple[str, ...] = ()

    @property
    def is_up(self) -> bool:
        """It works now, or will without anybody's help."""
        down = (AgentState.STOPPED, AgentState.STOPPING)
        return self.status != AgentState.FAILED and (self.is_wanted_up or self.status not in down)


class AgentDirectory(Protocol):
    """Who exists. Raises ``NotFound`` (with ``did_you_mean``) or ``Gone``."""

    def lookup(self, name: str) -> DirectoryEntry: ...

    def by_id(self, agent_id: str) -> DirectoryEntry | None: ...

    def names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class BusRequest:
    """``sender`` is a name and must fit the caller; empty means the caller itself."""

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
    """The conversation that is meant for the result; what a request over HTTP names has been checked
    before (``api.named_chats``)."""
    topic_id: str = ""
    channel: str = "console"
    """Whose ``chat_id`` that is."""
    traceparent: str = ""
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class BusReply:
    """``sender`` is the agent that answered."""

    sender: str
    text: str
    message_id: str
    session: str


@dataclass(frozen=True, slots=True)
class Asker:
    """The turn that asks, when a turn asks: its lease and slot."""

    lease: Lease
    slot: TurnSlot


class InterAgentBus:
    """The API that tools, HTTP and commands use to reach an agent."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        database: Database,
        directory: AgentDirectory,
        hex_digits: Callable[[int], str],
        redact: Callable[[str], str] = str,
    ) -> None:
        """``redact`` takes secrets of the daemon out of what agents say: a program knows its key."""
        self._mailbox = mailbox
        self._database = database
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
        """Ask and wait. Raises ``NotFound``, ``AgentDown``, ``LoopDetected``, ``DepthExceeded``,
        ``WouldDeadlock``, ``Overloaded``, ``Conflict``, ``TimedOut`` and ``EngineFailed``.

        After ``TimedOut`` the message itself goes on; a turn that asked gets its answer as a
        message of its own then.
        """
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise BadRequest(
                f"timeout must be over 0 and at most {MAX_TIMEOUT_S:.0f} seconds", field="timeout"
            )
        target = self._directory.lookup(request.to)
        check_up(target, caller)
        request = self.masked(request, caller)
        new = self._compose(request, target, caller, asker, waited=True)
        waiter = asker.lease if asker else None
        faults.point("bus.before_accept")
        accepted = await self._mailbox.accept(new, waiter=waiter)
        faults.point("bus.after_accept")
        released = asker.slot.released() if asker else contextlib.nullcontext()
        try:
            async with released:
                message = await self._mailbox.wait_done(accepted.message_id, timeout_s)
        except TimedOut:
            if asker is not None and not await self._database.write(
                lambda tx: waits.give_up_tx(tx, asker.lease, accepted.message_id),
                name="bus.unwait",
            ):
                # It ended between the last look and the end of patience: no reply was made for a
                # caller that waits, so this is the only place where its answer can be told.
                return self._reply_of(await self._mailbox.get(accepted.message_id), target)
            raise TimedOut(
                f"{target.name} has not answered within {timeout_s:g} s; the message goes on",
                message_id=accepted.message_id,
                session=accepted.session_id,
            ) from None
        return self._reply_of(message, target)

    async def send_async(
        self, request: BusRequest, *, caller: Principal, asker: Asker | None = None
    ) -> Accepted:
        """Queue and return; also for an agent that is down. The result goes to the asker's
        session (a turn or agent asked), to the chat named, or stays in the store."""
        target = self._directory.lookup(request.to)
        request = self.masked(request, caller)
        new = self._compose(request, target, caller, asker, waited=False)
        faults.point("bus.before_accept")
        accepted = await self._mailbox.accept(new)
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
        may_be_own: bool = False,
    ) -> NewMessage:
        """What ``send_async`` would store; ``may_be_own``: also for the sender itself, who then
        isn't on its path. Raises what is refused before storing."""
        request = self.masked(request, caller)
        return self._compose(request, target, caller, asker, waited=False, may_be_own=may_be_own)

    def masked(self, request: BusRequest, caller: Principal) -> BusRequest:
        """The request without the daemon's secrets, where an agent made it."""
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

    def _compose(
        self,
        request: BusRequest,
        target: DirectoryEntry,
        caller: Principal,
        asker: Asker | None,
        *,
        waited: bool,
        may_be_own: bool = False,
    ) -> NewMessage:
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
                self._check_path(sender, target, path)
        name = sender.name if sender else caller.label
        person = parent.person if parent else caller.person
        principal = (
            Principal(PrincipalKind.AGENT, sender.agent_id, sender.name) if sender else caller
        )
        return NewMessage(
            agent_id=target.agent_id,
            session_key=naming.session_key(
                caller,
                sender_id=sender.agent_id if sender else "",
                name=name,
                person=person,
                thread=request.thread_id,
            ),
            parts=text_parts(request.text),
            principal=principal,
            kind=Kind.CHAT,
            lane=Lane.PEER,
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
            sender_agent_id=sender.agent_id if sender else "",
            summary=request.summary,
            silent=request.silent,
            person=person,
        )

    def _check_path(
        self, sender: DirectoryEntry, target: DirectoryEntry, path: tuple[str, ...]
    ) -> None:
        """No request to oneself, to whoever waits on it already, or past ``can_delegate_to``."""
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
            return _to_asker(request, parent, waited=True) if parent else DeliverTo("http")
        back_to = self._back_to(request, sender)
        if parent is not None and back_to is None and not request.chat_id:
            return _to_asker(request, parent, waited=False)
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
        """The agent that gets the result in place of the sender; None: the sender itself."""
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
        if message.state is State.DONE and message.outcome is Outcome.OK:
            return BusReply(
                sender=target.name,
                text=message.result_text,
                message_id=message.message_id,
                session=message.session_id,
            )
        stopped = message.state is State.CANCELLED and message.error_code != "reassigned"
        text = message.error_text or "no reason recorded"
        raise EngineFailed(
            f"the request to {target.name} was stopped"
            if stopped
            else f"{target.name} could not answer: {text}",
            engine_code="stopped" if stopped else message.error_code,
            message_id=message.message_id,
            session=message.session_id,
        )


def check_up(target: DirectoryEntry, caller: Principal) -> None:
    """Raise ``AgentDown`` for an agent that stays down; one that is being rebuilt will answer. Why
    in full is for operators: an error may quote whose message it was."""
    if target.is_up:
        return
    reason = target.last_reason if caller.is_operator else kind_of(target.last_reason)
    why = f": {reason}" if reason else ""
    raise AgentDown(
        f"agent {target.name} is {target.status}{why}. Revive it with "
        f"/agent_start {target.name} or `agentsup agents start {target.name}`, "
        "or use send_async, which queues",
        agent=target.name,
        agent_state=target.status,
    )


def check_may_send(sender: DirectoryEntry, target: DirectoryEntry) -> None:
    """Raise ``Forbidden`` where the sender's ``can_delegate_to`` leaves the target out."""
    allowed = sender.can_delegate_to
    if allowed is not None and target.name.casefold() not in {a.casefold() for a in allowed}:
        raise Forbidden(
            f"{sender.name} may not send to {target.name}: its can_delegate_to lists "
            f"{', '.join(allowed) or 'nobody'}",
            agent=target.name,
        )


def _to_asker(request: BusRequest, parent: Message, *, waited: bool) -> DeliverTo:
    """Back into the session of the turn that asks, and on to whoever asked that one."""
    return DeliverTo(
        "mailbox",
        agent_id=parent.agent_id,
        session_id=parent.session_id,
        waited=waited,
        silent=request.silent,
        then=parent.deliver_to,
    )


__all__ = [
    "AgentDirectory",
    "Asker",
    "BusReply",
    "BusRequest",
    "DirectoryEntry",
    "InterAgentBus",
    "check_may_send",
    "check_up",
]
