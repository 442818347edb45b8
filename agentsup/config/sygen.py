"""Keys of entries written for Sygen: converted to ours, or reported with the reason why not.

A key whose loss does no harm gives a warning, so that such an entry loads unchanged. A key whose
silent loss would remove protection (a sandbox) is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.config.findings import KeyPath, Report, kind_of
from agentsup.config.mcp import translate_servers

RENAMED: Mapping[KeyPath, KeyPath] = {
    ("cli_timeout",): ("turn_timeout_s",),
    ("max_turns",): ("max_steps",),
    ("max_budget_usd",): ("budget", "per_turn_usd"),
    ("mcpServers",): ("mcp",),
    ("mcp_servers",): ("mcp",),
    ("context_servers",): ("mcp",),
    ("streaming", "edit_interval_seconds"): ("streaming", "edit_interval_s"),
    ("streaming", "enabled"): ("streaming", "mode"),
    ("can_call",): ("can_delegate_to",),
}
"""Keys with the same meaning under another name, or inside a block."""


def mode_of(is_shown: bool) -> str:
    """The streaming mode for a plain truth value."""
    return "live" if is_shown else "off"


NOT_SUPPORTED: Mapping[KeyPath, str] = {
    ("cli_parameters",): "engines are started with a fixed command line; see engine_options",
    ("max_session_messages",): "sessions don't end by themselves; /new starts a fresh one",
    ("idle_timeout_minutes",): "sessions don't end by themselves; /new starts a fresh one",
    ("session_age_warning_hours",): "sessions don't end by themselves; /new starts a fresh one",
    ("daily_reset_hour",): "sessions don't end by themselves; /new starts a fresh one",
    ("daily_reset_enabled",): "sessions don't end by themselves; /new starts a fresh one",
    ("interagent_token",): "each agent and each turn gets a token of its own",
    ("additional_directories",): "an agent's tools and files stay in its workspace",
    ("permission_mode_by_role",): "what a person's role may do is set in [people] of config.toml",
    ("log_level",): "one level holds for the whole daemon; see [log] in config.toml",
    ("heartbeat",): "agents are not woken by a heartbeat",
    ("cleanup",): "the store's own retention removes old rows",
    ("webhooks",): "one internal API serves all agents; see [api] in config.toml",
    ("api",): "one internal API serves all agents; see [api] in config.toml",
    ("language",): "each person is answered in the language of their messages",
    ("timeouts",): "an agent has turn_timeout_s and idle_timeout_s",
    ("tasks",): "tasks are made in the chat or by `agentsup tasks`",
    ("image",): "pictures are shown to the engine as they come",
    ("transcription",): "voice messages are set in [voice] of config.toml",
    ("scene",): "what is shown while an agent works is set by streaming",
    ("update_check",): "nothing asks for new versions; see `agentsup upgrade`",
    ("interagent_port",): "one internal API serves all agents; see [api] in config.toml",
    ("memory", "enabled"): "an agent always has its memory",
    ("matrix", "store_path"): "keys and sync state lie in the agent's own directory",
    ("streaming", "max_chars"): "long answers are split at the platform's own limit",
    ("streaming", "max_edit_failures"): "a failed edit falls back to a new message by itself",
    ("streaming", "append_mode"): "a failed edit falls back to a new message by itself",
    ("streaming", "sentence_break"): "answers are split between paragraphs and lines",
}
"""Keys that are accepted and have no effect, with the reason for the warning."""

_SPECIAL = ("transport", "file_access", "docker")
_CLI_PROVIDERS = ("claude", "codex", "gemini")
"""Providers in Sygen that are engines here, under the same names."""
_SAVED_EMPTY: tuple[KeyPath, ...] = (
    ("telegram_token",),
    *(
        ("matrix", key)
        for key in ("homeserver", "user_id", "password", "access_token", "device_id")
    ),
)
"""Texts that Sygen saves as "" if they are not set."""
_EVERYONE = "*"

ENTRY_KEYS = (*(key[0] for key in (*RENAMED, *NOT_SUPPORTED) if len(key) == 1), *_SPECIAL)
"""Every Sygen key that may be in an entry and is not one of ours."""


_TOUCHED = {key[0] for key in (*RENAMED, *NOT_SUPPORTED, *_SAVED_EMPTY)} | {
    *(*_SPECIAL, "provider", "mcp"),
}


@dataclass(slots=True)
class Translated:
    """An entry in our keys, and the location of each moved key in the text."""

    values: dict[str, Any]
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def written_at(self, where: KeyPath) -> KeyPath:
        """The key path in the text for a path in our keys."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.moved:
                return self.moved[where[:length]] + where[length:]
        return where


def translate(values: dict[str, Any], at: KeyPath, report: Report) -> Translated:
    """Convert an entry without nulls to our keys; ``at`` is its key path for findings.

    ``values`` is changed and becomes part of the result.
    """
    entry = Translated(values)
    for note in [each for each in values if each.startswith(("_", "//"))]:
        del values[note]
        report.warning((*at, note), f"{note[:60]} has no effect here")
    if not values.keys() & _TOUCHED:
        return entry
    _drop_saved_defaults(values, at, report)
    for key, reason in NOT_SUPPORTED.items():
        _drop(entry, key, reason, at, report)
    _drop_special(entry, at, report)
    for key, ours in RENAMED.items():
        _rename(entry, key, ours, at, report)
    translate_servers(values, entry.moved, at, report)
    _translate_transport(entry, at, report)
    if values.get("provider") in _CLI_PROVIDERS and "engine" not in values:
        # In Sygen the provider names the engine's program.
        values["engine"] = values.pop("provider")
        entry.moved["engine",] = ("provider",)
    return entry


def _drop_saved_defaults(values: dict[str, Any], at: KeyPath, report: Report) -> None:
    """Remove Sygen's saved defaults of settings that nobody made, and join two settings that are
    one here."""
    if values.get("telegram_token") == "" and not values.keys() & {"transport", "transports"}:
        report.warning(
            (*at, "telegram_token"), "telegram_token is empty: this agent has no bot there"
        )
    for key in _SAVED_EMPTY:
        holder = _holder(values, key)
        if holder is not None and holder.get(str(key[-1])) == "":
            del holder[str(key[-1])]
    streaming = values.get("streaming")
    if isinstance(streaming, dict) and isinstance(streaming.get("buffered"), bool):
        is_buffered = streaming.pop("buffered")
        if is_buffered and streaming.get("enabled") is not False:
            streaming.pop("enabled", None)
            streaming.setdefault("mode", "buffered")
    if values.get("can_call") in (_EVERYONE, [_EVERYONE]):
        del values["can_call"]  # "*" is the default


def _drop(entry: Translated, key: KeyPath, reason: str, at: KeyPath, report: Report) -> None:
    holder = _holder(entry.values, key)
    if holder is None or key[-1] not in holder:
        return
    if not _is_off(holder.pop(key[-1])):
        report.warning((*at, *key), f"{key[-1]} is not supported because {reason}")


def _drop_special(entry: Translated, at: KeyPath, report: Report) -> None:
    access = entry.values.pop("file_access", "workspace")
    if access != "workspace":
        report.warning(
            (*at, "file_access"),
            "file_access is not supported because an agent sends files of its workspace only",
        )
    docker = entry.values.pop("docker", None)
    if docker is True or (isinstance(docker, dict) and docker.get("enabled") not in (None, False)):
        report.error(
            (*at, "docker"),
            "docker is not supported because engines run on the machine of the daemon",
            "remove the key to accept that, or run the whole daemon in a container",
        )


def _rename(entry: Translated, key: KeyPath, ours: KeyPath, at: KeyPath, report: Report) -> None:
    holder = _holder(entry.values, key)
    if holder is None or key[-1] not in holder:
        return
    value = holder.pop(key[-1])
    if value is None:
        return
    target = entry.values
    for part in ours[:-1]:
        target = target.setdefault(str(part), {})
        if not isinstance(target, dict):
            return  # its own wrong type is reported where the entry is checked
    if ours[-1] in target:
        theirs, own = ".".join(map(str, key)), ".".join(map(str, ours))
        report.error((*at, *key), f"{theirs} and {own} are the same setting", "keep one of them")
        return
    if key == ("streaming", "enabled"):
        if not isinstance(value, bool):
            report.error((*at, *key), f"expected true or false, found {kind_of(value)}")
            return
        value = mode_of(value)
    target[str(ours[-1])] = value
    entry.moved[ours] = key


def _translate_transport(entry: Translated, at: KeyPath, report: Report) -> None:
    if "transport" not in entry.values:
        return
    transport = entry.values.pop("transport")
    several = entry.values.get("transports")
    if several is None or several == []:
        if not isinstance(transport, str):
            found = kind_of(transport)
            report.error((*at, "transport"), f"expected a text, found {found}")
            return
        entry.values["transports"] = [transport]
        entry.moved["transports",] = ("transport",)
        entry.moved["transports", 0] = ("transport",)
    elif not isinstance(several, list) or transport not in several:
        report.error(
            (*at, "transport"),
            "transport and transports contradict each other",
            "keep transports and remove transport",
        )


def _holder(values: dict[str, Any], key: KeyPath) -> dict[str, Any] | None:
    """The object that would hold ``key``, or None."""
    holder: Any = values
    for part in key[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else None


def _is_off(value: object) -> bool:
    """Whether a key only says "no" or nothing."""
    if isinstance(value, dict):
        return value.get("enabled") is False or all(_is_off(each) for each in value.values())
    return value is None or value is False or value in ([], "")
