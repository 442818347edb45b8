"""The assembly of background work: the hub, its schedules, and the briefing of runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from agentsup.agents.recovery import LASTING
from agentsup.catalogue import words
from agentsup.channels.core.sending import mint_tx
from agentsup.daemon.assembly.children import draining_child
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.people import language_of_operators
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory
from agentsup.mailbox.messages import WEB
from agentsup.mailbox.work import SharedSlots
from agentsup.model.control import CommandButtons
from agentsup.model.message import DeliverTo
from agentsup.model.platforms import PLATFORMS
from agentsup.model.task import OccurrenceSkipReason, SkippedOccurrence
from agentsup.store import Tx
from agentsup.supervision import ChildSpec
from agentsup.tasks import (
    SHOWN_ID_CHARS,
    Briefing,
    Folders,
    Runs,
    Scheduler,
    TaskHub,
    machine_zone,
    rows,
    skip_text,
)

_PLATFORMS = frozenset(each.name for each in PLATFORMS)
_log = get_logger(__name__)
_PURGE_S = 120.0


class DaemonTasks:
    """Background work, for the daemon's other parts.

    ``hub`` is None if tasks are switched off; ``runs``, by which agents delegate work, always
    exists.
    """

    def __init__(
        self,
        boot_context: BootContext,
        mailbox: Mailbox,
        directory: AgentDirectory,
        abort: Callable[[str], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``abort(message_id)`` ends the turn of a cancelled message, and returns when it has
        ended; ``tell`` sends a text to the operators."""
        self._tell = tell
        folders = Folders(boot_context.home.tasks, boot_context.home.task_dir, boot_context.files)
        self._boot_context, self._folders = boot_context, folders
        current = boot_context.current
        self.background = SharedSlots(lambda: current().settings.tasks.max_parallel)
        self.runs = Runs(mailbox, boot_context.database, abort)
        self.brief = Briefing(
            boot_context.database, folders, timeout_s=lambda: current().settings.tasks.timeout_s
        )
        self.hub: TaskHub | None = None
        if boot_context.snapshot.settings.tasks.enabled:
            self.hub = TaskHub(
                self.runs,
                directory,
                folders,
                self.zone_of,
                partial(offered_in, boot_context.entropy),
            )

    def zone_of(self, agent_id: str, person: str) -> str:
        """The zone of a person of ``[people]``, else that of the agent, else the machine's."""
        listed = self._boot_context.current().settings.people.get(person)
        if listed is not None and listed.timezone:
            return listed.timezone
        spec = self._boot_context.spec_of(agent_id)
        return (spec.user_timezone if spec is not None else None) or machine_zone()

    async def purge(self, now_ms: int) -> None:
        """Remove folders of tasks that were deleted ``tasks.keep_days`` days before ``now_ms``."""
        days = self._boot_context.current().settings.tasks.keep_days
        before_s = now_ms / 1000 - days * 86_400
        try:
            step = partial(self._folders.purge, before_s)
            gone = await self._folders.run(step, key="deleted tasks", limit_s=_PURGE_S)
        except OSError as error:
            _log.warning("folders of deleted tasks could not be removed", reason=str(error))
            return
        if gone:
            _log.info("removed folders of deleted tasks", days=days, tasks=gone)

    async def _paused(self, task_id: str, why: SkippedOccurrence) -> None:
        task = await self._boot_context.database.read(rows.need_task, task_id, name="tasks.paused")
        say = words(language_of_operators(self._boot_context.current()))
        lacks_setup = why.reason is OccurrenceSkipReason.SETUP
        await self._tell(
            say(
                "failure.schedule_paused" if lacks_setup else "rights.paused",
                name=task.name,
                id=task_id[-SHOWN_ID_CHARS:],
                why=skip_text(why, say),
            )
        )

    def specs(self) -> tuple[ChildSpec, ...]:
        """The child that starts scheduled tasks, unless tasks are switched off."""
        if self.hub is None:
            return ()
        scheduler = Scheduler(
            self._boot_context.database,
            self._boot_context.clock,
            self.hub.starter,
            self._paused,
            LASTING,
        )
        return (draining_child("schedules", scheduler.run),)


def offered_in(
    entropy: Entropy, tx: Tx, chat: DeliverTo, buttons: CommandButtons, at: int
) -> Mapping[str, Any]:
    """The fields of a notice in ``chat`` with these buttons; none on a channel without buttons."""
    if chat.channel == WEB:
        return {"offers": [(each.label, each.command) for row in buttons for each in row]}
    if chat.channel not in _PLATFORMS:
        return {}
    shown = mint_tx(
        tx,
        buttons,
        agent_id=chat.agent_id,
        conversation=chat.conversation,
        origin="",
        at=at,
        entropy=entropy,
        channel=chat.channel,
    )
    return {"buttons": shown}
