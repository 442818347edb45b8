"""Homes of nanobot (HKUDS/nanobot), as release 0.3.0 writes them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import (
    ChatLine,
    ForeignAgent,
    ForeignChat,
    ForeignHome,
    ForeignSchedule,
    joined_text,
)
from agentsup.cli.moving.products.accounts import (
    Keyring,
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
    objects,
    text_of,
    time_ms,
    variables,
)
from agentsup.cli.moving.workspaces import (
    RULES,
    Gathered,
    memories,
    notes,
    persona,
    skills,
    with_skills,
    workspace_files,
)
from agentsup.model.agent import MAIN
from agentsup.model.task import MAX_PROMPT_CHARS

_WORKSPACE: Final = "workspace"
_MOST_CHATS: Final = 500
_MOST_JOBS: Final = 500
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
    config, gathered = mapping(source.json("config.json")), Gathered()
    keys = Keyring(variables(source.text(".env")))
    defaults = mapping(look(config, "agents", "defaults"))
    written = text_of(defaults.get("workspace"))
    if written and not written.rstrip("/").endswith(f"/{_WORKSPACE}") and written != _WORKSPACE:
        gathered.remark(
            f"the workspace {written}",
            "only what lies in this folder is read; put it in workspace/",
        )
    fields = {
        **_model(config, defaults, keys, gathered),
        **telegram_account(
            *(look(config, "channels", "telegram"), MAIN, keys, gathered),
            paired=look(source.json("pairing.json"), "approved", "telegram"),
        ),
        **matrix_account(look(config, "channels", "matrix"), MAIN, keys, gathered),
    }
    if "timezone" in defaults and defaults.get("timezoneMode") != "auto":
        fields["user_timezone"] = text_of(defaults["timezone"], 100)
    for name, channel in mapping(config.get("channels")).items():
        if name not in ("telegram", "matrix") and look(channel, "enabled"):
            gathered.remark(
                f"channel {name}", "people talk over Telegram, Matrix, page and terminal"
            )
    _servers(config, gathered)
    own_skills = skills(source, f"{_WORKSPACE}/skills", gathered)
    prompt = with_skills(persona(source, f"{_WORKSPACE}/SOUL.md"), own_skills, gathered.skills)
    files = workspace_files(
        source,
        _WORKSPACE,
        skip=("SOUL.md", "USER.md", "HEARTBEAT.md"),
        skip_below=("memory", "skills", "cron", "sessions", ".nanobot"),
    )
    if source.has(f"{_WORKSPACE}/AGENTS.md"):
        gathered.remark("AGENTS.md as instructions", f"{RULES}; it lies in the workspace as a file")
    if source.text(f"{_WORKSPACE}/HEARTBEAT.md").strip():
        gathered.remark("HEARTBEAT.md", "agents have no heartbeat; make a task with a schedule")
    agent = ForeignAgent(
        MAIN,
        {**fields, **({"prompt": prompt} if prompt else {})},
        notes=notes(source, f"{_WORKSPACE}/USER.md", f"{_WORKSPACE}/memory/MEMORY.md"),
        memories=memories(source, f"{_WORKSPACE}/memory", "nanobot", skip=("MEMORY.md",)),
        files=(*files, *own_skills),
        texts=_history(source),
    )
    return ForeignHome(
        product="nanobot",
        agents=(agent,),
        schedules=tuple(_schedules(source, gathered)),
        chats=tuple(_chats(source)),
        skills=tuple(gathered.skills.values()),
        secrets=keys.secrets,
        remarks=tuple(gathered.remarks),
    )


def _model(
    config: Mapping[str, Any], defaults: Mapping[str, Any], keys: Keyring, gathered: Gathered
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
    base = entry.get("apiBase") or entry.get("api_base")
    fields = model_fields(
        model, provider, keys, key=entry.get("apiKey") or entry.get("api_key"), base_url=base
    )
    if model and not fields:
        gathered.remark(
            f"the model {model}", f"{named} is not known here; choose one: agentsup setup"
        )
    return fields


def _servers(config: Mapping[str, Any], gathered: Gathered) -> None:
    servers = look(config, "tools", "mcpServers") or look(config, "tools", "mcp_servers")
    for name in mapping(servers):
        gathered.remark(
            f"tool server {name}",
            "tool servers are programs that are started for you: write them into mcp of an entry",
        )


def _schedules(source: SourceFolder, gathered: Gathered) -> Iterable[ForeignSchedule]:
    path = f"{_WORKSPACE}/cron/jobs.json"
    store = source.json(path if source.has(path) else "cron/jobs.json")
    for job in objects(look(store, "jobs"))[:_MOST_JOBS]:
        key, payload = text_of(job.get("id"), 200), mapping(job.get("payload"))
        name = text_of(job.get("name"), 200) or key
        message = text_of(payload.get("message"), MAX_PROMPT_CHARS)
        if payload.get("kind") == "system_event" or name in _SYSTEM_JOBS or not message:
            gathered.remark(f"schedule {name}", "it is a part of nanobot itself")
            continue
        times = job_times(mapping(job.get("schedule")))
        if times is None:
            gathered.remark(f"schedule {name}", "its time has passed or is not understood")
            continue
        channel = text_of(payload.get("originChannel") or payload.get("channel"), 50)
        target = text_of(payload.get("originChatId") or payload.get("to"), 300)
        if not channel:
            channel, _, target = text_of(payload.get("sessionKey"), 400).partition(":")
        to, is_paused = chat_of(channel, target), job.get("enabled") is False
        yield ForeignSchedule(MAIN, f"nanobot:{key}", name, message, times, is_paused, *to)


def _chats(source: SourceFolder) -> Iterable[ForeignChat]:
    folders = [each for each in ("sessions", f"{_WORKSPACE}/sessions") if source.has(each)]
    paths = [p for each in folders for p in source.walk(each) if p.endswith(".jsonl")]
    for path in paths[:_MOST_CHATS]:
        key, lines = _session(source, path)
        if lines:
            channel, _, target = key.partition(":")
            yield ForeignChat(MAIN, key, lines, key, *chat_of(channel, target))


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
