"""The dispatcher: mail between agents, to one by name, to a team, or to whoever of a role is free.

Everything goes into the one mailbox. A choice of the addressee and the insert are one transaction,
so that many who choose at once spread evenly; copies of a broadcast are stored together or not at
all. Who sends comes from the caller, never from the text (P1, P2, P6, P7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agentsup.mailbox import keys
from agentsup.mailbox.accept import accept_tx
from agentsup.mailbox.assigning import (
    candidates_of,
    choose,
    known_sent,
    members_of,
    note_choice_tx,
)
from agentsup.mailbox.broadcasting import copies_tx, copy_of, known_broadcast
from agentsup.mailbox.bus import (
    AgentDirectory,
    Asker,
    DirectoryEntry,
    InterAgentBus,
    check_may_send,
)
from agentsup.mailbox.choice import Candidate
from agentsup.mailbox.draft import draft
from agentsup.mailbox.letters import Broadcast, Letter, Sent
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.naming import check_message, key_owner
from agentsup.mailbox.reassigning import reassign_tx
from agentsup.mailbox.replying import reply_tx
from agentsup.model.errors import BadRequest, Forbidden, NobodyThere, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import Message, NewMessage
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.store.database import Database, Tx

__all__ = ["Broadcast", "Dispatcher", "Letter", "Sent"]

MAX_COPIES = 200
"""Addressees of one broadcast."""


class Dispatcher:
    """Sends, replies, broadcasts, assigns and reassigns, on behalf of agents and operators.

    ``stand_in`` is the id of the agent in whose place a turn is done, if it is done so: then only
    those are written to whom both may write to.
    """

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        database: Database,
        directory: AgentDirectory,
        bus: InterAgentBus,
    ) -> None:
        """``bus`` knows who a caller is and where answers go."""
        self._mailbox = mailbox
        self._database = database
        self._directory = directory
        self._bus = bus

    # -- to one ------------------------------------------------------------------------------------

    async def send(
        self,
        to: str,
        letter: Letter,
        *,
        caller: Principal,
        asker: Asker | None = None,
        stand_in: str = "",
    ) -> Sent:
        """Put a letter into the mailbox of ``to`` (a name or an agent id); its answer comes back as
        a message. Raises ``NotFound`` (with ``did_you_mean``), ``Gone`` and what accepting raises.
        """
        target = self._find(to)
        sender = self._sender(letter, caller, asker, stand_in)
        if sender is not None:
            check_may_send(sender, target)
        new = self._bus.composed(letter.request(target.name), target, caller=caller, asker=asker)
        accepted = await self._mailbox.accept(new)
        thread_id = new.thread_id or new.root_id
        return Sent.of(accepted, target.agent_id, target.name, thread_id)

    async def reply(
        self, message_id: str, letter: Letter, *, caller: Principal, asker: Asker | None = None
    ) -> Sent:
        """Answer a message that an agent sent, in its thread.

        While that message is worked on, this is its answer: what the turn says at its end is not
        sent, too. Raises ``NotFound``, ``Forbidden`` (it went to another agent), ``BadRequest``
        (no agent sent it), ``Conflict`` (its sender waits for the turn's end) and ``DepthExceeded``.
        """
        request = self._bus.masked(letter.request(), caller)
        replier = self._bus.sender_of(request, caller, asker)
        if not request.text.strip():
            raise BadRequest("message is empty", field="message")
        message = await self._mailbox.get(message_id)
        back_to = self._may_reply(message, replier)
        if replier is not None:
            check_message(message, replier.agent_id, _person(caller, asker))
        accepted = await self._database.write(
            partial(
                reply_tx,
                self._mailbox.desk,
                message_id=message_id,
                request=request,
                back_to=back_to.agent_id,
                lease=asker.lease if asker else None,
            ),
            name="dispatch.reply",
        )
        thread_id = message.thread_id or message.root_id
        return Sent.of(accepted, back_to.agent_id, back_to.name, thread_id)

    def _may_reply(self, message: Message, replier: DirectoryEntry | None) -> DirectoryEntry:
        if replier is not None and message.agent_id != replier.agent_id:
            raise Forbidden(
                f"message {message.message_id} was not sent to {replier.name}",
                message_id=message.message_id,
                field="message_id",
            )
        if not message.sender_agent_id:
            raise BadRequest(
                f"message {message.message_id} came from {message.principal.label} and from no "
                "agent; what you say at the end of the turn is the answer",
                field="message_id",
            )
        back_to = self._directory.by_id(message.sender_agent_id)
        if back_to is None:
            raise NotFound(
                f"{message.principal.label}, who sent {message.message_id}, no longer exists",
                agent=message.principal.label,
            )
        return back_to

    # -- to many -----------------------------------------------------------------------------------

    async def broadcast(
        self,
        letter: Letter,
        *,
        team: str = "",
        names: Sequence[str] = (),
        caller: Principal,
        asker: Asker | None = None,
        stand_in: str = "",
    ) -> Broadcast:
        """Give everyone of a team, or of ``names``, but not the sender, a copy: all or nobody.

        No turn is an answer to it; whoever has one replies. Raises ``NotFound`` (with
        ``did_you_mean``), ``NobodyThere``, ``Forbidden``, and what accepting any copy raises.
        """
        if bool(team) == bool(names):
            raise BadRequest("give either a team or names", field="team")
        request = self._bus.masked(letter.request(), caller)
        sender = self._sender(letter, caller, asker, stand_in)
        if not request.text.strip():
            raise BadRequest("message is empty", field="message")
        principal = _principal(sender, caller)
        digest = keys.digest_of(team, list(names), request.text, int(request.priority))
        owner = key_owner("broadcast", principal, _person(caller, asker))
        key = (owner, request.idempotency_key, digest)
        known = await self._database.read(
            lambda reader: known_broadcast(reader, *key), name="dispatch.known"
        )
        if known is not None:
            return known
        targets = self._audience(team, names, sender)
        parent = asker.lease.message if asker else None
        template = copy_of(request, principal, parent, caller.person)

        def step(tx: Tx) -> Broadcast:
            return known_broadcast(tx, *key) or copies_tx(
                self._mailbox.desk, tx, template, targets, key, team
            )

        return await self._database.write(step, name="dispatch.broadcast")

    def _audience(
        self, team: str, names: Sequence[str], sender: DirectoryEntry | None
    ) -> tuple[DirectoryEntry, ...]:
        found = members_of(self._entries(), team) if team else [self._find(n) for n in names]
        unique = {each.agent_id: each for each in found}
        if sender is not None:
            unique.pop(sender.agent_id, None)
            for each in unique.values():
                check_may_send(sender, each)
        if not unique:
            where = f"team {team}" if team else "the names given"
            raise NobodyThere(f"there is nobody in {where} beside the sender", team=team)
        if len(unique) > MAX_COPIES:
            raise BadRequest(f"a broadcast has at most {MAX_COPIES} addressees", field="team")
        return tuple(unique.values())

    # -- to whoever is free ------------------------------------------------------------------------

    async def assign(
        self,
        letter: Letter,
        *,
        role: str,
        team: str = "",
        caller: Principal,
        asker: Asker | None = None,
        stand_in: str = "",
    ) -> Sent:
        """Give work to the least loaded agent of a role (of that team); its answer comes back.

        The sender gets it only if nobody else has the role. Raises ``NoAgentForRole``,
        ``Forbidden`` (``can_delegate_to`` leaves all of them out), ``LoopDetected`` (all of them
        wait for this very work) and what accepting raises.
        """
        request = letter.request()
        sender = self._sender(letter, caller, asker, stand_in)
        owner = key_owner("assign", _principal(sender, caller), _person(caller, asker))
        digest = keys.digest_of(role.casefold(), team.casefold(), request.text)
        key = (owner, request.idempotency_key, digest)
        known = await self._database.read(
            lambda reader: keys.known(reader, *key), name="dispatch.known"
        )
        if known is not None:
            return await self._database.read(
                lambda reader: known_sent(reader, known), name="dispatch.known"
            )
        path = asker.lease.message.path if asker else ()
        candidates = candidates_of(self._entries(), role, team, sender, path)
        template = self._unaddressed(letter, candidates[0], role, caller, asker)

        def step(tx: Tx) -> Sent:
            known = keys.known(tx, *key)
            if known is not None:
                return known_sent(tx, known)
            desk = self._mailbox.desk
            choice = choose(tx, candidates)
            chosen = choice.chosen
            new = replace(template, agent_id=AgentId(chosen.agent_id))
            accepted = accept_tx(desk, tx, draft(desk, new))
            at = desk.clock.now_ms()
            keys.enter_tx(tx, owner, request.idempotency_key, accepted.message_id, digest, at=at)
            note_choice_tx(tx, template, accepted, choice, role=role, team=team, at=at)
            thread_id = template.thread_id or template.root_id
            sent = Sent.of(accepted, chosen.agent_id, chosen.name, thread_id)
            return replace(sent, reason=choice.reason)

        return await self._database.write(step, name="dispatch.assign")

    def _unaddressed(
        self,
        letter: Letter,
        candidate: Candidate,
        role: str,
        caller: Principal,
        asker: Asker | None,
    ) -> NewMessage:
        """The message as any of the candidates would get it. The ledger knows it by a key of its
        own, since the addressee is no part of the request."""
        target = self._find(candidate.agent_id)
        new = self._bus.composed(
            letter.request(target.name), target, caller=caller, asker=asker, may_be_own=True
        )
        return replace(new, capability=f"role:{role}", idempotency_key="")

    # -- another's mail ----------------------------------------------------------------------------

    async def reassign(self, message_id: str, to: str, by: Principal) -> Sent:
        """Give a message that waits, is parked or is dead to another agent, once.

        Raises ``NotFound``, ``Conflict`` (it runs, has ended, is a task's run, or went to another
        agent already) and what accepting raises.
        """
        target = self._find(to)
        return await self._database.write(
            lambda tx: reassign_tx(self._mailbox.desk, tx, message_id, target, by),
            name="dispatch.reassign",
        )

    async def message(self, message_id: str) -> Message:
        """One message. Raises ``NotFound``."""
        return await self._mailbox.get(message_id)

    def _sender(
        self, letter: Letter, caller: Principal, asker: Asker | None, stand_in: str
    ) -> DirectoryEntry | None:
        """Who sends, with those whom both the sender and its stand-in may write to."""
        sender = self._bus.sender_of(letter.request(), caller, asker)
        other = self._directory.by_id(stand_in) if stand_in else None
        if sender is None or other is None or other.agent_id == sender.agent_id:
            return sender
        ours, theirs = sender.can_delegate_to, other.can_delegate_to
        if ours is not None and theirs is not None:
            listed = {each.casefold() for each in theirs}
            ours = tuple(each for each in ours if each.casefold() in listed)
        return replace(sender, can_delegate_to=theirs if ours is None else ours)

    def _find(self, name: str) -> DirectoryEntry:
        return self._directory.by_id(name) or self._directory.lookup(name)

    def _entries(self) -> list[DirectoryEntry]:
        return [self._directory.lookup(name) for name in self._directory.names()]


def _principal(sender: DirectoryEntry | None, caller: Principal) -> Principal:
    if sender is None:
        return caller
    return Principal(PrincipalKind.AGENT, sender.agent_id, sender.name)


def _person(caller: Principal, asker: Asker | None) -> str:
    """Whose work it is: that of the asking turn, or the caller's own."""
    return asker.lease.message.person or NOBODY if asker else caller.person
