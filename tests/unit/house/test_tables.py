"""Each table has one owner, and no SQL looks for words in a text.

``agentsup/store/owners.toml`` lists the owners, and the files whose SQL names tables of others. Who
adds a table adds its owner; who moves or mends such a file changes its line.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, modules, nodes_of

LISTED = tomllib.loads((PACKAGE / "store/owners.toml").read_text(encoding="utf-8"))
OWNERS = {table: owner for owner, tables in LISTED["owners"].items() for table in tables}
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|JOIN|INTO)\b")
NAMED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE(?: OR [A-Z]+)?)\s+([a-z_]+)")
WRITTEN = re.compile(r"\b(?:INTO|UPDATE(?: OR [A-Z]+)?|DELETE FROM)\s+([a-z_]+)")
# What people or programs said is data, never a state. Columns have states (`*_reason`, `decision`).
SENTENCE = re.compile(
    r"\b(?:LIKE|GLOB)\b|\b(?:instr|substr)\("
    r"|\b(?:WHERE|AND|OR|ON|WHEN|NOT)\s+(?:\w+\.)?(?:error|error_text|detail|text|why)\s*(?:=|<>)\s*'"
)
# Files whose SQL looks into texts all the same, with the reason.
TEXTS_LOOKED_INTO: dict[str, str] = {
    "agents/pipeline/results.py": "a page of a long result is cut out; nothing is compared",
    "channels/core/buttons/questions.py": "a room's threads begin with its id, until a column has the room",
    "mailbox/delivery/notices.py": "keys of chats begin with chat:, until pointers have columns",
    "mailbox/delivery/shown_parts.py": "a room's threads begin with its id, until a column has the room",
    "mailbox/messages/sessions.py": "a room's threads begin with its key, until pointers have columns",
    "mailbox/questions/asking.py": "a room's threads begin with its id, until a column has the room",
    "mailbox/queue/views.py": "a page of a long answer is cut out; nothing is compared",
    "mailbox/queue/background.py": "a conversation in an address, before the address is read",
    "tasks/rows.py": "a task is found by the end of its id",
}


def constants(path: Path) -> Iterator[str]:
    """The texts of a module that look like SQL, docstrings aside."""
    apart: set[int] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Expr):
            apart.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            apart.update(id(value) for value in node.values)
    for node in nodes_of(path):
        if id(node) in apart:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            text = "".join(map(str, parts))
        else:
            continue
        if SQL.search(text):
            yield text


@cache
def statements() -> dict[str, list[str]]:
    """File to its SQL."""
    return {
        str(path.relative_to(PACKAGE)): found
        for path in modules()
        if (found := list(constants(path)))
    }


def tables() -> set[str]:
    """All tables of the schema."""
    found: set[str] = set()
    for path in sorted((PACKAGE / "store/migrations").glob("*.sql")):
        sql = path.read_text(encoding="utf-8")
        steps = re.finditer(
            r"CREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?(\w+)|DROP TABLE (?:IF EXISTS )?(\w+)"
            r"|ALTER TABLE (\w+) RENAME TO (\w+)",
            sql,
        )
        for made, dropped, old, new in (step.groups() for step in steps):
            found -= {dropped, old}
            found |= {made or new or ""}
    return found - {""}


def foreign(pattern: re.Pattern[str]) -> dict[str, set[str]]:
    """File to the tables of other packages that its SQL names."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, texts in statements().items():
        for table in (name for text in texts for name in pattern.findall(text)):
            if OWNERS.get(table, file.split("/")[0]) != file.split("/")[0]:
                found[file].add(table)
    return dict(found)


def test_each_table_has_one_owner() -> None:
    assert set(OWNERS) == tables()
    assert sum(map(len, LISTED["owners"].values())) == len(OWNERS)


def listed(*sections: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for section in sections:
        for file, names in LISTED[section].items():
            found[file].update(names)
    return dict(found)


def test_sql_names_tables_of_its_own_package() -> None:
    assert foreign(NAMED) == listed("read_models")


def test_sql_writes_tables_of_its_own_package() -> None:
    assert foreign(WRITTEN) == listed("foreign_writes")


def test_sql_looks_for_no_words_in_texts() -> None:
    found = {file for file, texts in statements().items() if any(map(SENTENCE.search, texts))}
    assert found == set(TEXTS_LOOKED_INTO)
    assert all(TEXTS_LOOKED_INTO.values())


@pytest.mark.parametrize(
    "sql, found",
    [
        ("SELECT 1 FROM outbox WHERE detail = 'the bot is away'", True),
        ("SELECT 1 FROM updates WHERE error <> ''", True),
        ("SELECT 1 FROM pointers WHERE key GLOB 'chat:*'", True),
        ("SELECT 1 FROM spans WHERE code LIKE '%time%'", True),
        ("UPDATE outbox SET detail = ? WHERE state = 'pending'", False),
        ("SELECT 1 FROM questions WHERE decision = 'deny'", False),
    ],
)
def test_the_rule_knows_words_from_states(sql: str, found: bool) -> None:
    assert bool(SENTENCE.search(sql)) is found
