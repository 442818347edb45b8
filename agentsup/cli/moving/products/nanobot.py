"""Homes of nanobot (HKUDS/nanobot), as release 0.3.0 writes them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ChatLine, ForeignHome, joined_text
from agentsup.cli.moving.gathered import MOST_CHATS, Gathered
from agentsup.cli.moving.products.accounts import (
    job_times,
    matrix_account,
    model_fields,
    telegram_account,
)
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import (
    chat_lines,
    chat_of,
    look,
    mapping,
    text_of,
    time_ms,
    variables,
)
from agentsup.cli.moving.workspaces import (
    RULES,
    memories,
    notes,
    persona,
    skills,
    workspace_files,
)
from agentsup.model.agent import MAIN
from agentsup.model.task import MAX_PROMPT_CHARS

_WORKSPACE: Final = "workspace"
_MOST_HISTORY: Final = 200
_SYSTEM_JOBS: Final = ("heartbeat", "dream")


def looks_like(source: SourceFolder) -> bool:
    """Whether the folder is a home of nanobot."""
    config = source.json("config.json")
    return isinstance(look(config, "agents", "defaults"), dict) or (
        isinstance(look(config, "channels"), dict) and isinstance(look(config, "providers"), dict)
    )


def read(source: SourceFolder) -> ForeignHome:
    """Everything that is found there."""
    found = Gathered("nanobot", source, variables(source.text(".env")))
    config = mapping(source.json("config.json"))
    defaults = mapping(look(config, "agents", "defaults"))
    written = text_of(defaults.get("workspace"))
    if written and not written.rstrip("/").endswith(f"/{_WORKSPACE}") and written != _WORKSPACE:
        found.remark(
            f"the workspace {written}",
            "only what lies in this folder is read; put it in workspace/",
        )
    paired = look(source.json("pairing.json"), "approved", "telegram")
    channels = mapping(config.get("channels"))
    fields = {
        **_model(found, config, defaults),
        **telegram_account(found, channels.get("telegram"), MAIN, paired=paired),
        **matrix_account(found, channels.get("matrix"), MAIN),
    }
    if "timezone" in defaults and defaults.get("timezoneMode") != "auto":
        fields["user_timezone"] = text_of(defaults["timezone"], 100)
    for name, channel in channels.items():
        if name not in ("telegram", "matrix") and look(channel, "enabled"):
            found.remark_channel(f"channel {name}")
    _servers(found, config)
    own_skills = skills(found, f"{_WORKSPACE}/skills")
    files = workspace_files(
        source,
        _WORKSPACE,
        skip=("SOUL.md", "USER.md", "HEARTBEAT.md"),
        skip_below=("memory", "skills", "cron", "sessions", ".nanobot"),
    )
    if source.has(f"{_WORKSPACE}/AGENTS.md"):
        found.remark("AGENTS.md as instructions", f"{RULES}; it lies in the workspace as a file")
    if source.text(f"{_WORKSPACE}/HEARTBEAT.md").strip():
        found.remark_heartbeat("HEARTBEAT.md")
    found.agent(
        MAIN,
        fields,
        persona(source, f"{_WORKSPACE}/SOUL.md"),
        skills=own_skills,
        files=files,
        notes=notes(source, f"{_WORKSPACE}/USER.md", f"{_WORKSPACE}/memory/MEMORY.md"),
        memories=memories(source, f"{_WORKSPACE}/memory", "nanobot", skip=("MEMORY.md",)),
        texts=_history(source),
    )
    _read_schedules(found)
    _read_chats(found)
    return found.home()


def _model(
    found: Gathered, config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    preset = text_of(defaults.get("modelPreset") or defaults.get("model_preset"))
    chosen = mapping(look(config, "modelPresets", preset)) or defaults
    model, provider = text_of(chosen.get("model"), 200), text_of(chosen.get("provider"), 100)
    providers = mapping(config.get("providers"))
    named = provider if provider not in ("", "auto") else model.partition("/")[0]
    entry = mapping(providers.get(named) or providers.get(named.replace("-", "_")))
    if not (entry.get("apiKey") or entry.get("api_key")) and provider in ("", "auto"):
        # Without a provider of its own a model goes over one that has them all.
        for each in ("openrouter", "custom"):
            if look(providers, each, "apiKey"):
                provider, entry = each, mapping(providers[each])
                break
    key = entry.get("apiKey") or entry.get("api_key")
    base = entry.get("apiBase") or entry.get("api_base")
    fields = model_fields(found, model, provider, key=key, base_url=base)
    if model and not fields:
        found.remark(f"the model {model}", f"{named} is not known here; choose one: agentsup setup")
    return fields


def _servers(found: Gathered, config: Mapping[str, Any]) -> None:
    servers = look(config, "tools", "mcpServers") or look(config, "tools", "mcp_servers")
    for name in mapping(servers):
        found.remark(
            f"tool server {name}",
            "tool servers are programs that are started for you: write them into mcp of an entry",
        )


def _read_schedules(found: Gathered) -> None:
    path = f"{_WORKSPACE}/cron/jobs.json"
    for job in found.jobs(path if found.source.has(path) else "cron/jobs.json"):
        key, payload = text_of(job.get("id"), 200), mapping(job.get("payload"))
        name = text_of(job.get("name"), 200) or key
        message = text_of(payload.get("message"), MAX_PROMPT_CHARS)
        if payload.get("kind") == "system_event" or name in _SYSTEM_JOBS or not message:
            found.remark(f"schedule {name}", "it is a part of nanobot itself")
            continue
        times = job_times(mapping(job.get("schedule")))
        if times is None:
            found.remark(f"schedule {name}", "its time has passed or is not understood")
            continue
        channel = text_of(payload.get("originChannel") or payload.get("channel"), 50)
        target = text_of(payload.get("originChatId") or payload.get("to"), 300)
        if not channel:
            channel, _, target = text_of(payload.get("sessionKey"), 400).partition(":")
        to, is_paused = chat_of(channel, target), job.get("enabled") is False
        found.schedule(MAIN, key, name, message, times, to=to, is_paused=is_paused)


def _read_chats(found: Gathered) -> None:
    source = found.source
    folders = [each for each in ("sessions", f"{_WORKSPACE}/sessions") if source.has(each)]
    paths = [p for each in folders for p in source.walk(each) if p.endswith(".jsonl")]
    for path in paths[:MOST_CHATS]:
        key, lines = _session(source, path)
        channel, _, target = key.partition(":")
        found.chat(MAIN, key, lines, key, chat_of(channel, target))


def _session(source: SourceFolder, path: str) -> tuple[str, tuple[ChatLine, ...]]:
    stem = path.rpartition("/")[2].removesuffix(".jsonl")
    key, messages = _decoded(stem), []
    for line in source.json_lines(path):
        if line.get("_type") == "metadata":
            key = text_of(line.get("key"), 400) or key
        elif "_type" not in line:
            messages.append((line.get("role"), line.get("content"), line.get("timestamp")))
    return key, chat_lines(messages)


def _decoded(stem: str) -> str:
    try:
        return base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
    except (ValueError, binascii.Error, UnicodeDecodeError):
        return stem


def _history(source: SourceFolder) -> dict[str, str]:
    """The summaries of older conversations, as a file to read."""
    rows = [
        (
            time_ms(line.get("timestamp")),
            text_of(line.get("timestamp"), 40),
            text_of(line.get("content")),
        )
        for line in source.json_lines(f"{_WORKSPACE}/memory/history.jsonl")
    ]
    entries = [f"## {when}\n\n{text}" for _, when, text in rows[-_MOST_HISTORY:] if text]
    text = joined_text(*entries, most=1_000_000)
    return {"moved/history.md": f"{text}\n"} if text else {}
