"""Roles: files read and refused by line, ceilings, who answers for which tool, and routing."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.roles.parse import parse_role
from agentsup.agents.roles.registry import read_roles, shipped
from agentsup.agents.roles.role import ESSENTIAL, Role, RoleStatus
from agentsup.agents.roles.routing import partition, route
from agentsup.model.errors import ConfigErrors
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.tool import Tool, ToolContext

WHOLE = """---
name: reviewer
description: Reads changes
status: active
prefixes: ["review_*"]
keywords: [review, "look at"]
capabilities: [code]
accepts: a change
returns: remarks
cannot_do: ["write code"]
example_requests: ["review this change"]
disambiguation:
  - any: [review]
    also: [code]
    unless: [film]
    points: 7
always_include: true
session_isolation: true
max_tools: ["fs_read**", "mcp:github/*"]
priority: 3
---

# You review

Be kind.
"""


async def _no(context: ToolContext, args: dict[str, object]) -> str:
    return ""


def tool(name: str) -> Tool:
    return Tool(name, "", {"type": "object"}, _no)


def put(root: Path, name: str, text: str) -> Path:
    path = root / name / "AGENT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def simple(name: str, more: str = "") -> str:
    return f"---\nname: {name}\n{more}---\nBe {name}.\n"


def test_every_field_of_a_file_is_read() -> None:
    role = parse_role(WHOLE, "x")
    assert (role.name, role.description, role.status) == ("reviewer", "Reads changes", "active")
    assert (role.keywords, role.capabilities) == (("review", "look at"), ("code",))
    assert (role.accepts, role.returns, role.cannot_do) == ("a change", "remarks", ("write code",))
    assert role.example_requests == ("review this change",)
    (rule,) = role.disambiguation
    assert (rule.any, rule.also, rule.unless, rule.points) == (("review",), ("code",), ("film",), 7)
    assert (role.always_include, role.session_isolation, role.priority) == (True, True, 3)
    assert role.ceiling == ("fs_read*", "mcp:github/*")
    assert role.instruction == "# You review\n\nBe kind."


@pytest.mark.parametrize(
    "text, line, part",
    [
        ("name: x\n", 1, "front matter is missing"),
        ("", 1, "front matter is missing"),
        ("---\nname: x\n", 1, "does not end"),
        ("---\ndescription: x\n---\n", 2, "'name' is missing"),
        ("---\nname: x\nkeyword: [a]\n---\n", 3, "unknown key 'keyword'"),
        ("---\nname: x\nkeywords: a\n---\n", 3, "expected a list"),
        ("---\nname: x\n\nkeywords:\n  - a\n  - 7\n---\n", 6, "expected a text"),
        ("---\nname: x\nstatus: on\n---\n", 3, "is not one of active, disabled, draft"),
        ("---\nname: x\nalways_include: maybe\n---\n", 3, "expected true or false"),
        ("---\nname: x\nname: y\n---\n", 3, "here twice"),
        ("---\nname: x\nkeywords: [a\n---\n", 3, "not YAML"),
        ("---\nname: ../x\n---\n", 2, "may have letters"),
        ("---\nname: none\n---\n", 2, "reserved"),
        ("---\nname: x\nprefixes: ['*']\n---\n", 3, "every tool"),
        ("---\nname: x\nprefixes: &a [*a]\n---\n", None, ""),
        ("---\n- x\n---\n", 2, "must be keys"),
        ("---\nname: x\nkeywords: !!python/object:os.system []\n---\n", None, "not YAML"),
    ],
)
def test_a_wrong_file_is_told_by_path_and_line(text: str, line: int | None, part: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_role(text, "roles/x/AGENT.md")
    first = caught.value.findings[0]
    assert first.path == "roles/x/AGENT.md"
    assert part in str(first)
    assert line is None or first.line == line


def test_the_shipped_roles_are_whole() -> None:
    roles = shipped()
    assert tuple(roles) == BUILTIN_ROLES
    for name, role in roles.items():
        assert role.name == name
        assert role.status is RoleStatus.ACTIVE
        assert role.instruction
        assert role.description
        assert role.session_isolation is (name not in ("planner", "chronicler"))
        for prefix in role.prefixes:
            if name != "navigator":
                assert prefix + "*" in role.ceiling


def test_a_shipped_role_is_seen_only_where_its_tools_are(tmp_path: Path) -> None:
    book = read_roles(tmp_path)
    assert [r.name for r in book.served([tool("ask_agent")])] == ["planner"]
    names = {r.name for r in book.served([tool("fs_read"), tool("mcp:house/cron_add")])}
    assert names == {"operator", "automator", "planner"}


def test_a_broken_file_leaves_the_others_and_keeps_what_was_good(tmp_path: Path) -> None:
    put(tmp_path, "good", simple("good"))
    bad = put(tmp_path, "bad", simple("bad", "max_tools: [fs_read]\n"))
    (tmp_path / "empty").mkdir()
    first = read_roles(tmp_path)
    assert first.findings == ()
    bad.write_text("---\nname: bad\nwhat: 1\n---\n", encoding="utf-8")
    again = read_roles(tmp_path, first)
    (finding,) = again.findings
    assert (finding.path, finding.line) == (str(bad), 3)
    assert again.broken == {"bad"}
    assert {r.name for r in again.all()} == {*BUILTIN_ROLES, "good", "bad"}
    kept = again.find("BAD")
    assert kept is not None
    assert kept.ceiling == ("fs_read",)
    assert read_roles(tmp_path).find("bad") is None
    bad.unlink()
    assert read_roles(tmp_path, again).find("bad") is None


def test_a_shipped_name_cannot_be_taken_over(tmp_path: Path) -> None:
    put(tmp_path, "operator", simple("operator", "max_tools: ['*']\n"))
    put(tmp_path, "other", simple("Vault"))
    put(tmp_path, "moved", simple("elsewhere"))
    book = read_roles(tmp_path)
    told = [str(each) for each in book.findings]
    assert ["built in" in each for each in told] == [False, True, True]
    assert "directory 'moved'" in told[0]
    operator = book.find("operator")
    assert operator is not None
    assert operator.source == "builtin"
    assert [r.name for r in book.all()] == list(BUILTIN_ROLES)


def test_a_file_that_is_no_text_is_a_finding(tmp_path: Path) -> None:
    put(tmp_path, "x", "").write_bytes(b"\xff\xfe---")
    (tmp_path / "y" / "AGENT.md").mkdir(parents=True)
    (tmp_path / "file").write_text("no directory", encoding="utf-8")
    told = [str(each) for each in read_roles(tmp_path).findings]
    assert len(told) == 2
    assert "not UTF-8" in told[0]
    assert "can't be read" in told[1]


# -- ceilings and tools ----------------------------------------------------------------------------

WORD = st.text("abc_", min_size=1, max_size=6)
NAMES = st.lists(st.one_of(WORD, WORD.map(lambda x: f"mcp:s/{x}")), max_size=8)
ROLES = st.lists(
    st.builds(
        Role,
        name=WORD,
        instruction=st.just(""),
        prefixes=st.lists(WORD, max_size=3).map(tuple),
        keywords=st.lists(WORD, max_size=3).map(tuple),
        capabilities=st.lists(WORD, max_size=2).map(tuple),
        max_tools=st.one_of(st.none(), st.lists(WORD.map(lambda x: x + "**")).map(tuple)),
        priority=st.integers(0, 3),
    ),
    max_size=5,
    unique_by=lambda role: role.name,
)


@given(prefix=WORD, stars=st.text("*", max_size=3), name=WORD)
def test_a_prefix_with_or_without_stars_is_the_same(prefix: str, stars: str, name: str) -> None:
    role = Role("x", "", prefixes=(prefix + stars,))
    assert role.allows(name) is name.startswith(prefix)
    capped = Role("x", "", prefixes=(prefix,), max_tools=(prefix + "*" + stars,))
    assert capped.allows(name) is name.startswith(prefix)


@given(roles=ROLES, tools=NAMES, chance=st.randoms(use_true_random=False))
def test_the_partition_is_the_same_in_every_order(
    roles: list[Role], tools: list[str], chance: object
) -> None:
    first = partition(roles, tools)
    mixed, others = list(roles), list(tools) * 2
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    chance.shuffle(others)  # type: ignore[attr-defined]
    assert partition(mixed, others) == first
    assert [each.tool for each in first] == sorted(set(tools))
    by_name = {role.name: role for role in roles}
    for each in first:
        if each.role:
            assert any(fnmatchcase(each.tool, p) for p in by_name[each.role].ceiling)


def test_tools_go_by_prefix_then_keyword_then_capability_and_shipped_roles_first() -> None:
    mine = Role("aaa", "", prefixes=("exec",), keywords=("tea",), max_tools=("*",), priority=0)
    late = Role("bbb", "", prefixes=("brew",), capabilities=("pot",), max_tools=("*",))
    roles = (late, mine, *shipped().values())
    found = {
        each.tool: (each.role, each.why)
        for each in partition(
            roles, ["exec", "make_tea", "a_pot", "brew_tea", "x", "mcp:s/cron_add", *ESSENTIAL]
        )
    }
    assert found == {
        "exec": ("operator", "prefix exec"),
        "make_tea": ("aaa", "keyword tea"),
        "a_pot": ("bbb", "capability pot"),
        "brew_tea": ("bbb", "prefix brew"),
        "x": ("", ""),
        "mcp:s/cron_add": ("automator", "prefix cron_"),
    }


# -- routing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, role",
    [
        ("search for heat pumps", "librarian"),
        ("search https://example.org for heat pumps", "navigator"),
        ("find the file notes.txt", "operator"),
        ("find something on this topic", "librarian"),
        ("save this knowledge", "librarian"),
        ("save this to a file", "operator"),
        ("run the backup", "operator"),
        ("run the backup every night", "automator"),
        ("run it daily", "automator"),
        ("create a skill", "librarian"),
        ("list the skills", "librarian"),
        ("execute the skill tidy", "operator"),
        ("recall our conversation of Monday", "chronicler"),
        ("recall the fact about Zurich", "librarian"),
        ("break down the move into steps", "planner"),
        ("use fs_write for it", "operator"),
        ("good morning, how are you", ""),
        ("what is two times two?", ""),
    ],
)
def test_texts_go_where_they_belong(text: str, role: str) -> None:
    found = route(text, shipped().values(), ["fs_write", "web_fetch", "cron_add"])
    assert found.best == role, found.scores
    assert (found.complexity == "none") is (role == "")
    for score in found.scores:
        assert score.points == sum(sign.points for sign in score.signs)


def test_fields_make_a_request_complex() -> None:
    text = "encrypt the password, schedule it every day with cron, and remember the history"
    assert route(text, shipped().values(), []).complexity == "complex"


@given(text=st.text(max_size=200), chance=st.randoms(use_true_random=False))
def test_a_route_does_not_depend_on_the_order_of_roles(text: str, chance: object) -> None:
    roles = list(shipped().values())
    first = route(text, roles, ["fs_read"])
    chance.shuffle(roles)  # type: ignore[attr-defined]
    assert route(text, roles, ["fs_read"]) == first
