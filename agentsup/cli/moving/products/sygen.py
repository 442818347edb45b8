"""Homes of Sygen, as release 1.2.13 writes them (and its ancestor ductor, where it is the same)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ForeignHome, joined_text, names_for
from agentsup.cli.moving.gathered import Gathered, is_secret
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import chat_of, look, mapping, objects, text_of, variables
from agentsup.cli.moving.workspaces import memories, notes, skills, workspace_files
from agentsup.config import Report, translate
from agentsup.model.agent import MAIN
from agentsup.model.task import MAX_PROMPT_CHARS, NewSchedule

_CLIENT: Final = Path(__file__).parents[1] / "templates/agentsup_tools.py.txt"
_SCRIPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent_tools": ("ask_agent", "ask_agent_async", "list_agents"),
    "task_tools": (
        *("create_task", "resume_task", "ask_parent", "list_tasks", "cancel_task", "delete_task"),
    ),
    "cron_tools": ("cron_add", "cron_list", "cron_remove"),
}
FOLDERS: Final = (*_SCRIPTS, "webhook_tools")
"""Folders of scripts that belong to Sygen itself and do not come."""
_SCRIPT: Final = '''"""As before; what it does is in ../agentsup_tools.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentsup_tools import main

main("{name}")
'''
_CONFIG: Final = "config/config.json"
_TAKEN: Final = (
    *("transport", "transports", "telegram_token", "allowed_user_ids", "allowed_group_ids"),
    *("group_mention_only", "matrix"),
)
"""Fields that each agent has for itself."""
_INHERITED: Final = (
    *("provider", "model", "reasoning_effort", "cli_timeout", "max_budget_usd", "max_turns"),
    *("user_timezone", "streaming", "mcp", "permission_mode", "docker", "file_access"),
)
"""Fields that an agent there has from main if its entry does not say otherwise."""
_NOT_HERE: Final = {
    "heartbeat": "agents are not woken by a heartbeat; make a task with a schedule",
    "webhooks": "one internal API serves all agents; see [api] in config.toml",
    "api": "one internal API serves all agents; see [api] in config.toml",
    "gemini_api_key": "the gemini program reads its key from its own environment",
    "skill_marketplace": "skills are files here",
    "fileshare": "the page serves files",
    "cli_parameters": "engines are started with a fixed command line; see engine_options",
    "transcription": "speech is not written down",
}


def looks_like(source: SourceFolder) -> bool:
    """Whether the folder is a home of Sygen."""
    if not source.has(_CONFIG):
        return False
    return source.is_folder("workspace/memory_system") or source.has("cron_jobs.json")


def read(source: SourceFolder) -> ForeignHome:
    """Everything that is found there."""
    found, config = Gathered("sygen", source), mapping(source.json(_CONFIG))
    entries = [each for each in objects(source.json("agents.json")) if text_of(each.get("name"))]
    ids = [MAIN, *(text_of(each["name"], 200) for each in entries if each["name"] != MAIN)]
    names = names_for(list(dict.fromkeys(ids)), MAIN)
    found.remark_keys(config, _NOT_HERE, "config.json: ")
    _read_agent(found, "", MAIN, _fields(found, config, {}, MAIN))
    _read_schedules(found, "", MAIN)
    for entry in entries:
        there = text_of(entry["name"], 200)
        name = names[there]
        if any(each.name == name for each in found.agents):
            continue
        fields = _fields(found, entry, config, name)
        if "/" in there or there in (".", ".."):
            found.agent(name, fields)
            continue
        _read_agent(found, f"agents/{there}/", name, fields)
        _read_schedules(found, f"agents/{there}/", name)
    _remark_rest(found)
    return found.home(source.text("SHAREDMEMORY.md"))


def _fields(
    found: Gathered, entry: Mapping[str, Any], main: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """An entry in our keys; what it has from main there is written out."""
    values = {key: entry[key] for key in _TAKEN if entry.get(key) not in (None, "", [])}
    for key in _INHERITED:
        value = entry.get(key) if entry.get(key) is not None else main.get(key)
        if value is not None:
            values[key] = value
    if description := text_of(entry.get("description"), 2_000):
        values["description"] = description
    if look(values, "mcp", "enabled") is False:
        del values["mcp"]
    _by_reference(found, values, name)
    if values.pop("permission_mode", None) == "bypassPermissions":
        found.remark(
            f"{name}: permission_mode bypassPermissions",
            "agents ask before they do what can't be taken back; set it if you want that",
        )
    report = Report("agents.json")
    translated = translate(values, (name,), report).values
    for finding in report.findings:
        found.remark(f"{name}: {(finding.field or '').partition('.')[2]}", finding.message)
    return {key: value for key, value in translated.items() if value is not None}


def _by_reference(found: Gathered, values: dict[str, Any], name: str) -> None:
    if token := values.pop("telegram_token", None):
        if reference := found.secret(token, f"{name}-telegram.token"):
            values["telegram_token"] = reference
        else:
            found.remark(f"{name}: its Telegram bot", "telegram_token is a placeholder")
    matrix = {k: v for k, v in mapping(values.get("matrix")).items() if v not in ("", None, [])}
    for key in ("password", "access_token"):
        if key in matrix:
            secret = text_of(matrix.pop(key))
            if is_secret(secret):
                matrix[key] = found.secret(secret, f"{name}-matrix-{key}.secret")
    rooms = matrix.get("allowed_rooms") or []
    matrix["allowed_rooms"] = [each for each in rooms if str(each).startswith("!")]
    if len(rooms) > len(matrix["allowed_rooms"]):
        found.remark(f"{name}: Matrix rooms by alias", "name them by their ids, which begin with !")
    values.pop("matrix", None)
    if matrix.get("password") or matrix.get("access_token"):
        values["matrix"] = matrix
    elif matrix.get("user_id"):
        found.remark(f"{name}: its Matrix account", "its password is missing or a placeholder")
    wanted = {"telegram": "telegram_token", "matrix": "matrix"}
    for key in ("transport", "transports"):
        given = values.get(key)
        if isinstance(given, str) and not values.get(wanted.get(given, "")):
            del values[key]
        elif isinstance(given, list):
            values[key] = [each for each in given if values.get(wanted.get(str(each), ""))]
    if values.get("transports") == []:
        del values["transports"]
    if "transports" in values:
        values.pop("transport", None)


def _read_agent(found: Gathered, home: str, name: str, fields: dict[str, Any]) -> None:
    workspace = f"{home}workspace"
    memory = f"{workspace}/memory_system"
    rules = {"CLAUDE.md", "AGENTS.md", "GEMINI.md", "JOIN_NOTIFICATION.md"}
    files = tuple(
        each
        for each in workspace_files(
            found.source,
            workspace,
            skip_below=(
                *("memory_system", "skills", "cron_tasks", "cron_results", "tasks"),
                *(f"tools/{tool}" for tool in FOLDERS),
            ),
        )
        if each.target.rpartition("/")[2] not in rules and each.target != "tools/_tool_shared.py"
    )
    found.agent(
        name,
        fields,
        text_of(fields.get("prompt")),
        skills=skills(found, f"{workspace}/skills", skip=("skill-creator",)),
        files=files,
        notes=notes(found.source, f"{memory}/MAINMEMORY.md"),
        memories=memories(found.source, f"{memory}/modules", "sygen", skip=tuple(rules)),
        texts=tool_scripts(),
    )


def _read_schedules(found: Gathered, home: str, name: str) -> None:
    for job in found.jobs(f"{home}cron_jobs.json"):
        key = text_of(job.get("id"), 200)
        title = text_of(job.get("title"), 200) or key
        if job.get("script_mode"):
            found.remark(f"{name}: schedule {title}", "it runs a script without an agent")
            continue
        folder = text_of(job.get("task_folder"), 200)
        described = ""
        if folder and "/" not in folder and folder not in (".", ".."):
            path = f"{home}workspace/cron_tasks/{folder}/TASK_DESCRIPTION.md"
            described = found.source.text(path)
        prompt = joined_text(
            text_of(job.get("agent_instruction")), described, most=MAX_PROMPT_CHARS
        )
        channel = {"tg": "telegram", "mx": "matrix"}.get(str(job.get("transport", "tg")), "")
        to = chat_of(channel, str(job.get("chat_id") or ""), str(job.get("topic_id") or ""))
        cron, zone = text_of(job.get("schedule"), 200), text_of(job.get("timezone"), 100)
        times, is_paused = NewSchedule(cron=cron, zone=zone), job.get("enabled") is False
        found.schedule(name, key, title, prompt or title, times, to=to, is_paused=is_paused)


def _remark_rest(found: Gathered) -> None:
    source = found.source
    found.remark(
        "scripts that make or remove agents",
        "use `agentsup agents add`; those for agents, tasks and schedules are made anew",
    )
    if objects(look(source.json("webhooks.json"), "hooks")):
        found.remark("webhooks.json", "there are no webhooks; call POST /interagent/send instead")
    if source.has("sessions.json") or source.has("named_sessions.json"):
        found.remark(
            "chats", "Sygen keeps ids of sessions only; the words lie with claude, codex or gemini"
        )
    if objects(look(source.json("tasks.json"), "tasks")):
        found.remark("tasks.json", "it holds no prompts, so the tasks can't be done again")
    if names := variables(source.text(".env")):
        what = f".env: {', '.join(sorted(names))}"
        found.remark(what, "write what is still needed into environment")


def tool_scripts() -> dict[str, str]:
    """The scripts by their paths in a workspace."""
    scripts = {
        f"tools/{folder}/{name}.py": _SCRIPT.format(name=name)
        for folder, names in _SCRIPTS.items()
        for name in names
    }
    return {"tools/agentsup_tools.py": _CLIENT.read_text(encoding="utf-8"), **scripts}
