"""Lets strangers in: operators are told of a request, and their decision becomes an edit of [people].

One decision at a time. The file is edited first and the request ended after it: if the daemon is
killed between the two, the person is in, and the request ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from agentsup.catalogue import words
from agentsup.channels.core.receiving import strangers
from agentsup.channels.core.sending import ChatNotices
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.people import (
    PeopleEdit,
    check_edit,
    known_as,
    language_of_operators,
    plan_edit,
)
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.kit.log import get_logger
from agentsup.model.control import CommandButton, CommandButtons
from agentsup.model.errors import AgentsupError, ConfigError, Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.pairing import LetIn, PairingRequest, Stranger, code_in, shown_code
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Tx, append

_log = get_logger(__name__)

Announce = Callable[[str, CommandButtons], Awaitable[None]]
"""Sends a text with buttons to an operator."""


@dataclass(frozen=True, slots=True, eq=False)
class DaemonPairing:
    """Implements ``model.pairing.Pairing``, and tells operators of requests."""

    boot_context: BootContext
    reconciler: Reconciler
    announce: Announce
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_on(self) -> bool:
        """Whether strangers get codes."""
        return self.reconciler.snapshot.settings.pairing

    async def asked(self, request: PairingRequest) -> None:
        """Notify an operator of a new request. A failure is only logged: the request is listed."""
        say = words(language_of_operators(self.reconciler.snapshot))
        agent = self.boot_context.roster.name_of(request.agent_id)
        text = say(
            "pairing.asks",
            who=request.stranger.shown,
            agent=agent,
            code=shown_code(request.code),
        )
        let_in, refuse = f"/pair {request.code}", f"/pair refuse {request.code}"
        rows = (
            (
                CommandButton(say("pairing.let_in"), let_in, once=True, operator=True),
                CommandButton(say("pairing.refuse"), refuse, once=True, operator=True),
            ),
        )
        try:
            await self.announce(text, rows)
        except AgentsupError as error:
            _log.warning("nobody could be told of a stranger", agent=agent, why=str(error))

    async def requests(self) -> tuple[tuple[str, PairingRequest], ...]:
        found = await self.boot_context.database.read(
            partial(strangers.open_requests, at=self.boot_context.clock.now_ms()),
            name="pairing.open",
        )
        agents = ((self._agent_of(each), each) for each in found)
        return tuple((name, each) for name, each in agents if name)

    async def let_in(
        self, code: str, by: Principal, *, role: PersonRole | None = None, name: str = ""
    ) -> LetIn:
        async with self.lock:
            agent, request = await self._open(code)
            stranger, before = request.stranger, self.reconciler.snapshot
            known = known_as(before, stranger, agent)
            if known is not None:
                raise Conflict(f"{stranger.shown} may talk to {agent} already, as {known.label}")
            edit = plan_edit(before, stranger, agent, by, role=role, name=name)
            check = partial(check_edit, edit, stranger, agent, before)
            await self.reconciler.edit_settings(edit.apply, check=check)
            if self.known(stranger, agent) is None:
                raise ConfigError("config.toml was written, but is not applied; see /agent_diff")
            await self._end(request, agent, by, edit)
        _log.info("let in", person=edit.person, id=stranger.user_id, agent=agent, by=by.label)
        return LetIn(request, agent, edit.person, edit.role, not edit.agents)

    async def refuse(self, code: str, by: Principal) -> PairingRequest:
        async with self.lock:
            agent, request = await self._open(code)
            await self._end(request, agent, by, None)
        _log.info("refused", id=request.stranger.user_id, agent=agent, by=by.label)
        return request

    def known(self, stranger: Stranger, agent: str) -> Principal | None:
        """The stranger's principal for the agent now."""
        return known_as(self.reconciler.snapshot, stranger, agent)

    # -- steps -------------------------------------------------------------------------------------

    async def _open(self, code: str) -> tuple[str, PairingRequest]:
        """The open request with that code, and its agent. One answer for every other code."""
        wanted = code_in(code)
        for agent, request in await self.requests():
            if request.code == wanted:
                return agent, request
        raise NotFound("there is no open request with this code; it may have expired", kind="code")

    def _agent_of(self, request: PairingRequest) -> str:
        """The agent's name; empty if it is there no more."""
        entry = self.boot_context.roster.by_id(request.agent_id)
        if entry is None or self.reconciler.snapshot.find(entry.name) is None:
            return ""
        return entry.name

    async def _end(
        self, request: PairingRequest, agent: str, by: Principal, edit: PeopleEdit | None
    ) -> None:
        """End the request, record who decided, and tell a person who was let in."""
        context, stranger = self.boot_context, request.stranger
        at, state = context.clock.now_ms(), "refused" if edit is None else "admitted"
        data = {"id": stranger.user_id, "channel": stranger.channel, "by": by.label, "state": state}
        if edit is not None:
            data |= {"person": edit.person, "role": edit.role.name.lower()}

        def step(tx: Tx) -> None:
            if not strangers.decide_tx(tx, request.code, state, by=by.label, at=at):
                return
            kind = EventType.STRANGER_DECIDED
            append(tx, kind, at=at, agent_id=request.agent_id, data=data)
            if edit is not None:
                channel, clock, entropy = stranger.channel, context.clock, context.entropy
                text = words(stranger.language)("pairing.welcome", agent=agent)
                notices = ChatNotices(request.agent_id, channel, clock, entropy)
                notices.add_tx(tx, stranger.conversation, text)

        await context.database.write(step, name="pairing.end")
