"""A dispatcher over a real mailbox for tests, with a directory that is a plain list."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agentsup.mailbox.mail import AgentMailbox, DirectoryEntry, Dispatcher, InterAgentBus
from agentsup.mailbox.messages import MailboxLimits
from agentsup.model.errors import Gone, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.principal import Principal, PrincipalKind
from tests.support.mailbox_fixture import MailboxFixture


def agent_of(name: str) -> Principal:
    """The principal of an agent whose id is its name."""
    return Principal(PrincipalKind.AGENT, name, name)


class ListedAgents:
    """Implements ``mailbox.mail.AgentDirectory``; ids are names."""

    def __init__(self) -> None:
        self.entries: dict[str, DirectoryEntry] = {}
        self.gone: set[str] = set()

    def add(self, name: str, **facts: Any) -> None:
        """An agent that runs, unless ``facts`` say otherwise."""
        entry = DirectoryEntry(AgentId(name), name, "running", is_wanted_up=True)
        self.entries[name] = replace(entry, **facts)

    def remove(self, name: str) -> None:
        del self.entries[name]
        self.gone.add(name)

    def lookup(self, name: str) -> DirectoryEntry:
        if name in self.gone:
            raise Gone(f"agent {name} was removed", agent=name)
        if name not in self.entries:
            near = difflib.get_close_matches(name, self.entries, n=1)
            raise NotFound(f"there is no agent {name!r}", did_you_mean=near[0] if near else None)
        return self.entries[name]

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return self.entries.get(agent_id)

    def names(self) -> tuple[str, ...]:
        return tuple(self.entries)


class DispatcherFixture:
    """A mailbox rig with a dispatcher on it; ``reboot`` as there."""

    def __init__(self, mail: MailboxFixture, agents: ListedAgents) -> None:
        self.mail = mail
        self.agents = agents
        self.history = AgentMailbox(mail.db, mail.mailbox.context)
        self.dispatcher: Dispatcher
        self._wire()

    @classmethod
    async def open(
        cls,
        home: Path,
        agents: Iterable[str | tuple[str, dict[str, Any]]] = (),
        *,
        limits: MailboxLimits | None = None,
    ) -> Self:
        """``agents`` are names, or names with facts of their directory entries."""
        listed = ListedAgents()
        for each in agents:
            name, facts = (each, {}) if isinstance(each, str) else each
            listed.add(name, **facts)
        return cls(await MailboxFixture.open(home, limits=limits), listed)

    def _wire(self) -> None:
        self.bus = InterAgentBus(
            mailbox=self.mail.mailbox,
            directory=self.agents,
            hex_digits=lambda count: "a" * count,
        )
        self.dispatcher = Dispatcher(
            mailbox=self.mail.mailbox,
            directory=self.agents,
            bus=self.bus,
        )

    async def reboot(self) -> None:
        """The process died and started again."""
        await self.mail.reboot()
        self._wire()

    async def close(self) -> None:
        """End, after the laws were asked."""
        await self.mail.check()
        await self.mail.close()
