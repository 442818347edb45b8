"""Which permission requests of an agent are about our own tools: the title's exact form, no more."""

from __future__ import annotations

import pytest

from agentsup.engines.acp.mapping import our_call
from agentsup.engines.programs.presets import PRESETS
from agentsup.model.engine import PermissionRequest

GEMINI, CLAUDE = PRESETS["gemini"].our_title, PRESETS["claude-acp"].our_title


@pytest.mark.parametrize(
    "title, form",
    [("ask_agent (agentsup MCP Server)", GEMINI), ("mcp__agentsup__ask_agent", CLAUDE)],
)
def test_a_call_of_ours_gets_its_name(title: str, form: str) -> None:
    request = PermissionRequest("1", "other", title=title)
    assert our_call(request, form).tool == "mcp__agentsup__ask_agent"


@pytest.mark.parametrize(
    "kind, title, form",
    [
        ("execute", "mcp__agentsup__ask_agent", CLAUDE),
        ("other", "rm -rf mcp__agentsup__ask_agent", CLAUDE),
        ("other", "mcp__agentsup__", CLAUDE),
        ("other", "ask_agent (other MCP Server)", GEMINI),
        ("other", "mcp__agentsup__ask_agent", GEMINI),
        ("other", "mcp__agentsup__ask_agent", ""),
        ("other", "", CLAUDE),
    ],
)
def test_anything_else_is_left_as_it_is(kind: str, title: str, form: str) -> None:
    request = PermissionRequest("1", kind, title=title)
    assert our_call(request, form) is request
