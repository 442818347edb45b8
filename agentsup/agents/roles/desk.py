"""What people are told about roles: which there are, and where a text belongs."""

from __future__ import annotations

from typing import Any

from agentsup.agents.roles.book import RoleShelf
from agentsup.agents.roles.bounds import usable
from agentsup.agents.roles.partition import partition
from agentsup.agents.roles.role import ESSENTIAL
from agentsup.agents.roles.routing import Route, route


class RoleDesk:
    """Answers from the files and the live registry as they are now."""

    def __init__(self, shelf: RoleShelf) -> None:
        self._shelf = shelf

    async def document(self) -> dict[str, Any]:
        """Every role with the tools it answers for, and what is wrong with the files."""
        book = await self._shelf.refresh()
        tools = tuple(self._shelf.tools())
        served = {role.name for role in book.served(tools)}
        given = partition(
            (r for r in book.all() if r.name in served), (tool.name for tool in tools)
        )
        return {
            "roles": [
                {
                    **role.to_json(),
                    "served": role.name in served,
                    "tools": [each.tool for each in given if each.role == role.name],
                }
                for role in book.all()
            ],
            "essential": [tool.name for tool in tools if tool.name in ESSENTIAL],
            "unmatched": [each.tool for each in given if not each.role],
            "findings": [str(finding) for finding in book.findings],
        }

    async def problem_of(self, name: str) -> str:
        """Why nobody can be put into the role of that name; empty if one can."""
        return usable(name, await self._shelf.refresh())[1]

    async def route(self, text: str) -> Route:
        """Which of the roles that have tools here the text is for, and why."""
        book = await self._shelf.book()
        tools = tuple(self._shelf.tools())
        return route(text, book.served(tools), (tool.name for tool in tools))

    async def route_document(self, text: str) -> dict[str, Any]:
        """The same as the API shows it."""
        return (await self.route(text)).to_json()
