"""What agents can write has one door, ``kit/safe_files.py``: no other function opens, lists, makes,
moves or removes a file by its path, but those that are named here with the reason.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, modules, tree_of

NOT_LOOKED_AT = ("kit", "fakes")
"""The door itself and what it is made of; the kit for tests."""
OPENING = frozenset(
    [
        "chmod",
        "glob",
        "hardlink_to",
        "iterdir",
        "lchmod",
        "mkdir",
        "read_bytes",
        "read_text",
        "rename",
        "rglob",
        "rmdir",
        "symlink_to",
        "unlink",
        "write_bytes",
        "write_text",
    ]
)
OPENING_OF_OS = frozenset(
    [
        "chmod",
        "link",
        "listdir",
        "makedirs",
        "mkdir",
        "mkfifo",
        "open",
        "remove",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "scandir",
        "symlink",
        "truncate",
        "unlink",
        "walk",
    ]
)
OPENING_OF_SHUTIL = frozenset(["copy", "copy2", "copyfile", "copytree", "move", "rmtree"])
MODES = frozenset(["r", "rb", "w", "wb", "a", "ab", "x", "xb", "r+", "rb+"])
OF_FILES = frozenset(["mode", "buffering", "encoding", "errors", "newline"])
"""What only files are opened with."""
ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "as shipped": {
        "agents/roles/registry.py": ("shipped",),
        "api/web/static.py": ("page_files",),
        "catalogue/texts.py": ("load", "page_words", "_reader"),
        "cli/commands/demo.py": ("_Demo._write_home",),
        "cli/moving/products/sygen.py": ("tool_scripts",),
        "cli/service/unit.py": ("template",),
        "config/schema.py": ("<module>",),
        "store/migrate.py": ("load",),
        "tasks/occurrences.py": ("_names",),
    },
    "in the home, where only its owner writes": {
        "agents/roles/registry.py": ("_files",),
        "cli/archives/home.py": (
            "_add_store",
            "_swap",
            "_Moves.move",
            "_Moves.undo",
            "_sync",
            "remove_home",
        ),
        "cli/commands/backups.py": ("_back_up_store", "_restore_home"),
        "cli/commands/exporting.py": ("chats.read",),
        "cli/commands/import_agent.py": ("bring", "_move_in"),
        "cli/commands/upgrade_steps.py": ("install",),
        "cli/commands/model_choice.py": ("_agents_text", "read_key", "store_secret"),
        "cli/doctor/check.py": ("Examined.settings",),
        "cli/commands/home_files.py": ("create_home", "write_home"),
        "cli/moving/applying.py": ("_make_home",),
        "cli/connect/locate.py": (
            "DaemonLocation._read",
            "DaemonLocation.operator_token",
            "holder_of",
        ),
        "cli/connect/keeping.py": ("by_settings",),
        "config/home.py": ("Home.create",),
        "config/edit.py": ("_replace", "_content"),
        "config/snapshot.py": ("_roles_in",),
        "daemon/main.py": ("_Start.run",),
        "daemon/runtime/reconcile.py": ("keep_applied", "keep_secrets"),
        "daemon/runtime/recorder.py": ("LifeRecorder.announce_address",),
        "daemon/runtime/tokens.py": ("operator_token", "_renewed_token"),
    },
    "a log of the daemon": {
        "api/web/views.py": ("tail",),
        "cli/commands/background.py": ("_why_it_ended",),
        "cli/commands/log_lines.py": ("tail_log", "_growth"),
        "observe/logging.py": ("_RotatingFile._open", "_open_file"),
    },
    "the store and its copies": {
        "store/backup.py": ("backups", "copy_into", "whole_file", "sync"),
        "store/connection.py": ("connect_writer",),
        "store/identity.py": ("read_record", "write", "move_to_backups"),
        "store/reserve.py": ("DiskReserve.allocate", "DiskReserve.free"),
        "store/restoring.py": ("restore",),
    },
    "of the user who runs the command": {
        "cli/chat/link.py": ("ChatConnection._upload",),
        "cli/chat/terminal.py": ("_history",),
        "cli/commands/agents_editor.py": ("edit",),
        "cli/commands/demo.py": ("_demo_home", "_Demo._start_fake"),
        "cli/commands/service_install.py": ("_write", "uninstall"),
        "cli/service/unit.py": ("ServiceFile.content",),
        "cli/foreground.py": ("_forget",),
        "cli/moving/source.py": ("SourceFolder._copy",),
    },
    "of the system": {
        "cli/commands/control.py": ("_pages", "_title", "docs"),
        "cli/commands/upgrade_steps.py": (
            "_source",
            "_said",
            "fetched",
            "healthy",
            "Environment.copy",
            "Environment.go_back",
            "Environment.forget",
        ),
        "cli/commands/demo.py": ("_Demo._say",),
        "cli/doctor/checks.py": ("file_system_of",),
        "cli/doctor/fence.py": ("open_sockets",),
        "cli/main.py": ("main",),
    },
    "a bot's session, beside what its agent can write": {
        "channels/matrix/login.py": ("PasswordSignIn._read", "PasswordSignIn._write"),
    },
    "relative to a descriptor of the door": {
        "channels/core/files/inbox_files.py": (
            "InboxFolder.__init__",
            "InboxFolder.keep",
            "InboxFolder.close",
            "sweep",
            "remove_received",
        ),
    },
    "by O_PATH and scandir, which wait for nothing": {
        "daemon/runtime/file_modes.py": ("_entries", "_put_right"),
    },
    "a home of before is renamed, the agent's own folder listed": {
        "engines/process/homes.py": ("adopt", "_others"),
    },
    "no file: a connection, a child of a supervisor": {
        "agents/mcp/server.py": ("ToolServer._in_session",),
        "daemon/runtime/channels.py": ("Channels._match_one", "Channels.renew"),
    },
}
"""By the reason: functions that open what lies where no agent writes."""


@dataclass(frozen=True)
class Place:
    module: str
    function: str
    line: int
    what: str


def named(node: ast.AST, function: str = "<module>") -> Iterator[tuple[str, ast.AST]]:
    """Each node below, with the function or class that it stands in."""
    waiting = [(function, node)]
    while waiting:
        function, parent = waiting.pop()
        for child in ast.iter_child_nodes(parent):
            inner = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = child.name if function == "<module>" else f"{function}.{child.name}"
            yield inner, child
            waiting.append((inner, child))


def of_call(called: ast.Call) -> str:
    """What a call of a method does with a file, where its name alone does not tell."""
    name = called.func.attr if isinstance(called.func, ast.Attribute) else ""
    first = called.args[0] if called.args else None
    keywords = {each.arg for each in called.keywords}
    constant = first.value if isinstance(first, ast.Constant) else None
    match name:
        case "open":  # others open engines and connections, with something
            is_plain = not called.args and keywords <= OF_FILES
            is_mode = constant in MODES or (isinstance(first, ast.Name) and first.id == "mode")
            return name if is_plain or is_mode or keywords & OF_FILES else ""
        case "touch":  # of the store: a topic
            is_mode = isinstance(constant, int)
            return name if not called.args or is_mode else ""
        case "replace":  # of a text: two; of a value: keywords
            return name if len(called.args) == 1 and not keywords else ""
    return ""


def opening(path: Path) -> Iterator[Place]:
    """Where a module opens, lists, makes, moves or removes files without the door."""
    for function, node in named(tree_of(path)):
        found = ""
        if isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            known = {"os": OPENING_OF_OS, "shutil": OPENING_OF_SHUTIL}.get(of, OPENING)
            found = node.attr if node.attr in known else ""
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found = node.id if node.id in ("open", "write_atomic") else ""
        elif isinstance(node, ast.Call):
            found = of_call(node)
        if found:
            # A function within one is its part.
            yield Place(path.name, function, getattr(node, "lineno", 0), found)


@functools.cache
def without_the_door() -> tuple[tuple[str, Place], ...]:
    return tuple(
        (str(path.relative_to(PACKAGE)), place)
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] not in NOT_LOOKED_AT
        for place in opening(path)
    )


@functools.cache
def excepted() -> set[tuple[str, str]]:
    return {
        (module, function)
        for modules in ELSEWHERE.values()
        for module, functions in modules.items()
        for function in functions
    }


def test_what_agents_can_write_has_one_door() -> None:
    found = [
        f"agentsup/{module}:{place.line} {place.function}: {place.what}"
        for module, place in without_the_door()
        if (module, place.function) not in excepted()
    ]
    assert not found, f"use kit/safe_files.py, in a pool; or say why not: {found}"


def test_the_exceptions_from_the_door_are_needed() -> None:
    stale = excepted() - {(module, place.function) for module, place in without_the_door()}
    assert not stale, f"these open nothing any more: {sorted(stale)}"


@pytest.mark.parametrize(
    "text",
    [
        "open(p)",
        "p.open()",
        "p.open('rb')",
        "p.open(mode)",
        "p.open(encoding='utf-8')",
        "p.open(mode='r')",
        "os.open(p, 0)",
        "f(p.mkdir)",
        "p.read_bytes()",
        "shutil.rmtree(p)",
        "write_atomic(p, b'')",
        "os.scandir(p)",
        "p.unlink(missing_ok=True)",
        "p.rename(q)",
        "f(p.rename)",
        "p.replace(q)",
        "p.touch()",
        "p.touch(0o600)",
        "p.touch(mode=0o600, exist_ok=False)",
    ],
)
def test_ways_round_the_door_are_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    assert list(opening(tmp_path / "module.py"))


@pytest.mark.parametrize(
    "text",
    [
        "engine.open(spec, host)",
        "server.open(name)",
        "tx.touch(topic)",
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=UTC)",
    ],
)
def test_what_is_no_file_is_let_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    assert not list(opening(tmp_path / "module.py"))


def test_a_new_way_in_a_module_with_exceptions_is_seen(tmp_path: Path) -> None:
    """Exceptions are of functions: the next one in the same module has none."""
    module = tmp_path / "homes.py"
    module.write_text("class A:\n    def adopt(self, p):\n        return p.read_text()\n")
    assert [place.function for place in opening(module)] == ["A.adopt"]
