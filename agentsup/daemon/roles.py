"""The roles of this daemon: kept as the files are, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.roles.book import RoleShelf
from agentsup.agents.roles.bounds import Roles, usable
from agentsup.agents.roles.desk import RoleDesk
from agentsup.agents.roles.watching import watch_roles
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.channels import Channels
from agentsup.daemon.fleet import Fleet, Unit
from agentsup.daemon.ground import Ground
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.services import FOR_EVER, SHORT
from agentsup.kit.tasks import TaskOwner
from agentsup.model.tool import Tool
from agentsup.supervision.spec import ChildContext, ChildSpec, Restart


class DaemonRoles:
    """The shelf, and what the daemon's parts take from it."""

    def __init__(
        self,
        ground: Ground,
        current: Callable[[], ConfigSnapshot],
        tools: Callable[[], Iterable[Tool]],
    ) -> None:
        """``tools`` gives the live registry."""
        self.shelf = RoleShelf(ground.home.roles, tools, ground.config_files)
        self.turns = Roles(self.shelf, ground.database)
        self.desk = RoleDesk(self.shelf)
        self._current = current
        self._clock = ground.clock
        ground.roster.watch_roles(self.known_problem)

    def tell(self, fleet: Fleet, reconciler: Reconciler, tasks: TaskOwner) -> None:
        """From now on a change of the roles is seen: agents may have lost theirs, and an edit that
        names a new one may be right now."""

        def changed() -> None:
            fleet.look_again()
            if reconciler.config_error:
                tasks.spawn(reconciler.reload(), name="reload:roles")

        self.shelf.on_change = changed

    def known_problem(self, role: str) -> str:
        """Why nobody can be in that role; empty if one can, or before the first look."""
        book = self.shelf.known
        return usable(role, book)[1] if book is not None else ""

    def trouble(self, unit: Unit | None, channels: Channels) -> str | None:
        """What an agent works on without: a bot that is not connected, a role that there is not."""
        if unit is None:
            return None
        problem = self.known_problem(unit.spec.role) if unit.spec.role else ""
        role = f"it has no tools: {problem}" if problem else None
        return "; ".join(filter(None, (channels.trouble(unit.agent_id), role))) or None

    def spec(self) -> ChildSpec:
        """The child that sees edits of roles."""

        async def life(ctx: ChildContext) -> None:
            ctx.ready()
            await watch_roles(self.shelf, stop=ctx.draining, clock=self._clock)

        return ChildSpec("roles", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)

    async def problem(self, name: str) -> str:
        """Why an agent can't be in the role of that name; empty where it can."""
        return usable(name, await self.shelf.book())[1]

    def warnings(self, knowledge: SharedKnowledge, channels: Channels) -> tuple[str, ...]:
        """What there is to tell of the daemon: shared memory, channels, broken roles, and the
        agents that have no tools because of one."""
        told = [*knowledge.problems, *channels.warnings()]
        book = self.shelf.known
        if book is None:
            return tuple(told)
        told += map(str, book.findings)
        specs = self._current().specs.values()
        problems = [(spec.name, self.known_problem(spec.role)) for spec in specs if spec.role]
        told += [f"{name} has no tools: {problem}" for name, problem in problems if problem]
        return tuple(told)
