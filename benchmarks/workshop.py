"""A store, a mailbox, a hub and agents whose work is a plain handler: what agents cost is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import DirectoryEntry, Dispatcher, InterAgentBus
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.work import Handler, Pump, Work
from agentsup.model.errors import NotFound
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, MessageOutcome
from agentsup.store import Database, Tx
from agentsup.tasks import Folders, Runs, TaskHub
from tests.support.task_fixture import no_zone, offer_nothing

ABILITIES = ("count", "read", "write", "paint", "sing")
_SLOTS = dict.fromkeys(LaneName, 8)


class Directory:
    """Agents whose ids are their names, all of one role and one team, with two abilities each."""

    def __init__(self, count: int) -> None:
        self._entries = {
            name: DirectoryEntry(
                AgentId(name),
                name,
                "running",
                role="worker",
                team="all",
                capabilities=(ABILITIES[n % 5], ABILITIES[(n + 1) % 5]),
            )
            for n, name in enumerate(f"agent-{n}" for n in range(count))
        }

    def lookup(self, name: str) -> DirectoryEntry:
        found = self._entries.get(name)
        if found is None:
            raise NotFound(f"there is no agent {name!r}")
        return found

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return self._entries.get(agent_id)

    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)


@dataclass(frozen=True, slots=True)
class EngineFleet:
    """What the agents of a daemon stand on, without agents."""

    database: Database
    mailbox: Mailbox
    directory: Directory
    runs: Runs
    hub: TaskHub
    dispatcher: Dispatcher

    async def finish(self, work: Work) -> None:
        """End the turn as the handler of agents does: the next message is claimed with it."""
        claim_next, end = work.next_claim(), Completion(MessageOutcome.OK, "done")

        def commit(tx: Tx) -> None:
            self.mailbox.leases.complete_tx(tx, work.lease, end)
            if claim_next is not None:
                claim_next(tx)

        await self.database.write(commit, name="turn.complete", closing=True)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Ends each message as soon as it is leased."""

    shop: EngineFleet

    async def handle(self, work: Work) -> None:
        await self.shop.finish(work)


@asynccontextmanager
async def workshop(folder: Path, agents: int) -> AsyncIterator[EngineFleet]:
    """The store is ``folder/state.db``, which may have been filled before; nobody works yet."""
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    database = await Database.open(folder / "state.db", clock=clock)
    mailbox = Mailbox(
        database, clock, entropy, boot_id="bench", limits=MailboxLimits(queue_limit=10_000_000)
    )
    await mailbox.load()
    directory = Directory(agents)
    runs = Runs(mailbox, database, abort=_nobody)
    folders = Folders(folder / "tasks", lambda task_id: folder / "tasks" / task_id)
    hub = TaskHub(runs, directory, folders, no_zone, offer_nothing)
    bus = InterAgentBus(
        mailbox=mailbox,
        directory=directory,
        hex_digits=lambda count: entropy.new_id("x")[-count:],
    )
    dispatcher = Dispatcher(mailbox=mailbox, directory=directory, bus=bus)
    try:
        yield EngineFleet(database, mailbox, directory, runs, hub, dispatcher)
    finally:
        await database.close()


@asynccontextmanager
async def at_work(shop: EngineFleet, handler_of: Callable[[str], Handler]) -> AsyncIterator[None]:
    """Every agent works with its handler inside the block."""
    draining = asyncio.Event()
    owner = TaskOwner("workshop")
    ready = asyncio.Semaphore(0)
    tasks = []
    for name in shop.directory.names():
        pump = Pump(
            mailbox=shop.mailbox,
            agent_id=AgentId(name),
            instance_id=InstanceId(f"ins-{name}"),
            slots=_SLOTS,
            handler=handler_of(name),
        )
        tasks.append(owner.spawn(pump.run(ready.release, draining), name=f"pump:{name}"))
    try:
        for _ in tasks:
            await ready.acquire()
        yield
    finally:
        draining.set()
        await asyncio.wait(tasks, timeout=30)
        await owner.close(1)


async def _nobody(message_id: str) -> None:
    """No turn is cancelled here."""
