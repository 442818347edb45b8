"""Homes of other products, written for tests after the formats that docs/moving.md names."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TOKEN = "1234567890:AAExampleOfATokenThatNobodyHas"
KEY = "sk-example-of-a-key-that-nobody-has"
PERSON = 424242
GROUP = -1001234
SKILL = """---
name: tea
description: Makes tea the way it is liked.
---
# Tea

Boil water first.
"""


def put(root: Path, path: str, content: str | dict[str, Any] | list[Any]) -> Path:
    """Write a file of a home; anything but a text as JSON."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content if isinstance(content, str) else json.dumps(content))
    return target


def put_lines(root: Path, path: str, records: list[dict[str, Any]]) -> None:
    """Write a file of JSON lines."""
    put(root, path, "".join(json.dumps(record) + "\n" for record in records))


def sygen_home(root: Path) -> Path:
    """A home of Sygen with main and two more agents."""
    put(
        root,
        "config/config.json",
        {
            "sygen_home": "~/.sygen",
            "provider": "claude",
            "model": "sonnet",
            "permission_mode": "bypassPermissions",
            "telegram_token": TOKEN,
            "allowed_user_ids": [PERSON],
            "allowed_group_ids": [GROUP],
            "transport": "telegram",
            "user_timezone": "Europe/Vienna",
            "matrix": {"homeserver": "", "user_id": "", "password": "", "access_token": ""},
            "docker": {"enabled": True, "image_name": "sandbox"},
            "heartbeat": {"enabled": True, "interval_minutes": 30},
            "mcp": {"enabled": False, "servers": []},
            "interagent_port": 8799,
        },
    )
    put(
        root,
        "agents.json",
        [
            {
                "name": "cook",
                "telegram_token": f"9{TOKEN}",
                "allowed_user_ids": [PERSON],
                "model": "opus",
            },
            {
                "name": "scribe",
                "transport": "matrix",
                "matrix": {
                    "homeserver": "https://matrix.example",
                    "user_id": "@scribe:matrix.example",
                    "password": "a-long-password",
                    "allowed_rooms": ["!abc:matrix.example", "#alias:matrix.example"],
                    "allowed_users": ["@anna:matrix.example"],
                },
            },
        ],
    )
    job = {"id": "weekly", "title": "Weekly tidy", "schedule": "0 10 * * 1", "enabled": True}
    put(
        root,
        "cron_jobs.json",
        {
            "jobs": [
                {
                    **job,
                    "task_folder": "weekly",
                    "agent_instruction": "Tidy up.",
                    "chat_id": PERSON,
                },
                {**job, "id": "off", "title": "Off", "enabled": False, "task_folder": "weekly"},
                {**job, "id": "script", "title": "Script", "script_mode": True, "task_folder": "x"},
            ]
        },
    )
    put(root, "workspace/cron_tasks/weekly/TASK_DESCRIPTION.md", "Look at the notes.")
    put(root, "workspace/memory_system/MAINMEMORY.md", "# Main\nAnna likes tea.")
    put(
        root,
        "workspace/memory_system/modules/user.md",
        "# User\nAnna lives in Graz.\n\n## Work\nNone.",
    )
    put(root, "workspace/skills/tea/SKILL.md", SKILL)
    put(root, "workspace/tools/user_tools/weather.py", "print('sun')\n").chmod(0o755)
    put(root, "workspace/tools/agent_tools/ask_agent.py", "raise SystemExit('theirs')\n")
    put(root, "workspace/tools/task_tools/create_task.py", "raise SystemExit('theirs')\n")
    put(root, "workspace/CLAUDE.md", "Rules of theirs.")
    put(root, "agents/cook/workspace/memory_system/MAINMEMORY.md", "The cook remembers salt.")
    put(root, "agents/cook/cron_jobs.json", {"jobs": [{**job, "task_folder": "none"}]})
    put(root, "SHAREDMEMORY.md", "All know the house.")
    put(root, "sessions.json", {})
    put(root, "webhooks.json", {"hooks": [{"id": "door"}]})
    put(root, ".env", "WEATHER_API_KEY=hidden-from-everybody\n")
    return root


def _openclaw_message(role: str, text: str, at: int) -> dict[str, Any]:
    said = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": at}
    return {"type": "message", "id": f"m{at}", "parentId": None, "message": said}


def openclaw_home(root: Path) -> Path:
    """A home of OpenClaw as JSON files, its configuration as JSON5, with two agents."""
    put(
        root,
        "openclaw.json",
        """// our house
{
  agents: {
    defaults: {
      workspace: "~/.openclaw/workspace",
      userTimezone: 'Europe/Vienna',
      model: { primary: "anthropic/claude-sonnet-4-5", fallbacks: ["openai/gpt-5.2",], },
      heartbeat: { every: "30m" },
    },
    list: [
      { id: "main", default: true, identity: { name: "Sam" } },
      { id: "work", workspace: "~/.openclaw/workspace-work", model: "openai/gpt-5.2" },
    ],
  },
  bindings: [{ agentId: "work", match: { channel: "telegram", accountId: "office" } }],
  channels: {
    telegram: {
      enabled: true,
      groups: { "*": { requireMention: true }, "-1001234": {} },
      accounts: {
        default: { botToken: "TOKEN", allowFrom: ["tg:424242", "@anna"] },
        office: { botToken: "${OFFICE_TOKEN}", allowFrom: [5] },
      },
    },
    discord: { enabled: true, token: "not-ours" },
  },
  hooks: { enabled: true, token: "hook-secret" },
}
""".replace('TOKEN"', f'{TOKEN}"'),
    )
    put(root, ".env", f"export OFFICE_TOKEN='7{TOKEN}'\nOPENAI_API_KEY={KEY}-openai\n")
    put(
        root,
        "agents/main/agent/auth-profiles.json",
        {
            "profiles": {
                "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": KEY}
            }
        },
    )
    put(root, "credentials/telegram-allowFrom.json", {"version": 1, "allowFrom": ["77"]})
    put(root, "workspace/SOUL.md", "You are calm.")
    put(root, "workspace/IDENTITY.md", "Name: Sam")
    put(root, "workspace/USER.md", "Anna, who likes tea.")
    put(root, "workspace/MEMORY.md", "The bike is blue.")
    put(root, "workspace/AGENTS.md", "Read SOUL.md first.")
    put(root, "workspace/memory/2026-11-01.md", "We bought flour.")
    put(root, "workspace/skills/tea/SKILL.md", SKILL)
    put(root, "workspace/skills/tea/scripts/boil.sh", "#!/bin/sh\n")
    put(root, "workspace-work/SOUL.md", "You work.")
    put(root, "skills/shared/SKILL.md", "Just a text.")
    put(
        root,
        "cron/jobs.json",
        {
            "version": 1,
            "jobs": [
                {
                    "id": "brief",
                    "name": "Morning brief",
                    "enabled": True,
                    "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "America/Los_Angeles"},
                    "payload": {"kind": "agentTurn", "message": "Summarise the night."},
                    "delivery": {
                        "mode": "announce",
                        "channel": "telegram",
                        "to": "-1001234:topic:9",
                    },
                },
                {
                    "id": "past",
                    "name": "Past",
                    "schedule": {"kind": "at", "at": "2020-01-01T10:00:00Z"},
                    "payload": {"kind": "systemEvent", "text": "Too late."},
                },
                {
                    "id": "often",
                    "agentId": "work",
                    "name": "Often",
                    "enabled": False,
                    "schedule": {"kind": "every", "everyMs": 3_600_000},
                    "payload": {"kind": "agentTurn", "message": "Look."},
                },
            ],
        },
    )
    sessions = "agents/main/sessions"
    put(
        root,
        f"{sessions}/sessions.json",
        {
            "agent:main:telegram:direct:424242": {"sessionId": "s1"},
            "agent:main:main": {"sessionId": "s2", "displayName": "at home"},
            "cron:brief": {"sessionId": "s3"},
        },
    )
    for session, text in (("s1", "hello from the phone"), ("s2", "hello"), ("s3", "run")):
        put_lines(
            root,
            f"{sessions}/{session}.jsonl",
            [
                {"type": "session", "id": session, "timestamp": "2026-11-01T10:00:00Z"},
                _openclaw_message("user", text, 1_761_990_000_000),
                _openclaw_message("assistant", "good day", 1_761_990_001_000),
                {"type": "message", "message": {"role": "toolResult", "content": "ls"}},
            ],
        )
    return root


def openclaw_sqlite_home(root: Path) -> Path:
    """A home of OpenClaw in its newer form: agents as entries, jobs and chats in SQLite."""
    entries = {"main": {"workspace": "~/.openclaw/workspace", "model": "ollama/qwen3:8b"}}
    telegram = {"botToken": TOKEN, "dmPolicy": "pairing"}
    config = {"agents": {"entries": entries}, "channels": {"telegram": telegram}}
    put(root, "openclaw.json", config)
    put(root, "workspace/SOUL.md", "You are new.")
    (root / "state").mkdir()
    (root / "agents/main/agent").mkdir(parents=True)
    job = {
        "id": "j1",
        "name": "Brief",
        "schedule": {"kind": "cron", "expr": "0 7 * * *"},
        "payload": {"kind": "agentTurn", "message": "Summarise."},
    }
    with closing(sqlite3.connect(root / "state/openclaw.sqlite")) as state, state:
        state.execute("CREATE TABLE cron_jobs (job_id, job_json, enabled, sort_order)")
        state.execute("INSERT INTO cron_jobs VALUES ('j1', ?, 0, 0)", (json.dumps(job),))
        state.execute("CREATE TABLE channel_pairing_allow_entries (channel_key, account_id, entry)")
        state.execute(
            "INSERT INTO channel_pairing_allow_entries VALUES ('telegram', 'default', '424242')"
        )
        state.execute("CREATE TABLE auth_profile_stores (store_key, store_json)")
    database = root / "agents/main/agent/openclaw-agent.sqlite"
    with closing(sqlite3.connect(database)) as agent, agent:
        agent.execute("CREATE TABLE session_nodes (session_key, current_session_id, entry_json)")
        agent.execute("CREATE TABLE transcript_events (session_id, seq, event_json)")
        agent.execute("CREATE TABLE auth_profile_store (store_key, store_json)")
        key = "agent:main:telegram:default:direct:424242"
        agent.execute("INSERT INTO session_nodes VALUES (?, 's1', '{}')", (key,))
        for seq, (role, text) in enumerate((("user", "hello"), ("assistant", "good day"))):
            event = json.dumps(_openclaw_message(role, text, 1_761_990_000_000 + seq))
            agent.execute("INSERT INTO transcript_events VALUES ('s1', ?, ?)", (seq, event))
    return root


def hermes_home(root: Path) -> Path:
    """A home of Hermes Agent with a profile beside it."""
    put(
        root,
        "config.yaml",
        """_config_version: 50
model:
  default: "anthropic/claude-opus-4.6"
  provider: "auto"
  base_url: "https://openrouter.ai/api/v1"
timezone: Europe/Vienna
agent:
  max_turns: 90
terminal:
  backend: local
mcp_servers:
  files: {command: npx}
""",
    )
    put(
        root,
        ".env",
        f"OPENROUTER_API_KEY={KEY}\nTELEGRAM_BOT_TOKEN={TOKEN}\n"
        f"TELEGRAM_ALLOWED_USERS={PERSON},77 # us\nTELEGRAM_HOME_CHANNEL={GROUP}\n"
        "DISCORD_BOT_TOKEN=not-ours-at-all\n",
    )
    put(root, "SOUL.md", "You are a messenger.")
    put(root, "memories/MEMORY.md", "The project uses pnpm.\n§\nThe server is in Graz.")
    put(root, "memories/USER.md", "Anna.\n§\nLikes short answers.")
    put(root, "skills/kitchen/tea/SKILL.md", SKILL)
    put(root, "profiles/coder/SOUL.md", "You code.")
    put(root, "profiles/coder/config.yaml", "model: {default: qwen3:8b, provider: ollama}\n")
    put(root, "auth.json", {"providers": {}})
    job = {"name": "Daily", "prompt": "Report.", "enabled": True, "state": "scheduled"}
    put(
        root,
        "cron/jobs.json",
        {
            "jobs": [
                {
                    **job,
                    "id": "a1",
                    "schedule": {"kind": "cron", "expr": "30 8 * * *"},
                    "deliver": "origin",
                    "origin": {"platform": "telegram", "chat_id": str(PERSON), "thread_id": None},
                    "skills": ["tea"],
                },
                {
                    **job,
                    "id": "a2",
                    "name": "Poll",
                    "schedule": {"kind": "interval", "minutes": 30},
                },
                {**job, "id": "a3", "name": "Shell", "no_agent": True, "script": "x.sh"},
            ]
        },
    )
    with closing(sqlite3.connect(root / "state.db")) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT,"
            " chat_id TEXT, thread_id TEXT, parent_session_id TEXT, title TEXT, started_at REAL)"
        )
        database.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT,"
            " content TEXT, timestamp REAL, active INTEGER DEFAULT 1)"
        )
        database.executemany(
            "INSERT INTO sessions VALUES (?, ?, NULL, ?, NULL, NULL, ?, ?)",
            [
                ("t1", "telegram", str(PERSON), "tea", 1_761_990_000.0),
                ("t0", "telegram", str(PERSON), "coffee", 1_761_900_000.0),
                ("c1", "cli", None, "at the desk", 1_761_980_000.0),
                ("j1", "cron", None, "job", 1_761_970_000.0),
            ],
        )
        database.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            [
                ("t1", "user", "is there tea?", 1_761_990_000.5),
                ("t1", "assistant", "there is", 1_761_990_001.5),
                ("t0", "user", "is there coffee?", 1_761_900_000.5),
                ("t1", "tool", "ls", 1_761_990_001.6),
                ("c1", "user", "hello", 1_761_980_000.5),
                ("j1", "user", "run", 1_761_970_000.5),
            ],
        )
    return root


def nanobot_home(root: Path) -> Path:
    """A home of nanobot."""
    put(
        root,
        "config.json",
        {
            "agents": {
                "defaults": {
                    "workspace": "~/.nanobot/workspace",
                    "model": "anthropic/claude-opus-4-5",
                    "provider": "auto",
                    "timezone": "Europe/Vienna",
                }
            },
            "providers": {"openrouter": {"apiKey": KEY}, "anthropic": {"apiKey": ""}},
            "channels": {
                "telegram": {"enabled": True, "token": TOKEN, "allowFrom": [str(PERSON)]},
                "matrix": {
                    "enabled": True,
                    "homeserver": "https://matrix.example",
                    "userId": "@bot:matrix.example",
                    "password": "a-long-password",
                    "e2eeEnabled": True,
                    "allowFrom": ["@anna:matrix.example"],
                },
                "slack": {"enabled": True},
            },
            "tools": {"mcpServers": {"files": {"command": "npx"}}},
        },
    )
    put(root, "pairing.json", {"approved": {"telegram": ["77|anna"]}, "pending": {}})
    put(root, "workspace/.nanobot/workspace-id", "0123abcd")
    put(root, "workspace/SOUL.md", "You are small.")
    put(root, "workspace/USER.md", "Anna.")
    put(root, "workspace/memory/MEMORY.md", "The bike is blue.")
    put(root, "workspace/skills/tea/SKILL.md", SKILL)
    put(root, "workspace/notes/list.txt", "milk")
    put_lines(
        root,
        "workspace/memory/history.jsonl",
        [{"cursor": 1, "timestamp": "2026-04-03 00:02", "content": "- We chose blue."}],
    )
    every = {"kind": "every", "everyMs": 7_200_000, "atMs": None, "expr": None, "tz": None}
    put(
        root,
        "workspace/cron/jobs.json",
        {
            "version": 1,
            "jobs": [
                {
                    "id": "n1",
                    "name": "water",
                    "enabled": True,
                    "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Vienna"},
                    "payload": {
                        "kind": "agent_turn",
                        "message": "Water the plants.",
                        "originChannel": "telegram",
                        "originChatId": str(PERSON),
                    },
                },
                {
                    "id": "n2",
                    "name": "heartbeat",
                    "schedule": every,
                    "payload": {"kind": "system_event", "message": ""},
                },
            ],
        },
    )
    for key, text in ((f"telegram:{PERSON}", "hello"), ("cli:direct", "hello at home")):
        stem = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
        put_lines(
            root,
            f"sessions/0123abcd/{stem}.jsonl",
            [
                {"_type": "metadata", "key": key, "created_at": "2026-11-01T10:00:00"},
                {"role": "user", "content": text, "timestamp": "2026-11-01T10:00:00"},
                {"role": "assistant", "content": "good day", "timestamp": "2026-11-01T10:00:01"},
                {"role": "tool", "content": "ls", "timestamp": "2026-11-01T10:00:01"},
            ],
        )
    return root
