"""The tools that a turn may use, and the instruction that it gets, because of its role."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.roles.registry import LiveRoleRegistry, RoleRegistry
from agentsup.agents.roles.role import ESSENTIAL, Role, RoleStatus
from agentsup.config import did_you_mean
from agentsup.model.agent import AgentSpec
from agentsup.model.hook import Reach
from agentsup.model.tool import Tool

_THINK = "think"
"""The name under which a coding CLI's own to-do lists are checked. They change nothing."""


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """The limits of one turn.

    A call must be within ``tools`` (the agent's own patterns; None: the tools that every agent is
    offered) and within ``ceiling`` (the role's patterns; None: no role).
    """

    tools: tuple[str, ...] | None = None
    role: str = ""
    ceiling: tuple[str, ...] | None = None
    instruction: str = ""
    callers: tuple[Reach, ...] = ()
    """The limits of those for whom the turn works: they must allow a call as well."""

    def reach(self, name: str) -> Reach:
        """The same limits as a ``Reach``, for turns that are done for the agent ``name``."""
        return Reach(name, self.tools, self.role, self.ceiling)


def bounds_of(spec: AgentSpec, name: str, registry: RoleRegistry) -> RoleLimits:
    """The limits of an agent in the role called ``name`` (empty: in none).

    If the role can't be used, the agent has no tools: a misspelt name must not widen anything.
    """
    if not name:
        return RoleLimits(spec.tools)
    role, problem = usable(name, registry)
    if role is None:
        note = f"You have no tools now: {problem}. Say so where a request needs one."
        return RoleLimits((), name, (), note)
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
    return RoleLimits(spec.tools, role.name, ceiling, "\n".join(filter(None, parts)))


def usable(name: str, registry: RoleRegistry) -> tuple[Role | None, str]:
    """The role called ``name``, or None and the reason why no agent can be in it."""
    role = registry.find(name)
    if role is None:
        if name.casefold() in registry.broken:
            return None, f"the file of the role {name!r} is broken"
        active = (each.name for each in registry.all() if each.status is RoleStatus.ACTIVE)
        return None, _unknown_role(name, tuple(active))
    if role.status is not RoleStatus.ACTIVE:
        status = "a draft" if role.status is RoleStatus.DRAFT else "disabled"
        return None, f"the role {role.name!r} is {status}"
    return role, ""


class Roles:
    """Finds the limits of turns."""

    def __init__(self, live_roles: LiveRoleRegistry) -> None:
        self.live_roles = live_roles
        self._served: tuple[RoleRegistry, tuple[Tool, ...], tuple[tuple[str, str], ...]] | None = (
            None
        )

    def for_others(self, bounds: RoleLimits) -> tuple[tuple[str, str], ...]:
        """The roles, as name and description, in which a turn with these limits may have work done.

        A turn in a role may use that role alone. ``can_delegate_to`` is not considered.
        """
        registry = self.live_roles.known
        if registry is None:
            return ()
        tools = tuple(self.live_roles.tools())
        known = self._served
        if known is None or known[0] is not registry or known[1] != tools:
            served = registry.served(tools)
            described = tuple((role.name, role.description) for role in served)
            known = self._served = registry, tools, described
        described, mine = known[2], bounds.role.casefold()
        return (
            tuple(each for each in described if each[0].casefold() == mine) if mine else described
        )

    async def in_role(self, spec: AgentSpec, name: str) -> RoleLimits:
        """The limits of that agent in the role called ``name`` (empty: in none)."""
        return bounds_of(spec, name, await self.live_roles.registry())


def _unknown_role(name: str, known: tuple[str, ...]) -> str:
    """The message for an unknown role, with a suggestion from ``known``."""
    hint = did_you_mean(name, known) or f"there are {', '.join(known) or 'none'}"
    return f"there is no role {name!r}; {hint}"
