"""Homes of OpenClaw, in both of its forms: JSON files, and since 2026.6 SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ForeignHome, names_for
from agentsup.cli.moving.gathered import Gathered
from agentsup.cli.moving.products.accounts import (
    job_times,
    matrix_account,
    model_fields,
    telegram_account,
)
from agentsup.cli.moving.products.openclaw_chats import read_chats
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import (
    chat_of,
    look,
    mapping,
    objects,
    parsed,
    text_of,
    texts,
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

STATE: Final = "state/openclaw.sqlite"
"""The database that all agents there share."""
_CONFIGS: Final = ("openclaw.json", "clawdbot.json", "moltbot.json")
_SERVED: Final = ("telegram", "matrix", "defaults", "modelByChannel")
_MOST_JOBS: Final = 500
_PERSONA: Final = ("SOUL.md", "IDENTITY.md")
_NOTES: Final = ("USER.md", "MEMORY.md")
_NOT_HERE: Final = {
    "hooks": "there are no webhooks; call POST /interagent/send instead",
    "plugins": "they are programs of OpenClaw; tool servers are declared as mcp",
    "browser": "agents drive no browser; a tool server can",
    "talk": "there is no voice",
    "tts": "there is no voice",
    "mcp": "tool servers are programs that are started for you: write them into mcp of an entry",
}


def looks_like(source: SourceFolder) -> bool:
    """Whether the folder is a home of OpenClaw."""
    return any(source.has(name) for name in _CONFIGS)


def read(source: SourceFolder) -> ForeignHome:
    """Everything that is found there."""
    config = next((c for n in _CONFIGS if (c := mapping(source.json5(n)))), {})
    own = {**mapping(config.get("env")), **mapping(look(config, "env", "vars"))}
    given = {k: v for k, v in own.items() if isinstance(v, str)}
    found = Gathered("openclaw", source, {**given, **variables(source.text(".env"))})
    listed = _listed(config)
    main = next((i for i, e in listed.items() if e.get("default") is True), next(iter(listed)))
    main = MAIN if MAIN in listed else main
    names = names_for([*listed], main)
    if main != MAIN:
        found.remark(f"the name {main}", "the first agent is called main here")
    found.remark_keys(config, _NOT_HERE, "openclaw.json: ")
    for channel, value in mapping(config.get("channels")).items():
        if channel not in _SERVED and look(value, "enabled") is not False:
            found.remark_channel(f"channel {channel}")
    if look(config, "agents", "defaults", "heartbeat", "every"):
        found.remark_heartbeat("heartbeat")
    bots = _bots(found, config, names, main)
    for there, entry in listed.items():
        agent = _Agent(found, config, there, names[there], entry)
        agent.read(bots.get(there, {}))
    _read_schedules(found, names, main)
    read_chats(found, names)
    return found.home()


def _listed(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The agents by id, in order: ``entries`` (newer), ``list``, or the one that is not named."""
    entries = mapping(look(config, "agents", "entries"))
    found = {name: mapping(value) for name, value in entries.items()}
    for each in objects(look(config, "agents", "list")):
        if name := text_of(each.get("id"), 100):
            found.setdefault(name, each)
    return {k: v for k, v in found.items() if "/" not in k and k not in (".", "..")} or {MAIN: {}}


def _bots(
    found: Gathered, config: Mapping[str, Any], names: Mapping[str, str], main: str
) -> dict[str, dict[str, Any]]:
    """The accounts of each agent (by its id), by the bindings. One account serves one agent."""
    bots: dict[str, dict[str, Any]] = {}
    for channel, read_account in (("telegram", telegram_account), ("matrix", matrix_account)):
        given = mapping(look(config, "channels", channel))
        accounts = {k: mapping(v) for k, v in mapping(given.get("accounts")).items()}
        shared = {key: value for key, value in given.items() if key != "accounts"}
        for account, own in (accounts or {"default": {}}).items():
            agent = _bound(config, channel, account, main)
            if not given or agent not in names:
                continue
            more: dict[str, Any] = {}
            if channel == "telegram":
                more["paired"] = _paired(found.source, account)
            merged = {**shared, **own}
            if merged.get("tokenFile") and not merged.get("botToken"):
                merged["botToken"] = _token_file(found.source, text_of(merged["tokenFile"], 1_000))
            fields = read_account(found, merged, names[agent], **more)
            known = bots.setdefault(agent, {})
            if known.keys() & fields.keys():
                found.remark(
                    f"{channel} account {account}", f"{names[agent]} has another one already"
                )
            else:
                known |= fields
    return bots


def _bound(config: Mapping[str, Any], channel: str, account: str, main: str) -> str:
    for binding in objects(config.get("bindings")):
        match = mapping(binding.get("match"))
        if match.get("channel") != channel or match.get("peer") or binding.get("type") == "acp":
            continue
        if match.get("accountId", "default") in (account, "*"):
            return text_of(binding.get("agentId"), 100)
    return main


def _paired(source: SourceFolder, account: str) -> list[str]:
    """The people who were let in by a code."""
    names = [f"telegram-{account}-allowFrom.json"]
    if account == "default":
        names.append("telegram-allowFrom.json")
    for name in names:
        if found := texts(look(source.json(f"credentials/{name}"), "allowFrom")):
            return found
    rows = source.rows(
        STATE,
        "SELECT account_id, entry FROM channel_pairing_allow_entries WHERE channel_key = 'telegram'",
    )
    return [text_of(row["entry"], 100) for row in rows if row["account_id"] == account]


def _token_file(source: SourceFolder, path: str) -> str:
    """The token in a file, if that lies in the home."""
    inside = path.removeprefix("~/.openclaw/").removeprefix(f"{source.root}/")
    return "" if inside.startswith(("/", "~")) else source.text(inside).strip()


@dataclass(frozen=True, slots=True)
class _Agent:
    """One agent: its id there, its name here, and its entry."""

    found: Gathered
    config: Mapping[str, Any]
    there: str
    name: str
    entry: Mapping[str, Any]

    def _default(self, *path: str) -> Any:
        """A value that agents have if their entries name no other."""
        return look(self.config, "agents", "defaults", *path)

    def read(self, bots: Mapping[str, Any]) -> None:
        """Add the agent, with its ``bots``."""
        source, found = self.found.source, self.found
        fields = {**self._model(), **bots}
        identity = {**mapping(self.config.get("identity")), **mapping(self.entry.get("identity"))}
        if called := text_of(identity.get("name") or self.entry.get("name"), 64):
            fields["nickname"] = called
        if zone := text_of(self._default("userTimezone"), 100):
            fields["user_timezone"] = zone
        folder = self._workspace()
        own_skills = skills(found, f"{folder}/skills") if folder else ()
        own_skills = (*skills(found, "skills"), *own_skills)
        if not folder:
            self._remark_sandbox()
            found.agent(self.name, fields, skills=own_skills)
            return
        files = workspace_files(
            source,
            folder,
            skip=(*_PERSONA, *_NOTES, "BOOTSTRAP.md", "HEARTBEAT.md", "BOOT.md"),
            skip_below=("memory", "skills", "canvas"),
        )
        if any(each.target in ("AGENTS.md", "TOOLS.md") for each in files):
            found.remark(
                f"{self.name}: AGENTS.md, TOOLS.md", f"{RULES}; they lie in the workspace as files"
            )
        for each in ("HEARTBEAT.md", "BOOT.md"):
            if source.text(f"{folder}/{each}").strip():
                found.remark_heartbeat(f"{self.name}: {each}")
        self._remark_sandbox()
        found.agent(
            self.name,
            fields,
            persona(source, *(f"{folder}/{each}" for each in _PERSONA)),
            skills=own_skills,
            files=files,
            notes=notes(source, *(f"{folder}/{each}" for each in _NOTES)),
            memories=memories(source, f"{folder}/memory", "openclaw"),
        )

    def _remark_sandbox(self) -> None:
        if look(self.entry, "sandbox", "mode") or self._default("sandbox", "mode"):
            self.found.remark(
                "sandbox", "what agents run is kept from the home by [fence] of config.toml"
            )

    def _workspace(self) -> str:
        """The folder of the agent's workspace in the home; empty if it lies elsewhere."""
        source, given = self.found.source, text_of(self.entry.get("workspace"), 1_000)
        shared = self._default("workspace") or look(self.config, "agent", "workspace")
        default = text_of(shared, 1_000)
        inside = _inside(source, given or default)
        is_missing = not inside or not source.is_folder(inside)
        if is_missing and (given or (default and inside is None)):
            self.found.remark(
                f"{self.name}: the workspace {given or default}",
                "only what lies in this folder is read; copy it there as workspace",
            )
            inside = None
        candidates = [inside] if given and inside else self._usual_workspaces(inside)
        marks = (*_PERSONA, *_NOTES, "AGENTS.md")
        for each in candidates:
            if each == "workspace" and self.name != MAIN:
                continue  # main's
            if each == inside == given or any(source.has(f"{each}/{mark}") for mark in marks):
                return each
        return ""

    def _usual_workspaces(self, shared: str | None) -> list[str]:
        """The folders in which it may lie, if its entry does not say; ``shared``: that of all."""
        ours = [f"{shared}/{self.there}", shared] if shared else []
        return [*ours, f"workspace-{self.there}", f"workspace/{self.there}", "workspace"]

    def _model(self) -> dict[str, Any]:
        chosen = (
            self.entry.get("model") or self._default("model") or look(self.config, "agent", "model")
        )
        model = text_of(chosen if isinstance(chosen, str) else look(chosen, "primary"), 200)
        named = model.partition("/")[0]
        provider = mapping(look(self.config, "models", "providers", named))
        key = provider.get("apiKey") or self._profile_key(named)
        fields = model_fields(self.found, model, key=key, base_url=provider.get("baseUrl"))
        if model and not fields:
            self.found.remark(
                f"{self.name}: the model {model}",
                f"{named} is not known here; agentsup setup chooses one",
            )
        for each in texts(look(chosen, "fallbacks"))[:1]:
            spare = model_fields(self.found, each, key=self._profile_key(each.partition("/")[0]))
            if spare and fields:
                fields |= {
                    f"fallback_{ours}": spare[theirs]
                    for ours, theirs in (
                        *(("model", "model"), ("provider", "provider")),
                        *(("engine", "engine"), ("options", "engine_options")),
                    )
                }
        return fields

    def _profile_key(self, provider: str) -> object:
        """The key of a provider among the profiles by which an agent signs in."""
        source, agent = self.found.source, f"agents/{self.there}/agent"
        stores = [look(source.json(f"{agent}/auth-profiles.json"), "profiles")]
        for path, table in (
            (f"{agent}/openclaw-agent.sqlite", "auth_profile_store"),
            (STATE, "auth_profile_stores"),
        ):
            if source.has(path):
                rows = source.rows(path, f"SELECT store_json FROM {table}", 20)  # noqa: S608 - one of two names
                stores += [look(parsed(row["store_json"]), "profiles") for row in rows]
        for store in stores:
            for profile in mapping(store).values():
                is_key = look(profile, "type") in ("api_key", None)
                if look(profile, "provider") == provider and is_key:
                    return look(profile, "key") or look(profile, "keyRef")
        return None


def _inside(source: SourceFolder, path: str) -> str | None:
    for start in ("~/.openclaw/", f"{source.root}/", "$HOME/.openclaw/"):
        if path.startswith(start):
            path = path.removeprefix(start)
            break
    path = path.rstrip("/")
    return (
        path
        if path and not path.startswith(("/", "~", "$")) and ".." not in path.split("/")
        else None
    )


def _read_schedules(found: Gathered, names: Mapping[str, str], main: str) -> None:
    source = found.source
    jobs = objects(look(source.json("cron/jobs.json"), "jobs"))
    rows = source.rows(
        STATE,
        "SELECT job_id, job_json, enabled FROM cron_jobs ORDER BY sort_order, job_id",
        _MOST_JOBS,
    )
    for row in rows:
        jobs.append(
            {**parsed(row["job_json"]), "id": row["job_id"], "enabled": row["enabled"] != 0}
        )
    for job in {
        text_of(each.get("id") or each.get("jobId")): each for each in jobs[:_MOST_JOBS]
    }.values():
        key = text_of(job.get("id") or job.get("jobId"), 200)
        name, payload = text_of(job.get("name"), 200) or key, mapping(job.get("payload"))
        prompt = text_of(payload.get("message") or payload.get("text"), MAX_PROMPT_CHARS)
        times = job_times(mapping(job.get("schedule")))
        if not prompt or times is None:
            why = "its time is not understood" if prompt else "it does not ask an agent"
            found.remark(f"schedule {name}", why)
            continue
        delivery = mapping(job.get("delivery"))
        if delivery.get("mode") == "webhook":
            found.remark(f"schedule {name}: its webhook", "results go to a chat or stay here")
        to = chat_of(
            text_of(delivery.get("channel"), 50),
            text_of(delivery.get("to"), 300),
            str(delivery.get("threadId") or ""),
        )
        agent = names.get(text_of(job.get("agentId"), 100), names[main])
        is_paused = job.get("enabled") is False
        found.schedule(agent, key, name, prompt, times, to=to, is_paused=is_paused)
