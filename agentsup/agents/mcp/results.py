"""Values of the MCP library as ours: tools and results. Imported by ``wire`` only."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from agentsup.agents.mcp.listed import Hints, ListedTool, clean
from agentsup.agents.mcp.offered import joined


def listed_tool(tool: types.Tool) -> ListedTool:
    """A tool of the library as ours."""
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        dict(tool.input_schema),
        Hints()
        if hints is None
        else Hints(hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint),
    )


def text_of(result: types.CallToolResult) -> str:
    """The text of a result, with its structured content where that is not the same."""
    parts = [_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _repeats(parts, structured):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return joined(parts)


def _repeats(parts: list[str], structured: dict[str, Any]) -> bool:
    """Whether texts say what the structured content does: as the same JSON, or as the one value that
    servers put into an object for this."""
    if structured.keys() == {"result"} and any(parts):
        return True
    for part in parts:
        try:
            if json.loads(part) == structured:
                return True
        except (ValueError, RecursionError):
            continue
    return False


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type} {clean(block.mime_type)[:80]}, not shown]"
        case types.ResourceLink():
            return f"[link {clean(block.name)[:200]}: {clean(str(block.uri))[:2000]}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case _:
            return f"[{block.type}, not shown]"
