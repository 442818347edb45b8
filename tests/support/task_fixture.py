"""Tasks on a real store and mailbox for tests, without agents: each turn is claimed and ended by
hand."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agentsup.mailbox.mail import Asker, DirectoryEntry
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.control import CommandButtons
from agentsup.model.errors import NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, LaneName, Lease
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.task import NewTask, Run, Schedule, SkippedOccurrence, Task
from agentsup.store import Tx
from agentsup.tasks import Folders, NewRun, Runs, TaskHub
from agentsup.tasks.scheduler import settle_tx
from tests.support.mailbox_fixture import MailboxFixture

ANN = Principal(PrincipalKind.AGENT, "ann", "ann")
BEN = Principal(PrincipalKind.AGENT, "ben", "ben")


class _Directory:
    """Agents whose ids are their names; main is among them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._bounds: dict[str, tuple[str, ...]] = {}

    def lookup(self, name: str) -> DirectoryEntry:
        found = self.by_id(name.casefold())
        if found is None:
            near = difflib.get_close_matches(name, self._names, n=1)
            raise NotFound(f"there is no agent {name!r}", did_you_mean=near[0] if near else None)
        return found

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        if agent_id not in self._names:
            return None
        return DirectoryEntry(
            AgentId(agent_id),
            agent_id,
            "running",
            can_delegate_to=self._bounds.get(agent_id),
            is_wanted_up=True,
        )

    def names(self) -> tuple[str, ...]:
        return self._names

    def bound(self, name: str, *to: str) -> None:
        """Let an agent hand work to those alone."""
        self._bounds[name] = to

    def remove(self, name: str) -> None:
        self._names = tuple(each for each in self._names if each != name)


def no_zone(agent_id: str, person: str) -> str:
    """Nobody has a time zone of their own."""
    return ""


def offer_nothing(tx: Tx, chat: DeliverTo, buttons: CommandButtons, at: int) -> dict[str, Any]:
    """Chats have no buttons."""
    return {}


async def tell_nobody(task_id: str, why: SkippedOccurrence) -> None:
    """Operators hear of no pause."""


class TaskFixture:
    """One store; ``reboot`` begins the next life of mailbox and hub."""

    def __init__(self, mail: MailboxFixture, home: Path, agents: tuple[str, ...]) -> None:
        self.mail = mail
        self.home = home
        self.directory = _Directory(agents)
        self.aborted: list[str] = []
        self._slots = SlotPool(dict.fromkeys(LaneName, 9), lambda: None)
        self.hub = self._next_life()

    @classmethod
    async def open(cls, home: Path, *agents: str, threads: bool = False) -> Self:
        """A fresh store under ``home``; agents are main, ann, ben, eve if none are named."""
        mail = await MailboxFixture.open(home, threads=threads)
        return cls(mail, home, agents or ("main", "ann", "ben", "eve"))

    async def close(self) -> None:
        await self.mail.close()

    def _next_life(self) -> TaskHub:
        mail = self.mail
        self.runs = Runs(mail.mailbox, mail.db, abort=self._abort)
        folders = Folders(self.home / "tasks", lambda task_id: self.home / "tasks" / task_id)
        return TaskHub(self.runs, self.directory, folders, no_zone, offer_nothing)

    async def _abort(self, message_id: str) -> None:
        self.aborted.append(message_id)

    async def reboot(self) -> None:
        """The process died and started again."""
        await self.mail.reboot()
        self.hub = self._next_life()

    async def create(
        self, prompt: str = "count the sheep", caller: Principal = OPERATOR, **changes: Any
    ) -> Task:
        """A task of ``caller``; in ann's mailbox unless said otherwise."""
        asker = changes.pop("asker", None)
        new = NewTask(prompt, agent="" if caller is ANN else "ann")
        return await self.hub.create(replace(new, **changes), caller=caller, asker=asker)

    async def start_run(self, new: NewRun, *, waiter: Lease | None = None) -> Run:
        """A run, started in a transaction of its own."""
        return await self.mail.db.write(lambda tx: self.runs.start_tx(tx, new, waiter=waiter))

    async def turn(self) -> Lease:
        """A turn of ann's, at work on what Bob has asked."""
        await self.mail.put("please count")
        return await self.mail.one()

    async def given(self) -> tuple[Lease, Task]:
        """A turn of ann's, at work, and a task that it has given."""
        turn = await self.turn()
        return turn, await self.create(caller=ANN, asker=self.asker(turn))

    async def settle(self, task: Task) -> None:
        """Run or skip what has come of the task's times."""
        now = self.mail.clock.now_ms()
        await self.mail.db.write(lambda tx: settle_tx(tx, self.hub.starter, task.task_id, now=now))

    async def schedule(self, task: Task) -> Schedule:
        """The task's schedule as it is now."""
        found = (await self.hub.card(task.task_id, caller=OPERATOR)).schedule
        assert found is not None
        return found

    def asker(self, lease: Lease) -> Asker:
        """The turn on ``lease`` as one that asks."""
        return Asker(lease, self._slots.take(lease.message.lane))

    async def again(self, task: Task) -> Task:
        """The task as it is now."""
        return await self.hub.get(task.task_id, caller=OPERATOR)
