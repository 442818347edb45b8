"""What a turn may use and is told because of its role."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.roles import rows
from agentsup.agents.roles.book import RoleBook, RoleShelf
from agentsup.agents.roles.parse import unknown_role
from agentsup.agents.roles.role import ESSENTIAL, Role, Status
from agentsup.model.agent import AgentSpec
from agentsup.model.hook import Reach
from agentsup.store.database import Database

_THINK = "think"
"""A coding CLI's lists of what it wants to do; they touch nothing."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one turn. A call must be within ``tools`` (the agent's own patterns; None: what
    is offered to everyone) and within ``ceiling`` (its role's; None: it has none)."""

    tools: tuple[str, ...] | None = None
    role: str = ""
    ceiling: tuple[str, ...] | None = None
    instruction: str = ""
    callers: tuple[Reach, ...] = ()
    """Those for whom it is done, who must be allowed a call as well."""

    def reach(self, name: str) -> Reach:
        """The same as a bound for others."""
        return Reach(name, self.tools, self.role, self.ceiling)


def bounds_of(spec: AgentSpec, name: str, book: RoleBook) -> Bounds:
    """The bounds of an agent in the role called ``name`` (empty: in none).

    Where that role can't be used the agent has no tools: a misspelt name must not widen anything.
    """
    if not name:
        return Bounds(spec.tools)
    role, problem = usable(name, book)
    if role is None:
        told = f"You have no tools now: {problem}. Say so where a request needs one."
        return Bounds((), name, (), told)
    head = f"Your role is {role.name}."
    if role.description:
        head += f" {role.description}"
    parts = [head, role.instruction]
    if role.accepts:
        parts.append(f"It takes: {role.accepts}")
    if role.returns:
        parts.append(f"It returns: {role.returns}")
    if role.cannot_do:
        parts.append("It does not: " + "; ".join(role.cannot_do))
    ceiling = (*role.ceiling, *ESSENTIAL, _THINK)
    return Bounds(spec.tools, role.name, ceiling, "\n".join(filter(None, parts)))


def usable(name: str, book: RoleBook) -> tuple[Role | None, str]:
    """The role of that name if an agent can be in it, else why not."""
    role = book.find(name)
    if role is None:
        if name.casefold() in book.broken:
            return None, f"the file of the role {name!r} is broken"
        active = (each.name for each in book.all() if each.status is Status.ACTIVE)
        return None, unknown_role(name, tuple(active))
    if role.status is not Status.ACTIVE:
        return (
            None,
            f"the role {role.name!r} is {'a draft' if role.status is Status.DRAFT else 'disabled'}",
        )
    return role, ""


class Roles:
    """Finds the bounds of turns."""

    def __init__(self, shelf: RoleShelf, database: Database) -> None:
        self.shelf = shelf
        self._database = database

    async def bounds(self, spec: AgentSpec, session_id: str) -> Bounds:
        """The bounds of a turn of that agent in that session, from the files as they are now."""
        own = await self._database.read(lambda reader: rows.role_of(reader, session_id))
        return await self.in_role(spec, (spec.role or "") if own is None else own)

    def for_others(self, bounds: Bounds) -> tuple[tuple[str, str], ...]:
        """The roles, with what they are for, in which somebody with these bounds may have work done
        as far as roles go: whoever is in one, in that one alone."""
        book = self.shelf.known
        if book is None:
            return ()
        served = book.served(self.shelf.tools())
        mine = bounds.role.casefold()
        return tuple(
            (role.name, role.description) for role in served if mine in ("", role.name.casefold())
        )

    async def in_role(self, spec: AgentSpec, name: str) -> Bounds:
        """The bounds of that agent in the role called ``name`` (empty: in none)."""
        return bounds_of(spec, name, await self.shelf.book())
