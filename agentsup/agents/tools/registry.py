"""The registry: tools by name. Filled once by the composition root."""

from __future__ import annotations

from collections.abc import Iterable

from agentsup.model.tool import Tool


class Tools:
    """Implements ``model.tool.ToolRegistry``."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ``ValueError`` for two tools of one name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are called {tool.name}")
            self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    async def coming(self, name: str) -> Tool | None:
        return self.get(name)

    def all(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())
