"""Identifiers use the words of ``docs/glossary.md``, not those that it lists as not used any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import modules, nodes_of, shown

WORDS = {
    *("berth", "berths", "book", "carried", "desk", "door", "doors", "figures", "ground", "heard"),
    *("held", "kept", "leave", "letter", "letters", "place", "places", "poison", "post"),
    *("standing", "strays", "surroundings", "told", "trouble"),
}
PHRASES = ("stand_in", "let_go")
ALLOWED: dict[str, str] = {
    "agentsup/api/http/route.py:post": "the HTTP method",
    "agentsup/api/routes/cost.py:held": "a member of /cost",
    "agentsup/api/routes/mcp.py:_post": "the HTTP method",
    "agentsup/api/routes/quarantine.py:poison": "a member of /poison",
    "agentsup/api/routes/tasks.py:_post": "the HTTP method",
    "agentsup/channels/matrix/client.py:leave": "Matrix's word for leaving a room",
    "agentsup/cli/connect/client.py:post": "the HTTP method",
    "agentsup/config/settings_file.py:held_processes": "a config key",
    "agentsup/config/settings_file.py:restart_in_place": "a config key",
    "agentsup/daemon/main.py:_restarts_in_place": "as the config key",
    "agentsup/daemon/main.py:in_place": "as the config key",
    "agentsup/engines/scripted/script.py:trouble": "a key of scripts",
    "agentsup/fakes/telegram/methods/chats.py:leave_chat": "a method of the Bot API",
    "agentsup/mailbox/lifecycle/ending.py:dead_letter_tx": "the standard term for a failed message",
    "agentsup/observe/traces/otel.py:POST_TIMEOUT_S": "the HTTP method",
}
"""What is called so by others, with the reason. Keep it short."""


def _bound(path: Path) -> Iterator[str]:
    """The names that a module gives: to what it defines, to arguments, variables and fields."""
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name


def _is_private_word(name: str) -> bool:
    if name.startswith("__"):
        return False  # such as ``__post_init__``
    parts = name.strip("_").lower().split("_")
    return not WORDS.isdisjoint(parts) or any(
        f"_{each}_" in f"_{name.lower()}_" for each in PHRASES
    )


def test_no_name_is_a_word_that_is_not_used_any_more() -> None:
    found = {
        f"{shown(path)}:{name}"
        for path in modules()
        for name in _bound(path)
        if _is_private_word(name)
    }
    assert found - ALLOWED.keys() == set(), "name these with the words of docs/glossary.md"
    assert ALLOWED.keys() - found == set(), "these are named otherwise now: shorten ALLOWED"
