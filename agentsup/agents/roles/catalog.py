"""Queries of people about roles: which exist, and which one fits a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentsup.agents.roles.limits import usable
from agentsup.agents.roles.registry import LiveRoleRegistry
from agentsup.agents.roles.role import ESSENTIAL
from agentsup.agents.roles.routing import RoleMatch, partition, route


@dataclass(frozen=True, slots=True)
class RoleCatalog:
    """Describes roles from the current files and the live registry of tools."""

    live_roles: LiveRoleRegistry

    async def document(self) -> dict[str, Any]:
        """Every role with the tools assigned to it, and the findings about the files."""
        registry = await self.live_roles.refresh()
        tools = tuple(self.live_roles.tools())
        served = {role.name for role in registry.served(tools)}
        given = partition(
            (r for r in registry.all() if r.name in served), (tool.name for tool in tools)
        )
        return {
            "roles": [
                {
                    **role.to_json(),
                    "served": role.name in served,
                    "tools": [each.tool for each in given if each.role == role.name],
                }
                for role in registry.all()
            ],
            "essential": [tool.name for tool in tools if tool.name in ESSENTIAL],
            "unmatched": [each.tool for each in given if not each.role],
            "findings": [str(finding) for finding in registry.findings],
        }

    async def problem_of(self, name: str) -> str:
        """Why no agent can be in the role called ``name``; empty if one can."""
        return usable(name, await self.live_roles.refresh())[1]

    async def route(self, text: str) -> RoleMatch:
        """The roles that fit the text, with reasons. Only roles that have tools here are ranked."""
        registry = await self.live_roles.registry()
        tools = tuple(self.live_roles.tools())
        return route(text, registry.served(tools), (tool.name for tool in tools))
