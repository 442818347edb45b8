"""Homes of Hermes Agent (NousResearch/hermes-agent), as configuration version 50 writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ForeignHome, ForeignMemory, names_for
from agentsup.cli.moving.gathered import MOST_CHATS, Gathered
from agentsup.cli.moving.products.accounts import (
    at_time,
    matrix_account,
    model_fields,
    telegram_account,
)
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import (
    MOST_MEMORIES,
    chat_lines,
    chat_of,
    look,
    mapping,
    number,
    telegram_ids,
    text_of,
    texts,
    time_ms,
    variables,
)
from agentsup.cli.moving.workspaces import persona, skills
from agentsup.model.agent import MAIN
from agentsup.model.task import MAX_PROMPT_CHARS, NewSchedule

_MEMORY_ENDS: Final = "\n§\n"
_CHANNELS: Final = (
    "DISCORD",
    "SLACK",
    "SIGNAL",
    "WHATSAPP",
    "EMAIL",
    "FEISHU",
    "WECOM",
    "DINGTALK",
)
_NOT_HERE: Final = {
    "mcp_servers": "tool servers are programs that are started for you: write them into mcp of an entry",
    "plugins": "they are programs of Hermes",
    "tts": "there is no voice",
    "delegation": "agents give work to each other; see `agentsup docs delegation`",
    "quick_commands": "commands are those of agentsup",
}


def looks_like(source: SourceFolder) -> bool:
    """Whether the folder is a home of Hermes Agent."""
    if source.is_folder("memories") and source.has("SOUL.md"):
        return True
    config = source.yaml("config.yaml")
    return isinstance(config, dict) and ("_config_version" in config or "terminal" in config)


def read(source: SourceFolder) -> ForeignHome:
    """Everything that is found there: the home itself is main, each profile another agent."""
    found = Gathered("hermes", source)
    profiles = [name for name in source.folders("profiles") if name != "default"]
    names = names_for([MAIN, *(name for name in profiles if name != MAIN)], MAIN)
    for there, name in names.items():
        home = "" if there == MAIN else f"profiles/{there}/"
        found.variables = variables(source.text(f"{home}.env"))
        config = mapping(source.yaml(f"{home}config.yaml"))
        _read_agent(found, home, name, config)
        _read_schedules(found, home, name, text_of(config.get("timezone"), 100))
        _read_chats(found, home, name)
    if source.has("auth.json"):
        found.remark("auth.json", "signing in by OAuth is done again; agentsup setup takes a key")
    return found.home()


def _read_agent(found: Gathered, home: str, name: str, config: Mapping[str, Any]) -> None:
    fields = {
        **_model(found, config, name),
        **_telegram(found, config, name),
        **_matrix(found, name),
    }
    if zone := text_of(config.get("timezone"), 100):
        fields["user_timezone"] = zone
    turns = number(look(config, "agent", "max_turns"))
    if turns and turns >= 1:
        fields["max_steps"] = int(turns)
    found.remark_keys(config, _NOT_HERE, f"{name}: config.yaml: ")
    for channel in _CHANNELS:
        if any(key.startswith(f"{channel}_") for key in found.variables):
            found.remark_channel(f"{name}: channel {channel.lower()}")
    found.agent(
        name,
        fields,
        persona(found.source, f"{home}SOUL.md"),
        skills=skills(found, f"{home}skills"),
        notes=_notes(found.source, home),
        memories=_memories(found.source, home),
    )


def _notes(source: SourceFolder, home: str) -> str:
    """The profile of the person, which each turn there gets."""
    return "\n\n".join(_entries(source.text(f"{home}memories/USER.md")))


def _memories(source: SourceFolder, home: str) -> tuple[ForeignMemory, ...]:
    entries = _entries(source.text(f"{home}memories/MEMORY.md"))
    found: dict[str, ForeignMemory] = {}
    for text in entries[:MOST_MEMORIES]:
        key = " ".join(text.split())[:80]
        found.setdefault(key, ForeignMemory(key, text[:3_900], ("hermes",)))
    return tuple(found.values())


def _entries(text: str) -> list[str]:
    return [each.strip() for each in text.replace("\r\n", "\n").split(_MEMORY_ENDS) if each.strip()]


def _model(found: Gathered, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    chosen = config.get("model")
    given = mapping(chosen) or {"default": chosen}
    model = text_of(given.get("default") or given.get("model"), 200)
    provider = text_of(given.get("provider"), 100) or "auto"
    base = given.get("base_url") if provider in ("auto", "custom", "openrouter") else None
    named = mapping(look(config, "providers", provider))
    if named:
        base = named.get("base_url")
    elif provider == "auto" and not base:
        provider = "openrouter" if "OPENROUTER_API_KEY" in found.variables else provider
    if isinstance(base, str) and "openrouter.ai" in base:
        provider, base = "openrouter", None
    key = (
        given.get("api_key")
        or named.get("api_key")
        or found.variables.get(str(named.get("key_env")))
    )
    if provider == "custom":
        key = key or found.variables.get("OPENAI_API_KEY")
    fields = model_fields(found, model, provider, key=key, base_url=base)
    if model and not fields:
        found.remark(
            f"{name}: the model {model}",
            f"{provider} is not known here; agentsup setup chooses one",
        )
    return fields


def _telegram(found: Gathered, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    token = found.variables.get("TELEGRAM_BOT_TOKEN")
    given = mapping(look(config, "platforms", "telegram")) or mapping(config.get("telegram"))
    token = token or given.get("token") or given.get("bot_token")
    if not token:
        return {}
    users = texts(found.variables.get("TELEGRAM_ALLOWED_USERS")) or texts(
        given.get("allowed_users")
    )
    fields = telegram_account(found, {"token": token, "allowFrom": users}, name)
    home_chat, _ = telegram_ids(found.variables.get("TELEGRAM_HOME_CHANNEL"))
    if groups := [each for each in home_chat if each < 0]:
        fields["allowed_group_ids"] = groups
    return fields


def _matrix(found: Gathered, name: str) -> dict[str, Any]:
    known = found.variables
    if not known.get("MATRIX_HOMESERVER"):
        return {}
    account: dict[str, object] = {
        "homeserver": known.get("MATRIX_HOMESERVER"),
        "userId": known.get("MATRIX_USER_ID"),
        "deviceId": known.get("MATRIX_DEVICE_ID"),
        "accessToken": known.get("MATRIX_ACCESS_TOKEN"),
        "password": known.get("MATRIX_PASSWORD"),
        "allowFrom": texts(known.get("MATRIX_ALLOWED_USERS")),
        "rooms": {
            room: {}
            for name in ("MATRIX_HOME_ROOM", "MATRIX_HOME_CHANNEL", "MATRIX_ALLOWED_ROOMS")
            for room in texts(known.get(name))
        },
        "encryption": known.get("MATRIX_ENCRYPTION", "").casefold() == "true",
    }
    return matrix_account(found, account, name)


def _read_schedules(found: Gathered, home: str, name: str, zone: str) -> None:
    for job in found.jobs(f"{home}cron/jobs.json"):
        key = text_of(job.get("id"), 200)
        title = text_of(job.get("name"), 200) or key
        prompt = text_of(job.get("prompt"), MAX_PROMPT_CHARS)
        named = texts(job.get("skills")) or texts(job.get("skill"))
        if named:
            prompt = f"Use the skills {', '.join(named[:20])}.\n\n{prompt}"
        if job.get("no_agent") or not prompt.strip():
            found.remark(f"{name}: schedule {title}", "it runs a script without an agent")
            continue
        if job.get("script"):
            found.remark(f"{name}: schedule {title}: its script", "nothing is run before a turn")
        times = _times(mapping(job.get("schedule")), zone)
        if times is None:
            found.remark(f"{name}: schedule {title}", "its time has passed or is not understood")
            continue
        is_paused = job.get("enabled") is False or job.get("state") == "paused"
        to = _delivery(job)
        found.schedule(name, key, title, prompt, times, to=to, is_paused=is_paused)


def _times(schedule: Mapping[str, Any], zone: str) -> NewSchedule | None:
    kind = schedule.get("kind")
    if kind == "once":
        return at_time(time_ms(schedule.get("run_at")))
    minutes = number(schedule.get("minutes"))
    if kind == "interval" and minutes and minutes > 0:
        return NewSchedule(every_s=minutes * 60)
    cron = text_of(schedule.get("expr"), 200)
    if kind != "cron" or not cron:
        return None
    return NewSchedule(cron=cron, zone=text_of(schedule.get("tz"), 100) or zone)


def _delivery(job: Mapping[str, Any]) -> tuple[str, str]:
    """The chat that gets the result: the one it came from, or one that is named."""
    deliver = text_of(job.get("deliver"), 300)
    if deliver == "origin":
        origin = mapping(job.get("origin"))
        chat, thread = str(origin.get("chat_id") or ""), str(origin.get("thread_id") or "")
        return chat_of(text_of(origin.get("platform"), 50), chat, thread)
    channel, _, target = deliver.partition(":")
    return chat_of(channel, target)


def _read_chats(found: Gathered, home: str, name: str) -> None:
    source, database = found.source, f"{home}state.db"
    if not source.has(database):
        return
    # Only what all versions of the schema have is asked for by name.
    sessions = source.rows(database, "SELECT * FROM sessions ORDER BY started_at DESC", 5_000)
    chats = [row for row in sessions if row.get("source") not in ("cron", "tool", "subagent")]
    chats = [row for row in chats if not row.get("parent_session_id")][:MOST_CHATS]
    wanted = {row["id"]: row for row in chats}
    said: dict[str, list[tuple[object, object, object]]] = {}
    for row in source.rows(
        database,
        "SELECT * FROM messages WHERE role IN ('user', 'assistant') ORDER BY session_id, id",
    ):
        if row["session_id"] in wanted and row.get("active", 1) == 1:
            content = _content(row.get("content"))
            said.setdefault(row["session_id"], []).append((row["role"], content, row["timestamp"]))
    for session, row in wanted.items():
        target, thread = str(row.get("chat_id") or ""), str(row.get("thread_id") or "")
        to = chat_of(text_of(row.get("source"), 50), target, thread)
        title = text_of(row.get("title") or row.get("display_name"), 200)
        title, lines = title or text_of(row.get("source"), 50), chat_lines(said.get(session, ()))
        found.chat(name, f"{row.get('source')}:{session}", lines, title, to)


def _content(content: object) -> object:
    """The content of a message, whose parts are stored as JSON."""
    if isinstance(content, str) and content.startswith("[{"):
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return content
    return content
