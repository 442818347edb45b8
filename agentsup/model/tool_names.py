"""Names of all tools and of engines' options, for code that must not import tools and engines; and
the names of tools for models and programs that only take letters, digits, ``_`` and ``-``. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

ASKING = "ask_agent ask_agent_async ask_parent ask_person task_answer list_agents list_team"
DELEGATION = "delegate_task mixture_of_agents route_to_agent dispatch_team broadcast_to_agents"
RUNS = "agent_spawn agent_wait agent_stop agent_steer"
TASKS = "task_create task_list task_status task_result task_logs task_update task_cancel remind"
MAIL = "mailbox_send mailbox_reply mailbox_broadcast mailbox_read"
MEMORY = "memory_save memory_recall memory_forget read_shared_memory"
FILES = "fs_read fs_list fs_stat fs_write fs_edit fs_mkdir fs_delete send_file"
OTHERS = "exec web_fetch result_read restart think"

OURS = frozenset(f"{ASKING} {DELEGATION} {RUNS} {TASKS} {MAIL} {MEMORY} {FILES} {OTHERS}".split())
"""The tools that agentsup offers, and ``think``, which stands for a program's own to-do lists."""

READ = "read glob grep ls list listdir notebookread read_file read_many_files list_directory"
SEARCH = "search search_file_content codesearch"
THINK = "think todowrite todoread todo_write update_plan plan exitplanmode switch_mode"
EDIT = "edit multiedit notebookedit apply_patch patch replace str_replace"
WRITE = "write write_file create_file"
RUN = "bash execute exec shell run_shell_command exec_command local_shell powershell"
FETCH = "webfetch websearch fetch web_fetch google_web_search web_search"
REMOVE = "delete move"

OF_PROGRAMS = frozenset(f"{READ} {SEARCH} {THINK} {EDIT} {WRITE} {RUN} {FETCH} {REMOVE}".split())
"""The names of coding agents' own tools, in lower case, as far as they are known."""


# -- wire names -------------------------------------------------------------------------------------

MAX_CHARS = 48
"""With the prefix that coding agents put before it, a name stays within 64 characters."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_DIGESTED = re.compile(r".*_[0-9a-f]{12}", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_MCP, _WIRE = "mcp:", "mcp__"
_DIGEST_CHARS = 12


def wire_name(name: str) -> str:
    """The wire name of a tool.

    A name of these characters stays as it is. ``mcp:github/create_issue`` becomes
    ``mcp__github__create_issue``. A name with other characters, or one that is too long, ends in a
    digest of itself. The wire name depends on the name alone, so it is the same in every turn, and
    no two names share one.
    """
    if name.startswith(_MCP):
        server, slash, tool = name.removeprefix(_MCP).partition("/")
        # The server ends at the first double underscore, so its own name must not contain or touch
        # one.
        if slash and tool and server and "__" not in server and server.strip("_") == server:
            form = f"{_WIRE}{server}__{tool}"
            if _fits(form):
                return form
    elif _fits(name) and not name.startswith(_WIRE):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    readable = _OTHER.sub("_", name.replace(_MCP, _WIRE).replace("/", "__"))
    return f"{readable[: MAX_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def by_wire_name(names: Iterable[str]) -> dict[str, str]:
    """The names by their wire names."""
    return {wire_name(name): name for name in names}


def _fits(form: str) -> bool:
    is_plain = len(form) <= MAX_CHARS and _PLAIN.fullmatch(form) is not None
    return is_plain and _DIGESTED.fullmatch(form) is None


# -- options of engines -----------------------------------------------------------------------------

_OF_A_PROGRAM: Final = frozenset(["command", "env", "home", "memory_mb", "script"])
"""Options of every engine that runs a program."""

_ACP: Final = _OF_A_PROGRAM | {"start_timeout_s", "auth_method"}

OPTIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "scripted": frozenset({"script", "rules"}),
        "llm": frozenset(
            [
                "base_url",
                "api_key",
                "model",
                "provider",
                "temperature",
                "max_tokens",
                "request_timeout_s",
                "request_limit",
                "tool_calls_limit",
                "total_tokens_limit",
                "ask_user",
                "pictures",
                "template_opens_thought",
                "script",
            ]
        ),
        "command": _OF_A_PROGRAM | {"input", "output"},
        "claude": _OF_A_PROGRAM
        | {"allowed_tools", "disallowed_tools", "fallback_model", "setting_sources", "api_retries"},
        "acp": _ACP,
    }
)
"""By engine; other coding agents have those of ``acp``."""

ALL: Final = frozenset().union(*OPTIONS.values())


def options_of(engine: str) -> frozenset[str]:
    """The options that an engine knows; ``auto`` may become any engine."""
    return ALL if engine == "auto" else OPTIONS.get(engine, _ACP)
