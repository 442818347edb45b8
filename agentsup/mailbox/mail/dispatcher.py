"""The dispatcher: mail between agents, to one by name, to a team, or to a free agent of a role.

Everything goes into the mailbox. The choice of an addressee and the insert are one transaction, so
that simultaneous choices spread evenly; copies of a broadcast are stored together or not at all.
The sender is taken from the caller, never from the text (P1, P2, P6, P7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agentsup.mailbox.mail.assignment import (
    candidates_of,
    choose,
    known_sent,
    members_of,
    note_choice_tx,
)
from agentsup.mailbox.mail.broadcast import copies_tx, copy_of, known_broadcast
from agentsup.mailbox.mail.bus import Asker, BusRequest, InterAgentBus, principal_of
from agentsup.mailbox.mail.directory import (
    AgentDirectory,
    DirectoryEntry,
    check_may_send,
    entries_of,
)
from agentsup.mailbox.mail.reassignment import reassign_tx
from agentsup.mailbox.mail.reply import reply_tx
from agentsup.mailbox.mail.values import Broadcast, SentMail
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.keys import check_message, key_owner
from agentsup.mailbox.queue import idempotency
from agentsup.mailbox.queue.accept import accept_tx
from agentsup.mailbox.queue.draft import draft
from agentsup.model.errors import BadRequest, Forbidden, NobodyThere, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import Message
from agentsup.model.principal import NOBODY, Principal
from agentsup.store import Reader, Tx

MAX_COPIES = 200
"""The most addressees of one broadcast."""


class Dispatcher:
    """Sends, replies, broadcasts, assigns and reassigns, on behalf of agents and operators.

    ``persona_id`` is the id of the turn's persona, if it has one: then the addressee must be allowed
    for the sender and for the persona.
    """

    def __init__(self, *, mailbox: Mailbox, directory: AgentDirectory, bus: InterAgentBus) -> None:
        """``bus`` finds the sending agent of a caller and the target of answers."""
        self._mailbox = mailbox
        self._database = mailbox.database
        self._directory = directory
        self._bus = bus

    # -- to one ------------------------------------------------------------------------------------

    async def send(
        self,
        to: str,
        mail: BusRequest,
        *,
        caller: Principal,
        asker: Asker | None = None,
        persona_id: str = "",
    ) -> SentMail:
        """Put mail into the mailbox of ``to`` (a name or an agent id); its answer is a message.

        Raises ``NotFound`` (with ``did_you_mean``), ``Gone`` and what accepting raises.
        """
        target = self._find(to)
        sender = self._sender(mail, caller, asker, persona_id)
        if sender is not None:
            check_may_send(sender, target)
        new = self._bus.composed(mail, target, caller=caller, asker=asker)
        accepted = await self._mailbox.queue.accept(new)
        thread_id = new.thread_id or new.root_id
        return SentMail.of(accepted, target.agent_id, target.name, thread_id)

    async def reply(
        self,
        message_id: str,
        mail: BusRequest,
        *,
        caller: Principal,
        asker: Asker | None = None,
    ) -> SentMail:
        """Answer a message that an agent sent, in its thread.

        While that message is open, the reply is its answer: the text at the end of its turn is not
        sent. Raises ``NotFound``, ``Forbidden`` (it went to another agent), ``BadRequest`` (no
        agent sent it), ``Conflict`` (its sender waits for the turn's end) and ``DepthExceeded``.
        """
        request = self._bus.masked(mail, caller)
        replier = self._bus.sender_of(request, caller, asker)
        if not request.text.strip():
            raise BadRequest("message is empty", field="message")
        message = await self._mailbox.messages.get(message_id)
        back_to = self._may_reply(message, replier)
        if replier is not None:
            check_message(message, replier.agent_id, _person(caller, asker))
        accepted = await self._database.write(
            partial(
                reply_tx,
                self._mailbox.context,
                message_id=message_id,
                request=request,
                back_to=back_to.agent_id,
                lease=asker.lease if asker else None,
            ),
            name="dispatch.reply",
        )
        thread_id = message.thread_id or message.root_id
        return SentMail.of(accepted, back_to.agent_id, back_to.name, thread_id)

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
        mail: BusRequest,
        *,
        team: str = "",
        names: Sequence[str] = (),
        caller: Principal,
        asker: Asker | None = None,
        persona_id: str = "",
    ) -> Broadcast:
        """Send a copy to every agent of a team, or of ``names``, but the sender: to all or none.

        The turns on it give no answer; an agent that has one replies. Raises ``NotFound`` (with
        ``did_you_mean``), ``NobodyThere``, ``Forbidden``, and what accepting any copy raises.
        """
        if bool(team) == bool(names):
            raise BadRequest("give either a team or names", field="team")
        request = self._bus.masked(mail, caller)
        sender = self._sender(mail, caller, asker, persona_id)
        if not request.text.strip():
            raise BadRequest("message is empty", field="message")
        principal = principal_of(sender, caller)
        digest = idempotency.digest_of(team, list(names), request.text, int(request.priority))
        owner = key_owner("broadcast", principal, _person(caller, asker))
        key = (owner, request.idempotency_key, digest)
        if request.idempotency_key:
            known = await self._database.read(known_broadcast, *key, name="dispatch.known")
            if known is not None:
                return known
        targets = self._audience(team, names, sender)
        parent = asker.lease.message if asker else None
        template = copy_of(request, principal, parent, caller.person)

        def step(tx: Tx) -> Broadcast:
            return known_broadcast(tx, *key) or copies_tx(
                self._mailbox.context, tx, template, targets, key, team
            )

        return await self._database.write(step, name="dispatch.broadcast")

    def _audience(
        self, team: str, names: Sequence[str], sender: DirectoryEntry | None
    ) -> tuple[DirectoryEntry, ...]:
        found = (
            members_of(entries_of(self._directory), team)
            if team
            else [self._find(n) for n in names]
        )
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

    # -- to a free agent ---------------------------------------------------------------------------

    async def assign(
        self,
        mail: BusRequest,
        *,
        role: str,
        team: str = "",
        caller: Principal,
        asker: Asker | None = None,
        persona_id: str = "",
    ) -> SentMail:
        """Give work to the least loaded agent of a role (of that team); its answer comes back.

        The sender gets it only if nobody else has the role. Raises ``NoAgentForRole``,
        ``Forbidden`` (``can_delegate_to`` allows none of them), ``LoopDetected`` (all of them wait
        for this very work) and what accepting raises.
        """
        sender = self._sender(mail, caller, asker, persona_id)
        owner = key_owner("assign", principal_of(sender, caller), _person(caller, asker))
        digest = idempotency.digest_of(role.casefold(), team.casefold(), mail.text)
        key = (owner, mail.idempotency_key, digest)
        if mail.idempotency_key:
            # A repetition gets its result even if nobody could be chosen any more.
            known = await self._database.read(_sent_under_key, key, name="dispatch.known")
            if known is not None:
                return known
        path = asker.lease.message.path if asker else ()
        candidates = candidates_of(entries_of(self._directory), role, team, sender, path)
        # The message as any of them would get it. Its own idempotency key is empty, because the key
        # that is entered here must not contain the addressee.
        target = self._find(candidates[0].agent_id)
        new = self._bus.composed(mail, target, caller=caller, asker=asker, may_be_own=True)
        template = replace(new, capability=f"role:{role}", idempotency_key="")

        def step(tx: Tx) -> SentMail:
            known = _sent_under_key(tx, key)
            if known is not None:
                return known
            context = self._mailbox.context
            choice = choose(context.loads, candidates)
            chosen = choice.chosen
            new = replace(template, agent_id=AgentId(chosen.agent_id))
            accepted = accept_tx(context, tx, draft(context, new))
            at = context.clock.now_ms()
            idempotency.enter_tx(
                tx, owner, mail.idempotency_key, accepted.message_id, digest, at=at
            )
            note_choice_tx(tx, template, accepted, choice, role=role, team=team, at=at)
            thread_id = template.thread_id or template.root_id
            sent = SentMail.of(accepted, chosen.agent_id, chosen.name, thread_id)
            return replace(sent, reason=choice.reason)

        return await self._database.write(step, name="dispatch.assign")

    # -- another's mail ----------------------------------------------------------------------------

    async def reassign(self, message_id: str, to: str, by: Principal) -> SentMail:
        """Give a queued, parked or failed message to another agent, once.

        Raises ``NotFound``, ``Conflict`` (it runs, has ended, is a task's run, or went to another
        agent already) and what accepting raises.
        """
        target = self._find(to)
        return await self._database.write(
            lambda tx: reassign_tx(self._mailbox.context, tx, message_id, target, by),
            name="dispatch.reassign",
        )

    async def message(self, message_id: str) -> Message:
        """One message. Raises ``NotFound``."""
        return await self._mailbox.messages.get(message_id)

    def _sender(
        self, mail: BusRequest, caller: Principal, asker: Asker | None, persona_id: str
    ) -> DirectoryEntry | None:
        """The sending agent; its ``can_delegate_to`` is limited to that of ``persona_id``, too."""
        sender = self._bus.sender_of(mail, caller, asker)
        other = self._directory.by_id(persona_id) if persona_id else None
        if sender is None or other is None or other.agent_id == sender.agent_id:
            return sender
        ours, theirs = sender.can_delegate_to, other.can_delegate_to
        if ours is not None and theirs is not None:
            listed = {each.casefold() for each in theirs}
            ours = tuple(each for each in ours if each.casefold() in listed)
        return replace(sender, can_delegate_to=theirs if ours is None else ours)

    def _find(self, name: str) -> DirectoryEntry:
        return self._directory.by_id(name) or self._directory.lookup(name)


def _sent_under_key(reader: Reader, key: tuple[str, str, str]) -> SentMail | None:
    known = idempotency.known(reader, *key)
    return None if known is None else known_sent(reader, known)


def _person(caller: Principal, asker: Asker | None) -> str:
    """The person for whom the work is done: that of the asking turn, or the caller's own."""
    return asker.lease.message.person or NOBODY if asker else caller.person
