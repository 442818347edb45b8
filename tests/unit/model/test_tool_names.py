"""Names of tools as models take them: plain, short, told apart, and always the same."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from agentsup.model.tool_names import MAX_CHARS, by_wire_name, wire_name

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SERVERS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}", fullmatch=True)
TOOLS = st.from_regex(r"[A-Za-z0-9_./-]{1,128}", fullmatch=True)
NAMES = st.one_of(st.builds("mcp:{}/{}".format, SERVERS, TOOLS), TOOLS, st.text(min_size=1))


@given(NAMES)
def test_every_name_has_a_form_that_models_and_coding_agents_take(name: str) -> None:
    form = wire_name(name)
    assert TAKEN.fullmatch(f"mcp__agentsup__{form}")
    assert len(form) <= MAX_CHARS


@given(st.lists(NAMES, unique=True, max_size=30))
def test_no_two_names_share_a_form_and_each_is_found_again(names: list[str]) -> None:
    found = by_wire_name(names)
    assert sorted(found.values()) == sorted(names)
    assert all(found[wire_name(name)] == name for name in names)


def test_forms_that_look_alike_are_told_apart() -> None:
    digested = wire_name("mcp:a/b.c")
    alike = [
        *("mcp:a/b", "mcp:a/_b", "mcp:a/__b", "mcp:a/b__c", "mcp:a_b/c", "mcp:a/b_c", "mcp__a__b"),
        *("mcp:a/b.c", "mcp:a/b/c", "a.b", "a_b", digested, "mcp:a__b/c", "mcp:a_/b"),
        f"mcp:a/{digested.removeprefix('mcp__a__')}",
    ]
    assert len(by_wire_name(alike)) == len(alike)


def test_what_fits_can_be_read() -> None:
    assert wire_name("fs_read") == "fs_read"
    assert wire_name("mcp:github/create_issue") == "mcp__github__create_issue"
    assert wire_name("mcp:files/read.text").startswith("mcp__files__read_text_")
