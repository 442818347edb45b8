"""What is taken of what a server offers: bounded, cleaned, and classed by the operator's word."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.agents.mcp.offered import (
    MAX_ANSWER_CHARS,
    MAX_DESCRIPTION_CHARS,
    MAX_TOOLS,
    Hints,
    ListedTool,
    ToolListing,
    classed,
    joined,
    take,
    version_of,
)
from agentsup.config import McpServer
from agentsup.model.tool import Effect, Safety

READS, HARMLESS = Hints(read_only=True), Hints(destructive=False)


@pytest.mark.parametrize(
    "declared, hints, expected",
    [
        ({}, Hints(), (Effect.BLIND, Safety.DANGEROUS)),
        ({}, READS, (Effect.BLIND, Safety.DANGEROUS)),
        ({"trust_hints": True}, READS, (Effect.READ, Safety.SAFE)),
        ({"trust_hints": True}, HARMLESS, (Effect.BLIND, Safety.MODERATE)),
        ({"trust_hints": True}, Hints(), (Effect.BLIND, Safety.DANGEROUS)),
        ({"trust_hints": True}, Hints(idempotent=True), (Effect.IDEMPOTENT, Safety.DANGEROUS)),
        ({"safety": {"get_*": "safe"}}, Hints(), (Effect.BLIND, Safety.SAFE)),
        ({"safety": {"get_*": "safe"}}, READS, (Effect.READ, Safety.SAFE)),
        ({"safety": {"get_*": "moderate"}}, READS, (Effect.BLIND, Safety.MODERATE)),
        ({"safety": {"put_*": "safe"}}, READS, (Effect.BLIND, Safety.DANGEROUS)),
        (
            {"trust_hints": True, "safety": {"*": "dangerous"}},
            READS,
            (Effect.READ, Safety.DANGEROUS),
        ),
    ],
)
def test_a_servers_word_counts_where_an_operator_says_so(
    declared: dict[str, Any], hints: Hints, expected: tuple[Effect, Safety]
) -> None:
    assert classed(McpServer("git", **declared), ListedTool("get_it", hints=hints)) == expected


def test_what_is_out_of_bounds_is_left_out_and_told() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"items": deep}
    listing = ToolListing(
        (
            ListedTool("good", "text"),
            ListedTool("good", "again"),
            ListedTool("bad name"),
            ListedTool("x" * 200),
            ListedTool("array", schema={"type": "array"}),
            ListedTool("huge", schema={"type": "object", "properties": {"x": "y" * 40_000}}),
            ListedTool("deep", schema={"properties": deep}),
        ),
        is_cut=True,
    )
    taken = take(McpServer("git"), listing)
    assert [tool.name for tool in taken.tools] == ["good"]
    assert taken.tools[0].description == "text"
    assert len(taken.left_out) == 7
    assert any("listed twice" in each for each in taken.left_out)


def test_no_more_tools_than_a_model_can_choose_from_and_those_of_the_operators_choice() -> None:
    many = ToolListing(tuple(ListedTool(f"tool_{n:03}") for n in range(300)))
    taken = take(McpServer("git"), many)
    assert len(taken.tools) == MAX_TOOLS
    assert len(taken.left_out) == 1
    chosen = take(McpServer("git", tools=("tool_29*", "tool_001")), many)
    assert len(chosen.tools) == 11
    assert chosen.left_out == ()


def test_what_nobody_sees_does_not_reach_the_model() -> None:
    hidden = "Reads.\x1b[8m\u202e\u200b\U000e0049\U000e0067 It does."
    (tool,) = take(McpServer("git"), ToolListing((ListedTool("a", hidden + "x" * 9_000),))).tools
    assert tool.description.startswith("Reads.[8m It does.xxx")
    assert len(tool.description) == MAX_DESCRIPTION_CHARS
    assert tool.schema == {"type": "object", "properties": {}}


def test_an_answer_is_bounded_and_never_empty() -> None:
    assert joined(["", ""]) == "(the tool returned nothing)"
    assert joined(["a", "", "b"]) == "a\nb"
    long = joined(["x" * (MAX_ANSWER_CHARS + 5)])
    assert long.endswith("[5 more characters were dropped]")


@pytest.mark.parametrize(
    "server, tool, is_other",
    [
        (McpServer("git", command="git-mcp"), ListedTool("push", "pushes"), False),
        (
            McpServer("git", command="git-mcp", safety={"*": "safe"}),
            ListedTool("push", "pushes"),
            False,
        ),
        (McpServer("git", command="evil"), ListedTool("push", "pushes"), True),
        (McpServer("git", command="git-mcp", args=("-x",)), ListedTool("push", "pushes"), True),
        (McpServer("git", url="https://git.example/mcp"), ListedTool("push", "pushes"), True),
        (McpServer("git", command="git-mcp"), ListedTool("push", "pushes all"), True),
        (
            McpServer("git", command="git-mcp"),
            ListedTool("push", "pushes", {"properties": {"to": {}}}),
            True,
        ),
        (McpServer("git", command="git-mcp"), ListedTool("push", "pushes", hints=READS), True),
    ],
)
def test_the_form_of_a_tool_is_where_it_comes_from_and_what_is_said_of_it(
    server: McpServer, tool: ListedTool, is_other: bool
) -> None:
    known = version_of(McpServer("git", command="git-mcp"), ListedTool("push", "pushes"))
    assert (version_of(server, tool) != known) is is_other
