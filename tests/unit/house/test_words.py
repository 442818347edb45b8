"""Identifiers use the words of ``docs/glossary.md``, not those of ``docs/renamed_words.md``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT, modules, nodes_of, shown

WORDS = {
    *("berth", "berths", "book", "carried", "desk", "door", "doors", "figures", "ground", "heard"),
    *("held", "kept", "leave", "letter", "letters", "place", "places", "poison", "post"),
    *("standing", "strays", "surroundings", "told", "trouble"),
}
TYPE_WORDS = WORDS | {
    *("bench", "eyes", "found", "means", "said", "taken", "telling", "upcoming", "wanted"),
}
"""No module and no class is named by these."""
PHRASES = ("stand_in", "let_go")
ALLOWED: dict[str, str] = {
    "agentsup/api/http/route.py:post": "the HTTP method",
    "agentsup/api/routes/cost.py:held": "a member of /cost",
    "agentsup/api/routes/mcp.py:_post": "the HTTP method",
    "agentsup/api/routes/pairing.py:_post": "the HTTP method",
    "agentsup/api/routes/quarantine.py:poison": "a member of /poison",
    "agentsup/api/routes/setup.py:_post": "the HTTP method",
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


ALLOWED_TYPES: dict[str, str] = {
    "agentsup/api/routes/setup.py:WantedBotBody": "a component of /openapi.json",
    "agentsup/api/routes/setup.py:WantedModelBody": "a component of /openapi.json",
    "agentsup/api/routes/setup.py:WantedProgramBody": "a component of /openapi.json",
    "agentsup/engines/failures.py:ModelNotFound": "HTTP's not found",
    "agentsup/model/errors.py:NotFound": "HTTP's not found",
}
"""Modules and classes that keep such a word, with the reason."""


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


def _types(path: Path) -> Iterator[str]:
    """The module and its classes whose name has such a word."""
    if not TYPE_WORDS.isdisjoint(re.split(r"[_/.]", shown(path))):
        yield shown(path)
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef):
            words = re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", node.name)
            if not TYPE_WORDS.isdisjoint(word.lower() for word in words):
                yield f"{shown(path)}:{node.name}"


def test_no_module_and_no_class_is_such_a_word() -> None:
    found = {name for path in modules() for name in _types(path)}
    assert found - ALLOWED_TYPES.keys() == set(), "name these with the words of docs/glossary.md"
    here = {name for name in ALLOWED_TYPES if (ROOT / name.split(":")[0]).exists()}
    assert here - found == set(), "these are named otherwise now: shorten ALLOWED_TYPES"


def test_no_name_is_a_word_that_is_not_used_any_more() -> None:
    found = {
        f"{shown(path)}:{name}"
        for path in modules()
        for name in _bound(path)
        if _is_private_word(name)
    }
    assert found - ALLOWED.keys() == set(), "name these with the words of docs/glossary.md"
    assert ALLOWED.keys() - found == set(), "these are named otherwise now: shorten ALLOWED"
