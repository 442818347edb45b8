"""Homes of OpenClaw, in both of its forms: JSON files, and since 2026.6 SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ForeignAgent, ForeignHome, ForeignSchedule, names_for
from agentsup.cli.moving.products.accounts import (
    Keyring,
    job_times,
    matrix_account,
    model_fields,
    telegram_account,
)
from agentsup.cli.moving.products.openclaw_chats import chats
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
    gathered = Gathered()
    own = {**mapping(config.get("env")), **mapping(look(config, "env", "vars"))}
    keys = Keyring(
        {**{k: v for k, v in own.items() if isinstance(v, str)}, **variables(source.text(".env"))}
    )
    listed = _listed(config)
    main = next((i for i, e in listed.items() if e.get("default") is True), next(iter(listed)))
    main = MAIN if MAIN in listed else main
    names = names_for([*listed], main)
    if main != MAIN:
        gathered.remark(f"the name {main}", "the first agent is called main here")
    gathered.remark_keys(config, _NOT_HERE, "openclaw.json: ")
    for channel, value in mapping(config.get("channels")).items():
        if channel not in _SERVED and look(value, "enabled") is not False:
            gathered.remark(
                f"channel {channel}", "people talk over Telegram, Matrix, page and terminal"
            )
    if look(config, "agents", "defaults", "heartbeat", "every"):
        gathered.remark("heartbeat", "agents have no heartbeat; make a task with a schedule")
    bots = _bots(source, config, names, main, keys, gathered)
    agents = [
        _agent(source, config, there, names[there], listed[there], bots, keys, gathered)
        for there in listed
    ]
    return ForeignHome(
        product="openclaw",
        agents=tuple(agents),
        schedules=tuple(_schedules(source, names, main, gathered)),
        chats=tuple(chats(source, names)),
        skills=tuple(gathered.skills.values()),
        secrets=keys.secrets,
        remarks=tuple(gathered.remarks),
    )


def _listed(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The agents by id, in order: ``entries`` (newer), ``list``, or the one that is not named."""
    entries = mapping(look(config, "agents", "entries"))
    found = {name: mapping(value) for name, value in entries.items()}
    for each in objects(look(config, "agents", "list")):
        if name := text_of(each.get("id"), 100):
            found.setdefault(name, each)
    return {k: v for k, v in found.items() if "/" not in k and k not in (".", "..")} or {MAIN: {}}


def _bots(
    source: SourceFolder,
    config: Mapping[str, Any],
    names: Mapping[str, str],
    main: str,
    keys: Keyring,
    gathered: Gathered,
) -> dict[str, dict[str, Any]]:
    """The accounts of each agent (by its id), by the bindings. One account serves one agent."""
    found: dict[str, dict[str, Any]] = {}
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
                more["paired"] = _paired(source, account)
            merged = {**shared, **own}
            if merged.get("tokenFile") and not merged.get("botToken"):
                merged["botToken"] = _token_file(source, text_of(merged["tokenFile"], 1_000))
            fields = read_account(merged, names[agent], keys, gathered, **more)
            known = found.setdefault(agent, {})
            if known.keys() & fields.keys():
                gathered.remark(
                    f"{channel} account {account}", f"{names[agent]} has another one already"
                )
            else:
                known |= fields
    return found


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


def _agent(
    source: SourceFolder,
    config: Mapping[str, Any],
    there: str,
    name: str,
    entry: Mapping[str, Any],
    bots: Mapping[str, Mapping[str, Any]],
    keys: Keyring,
    gathered: Gathered,
) -> ForeignAgent:
    fields = {**model_of(source, config, there, entry, name, keys, gathered), **bots.get(there, {})}
    identity = {**mapping(config.get("identity")), **mapping(entry.get("identity"))}
    if called := text_of(identity.get("name") or entry.get("name"), 64):
        fields["nickname"] = called
    if zone := text_of(look(config, "agents", "defaults", "userTimezone"), 100):
        fields["user_timezone"] = zone
    folder = _workspace(source, config, there, name, entry, gathered)
    own_skills = skills(source, f"{folder}/skills", gathered) if folder else ()
    shared = skills(source, "skills", gathered)
    prompt = persona(source, *(f"{folder}/{each}" for each in _PERSONA)) if folder else ""
    prompt = with_skills(prompt, (*shared, *own_skills), gathered.skills)
    files = (
        workspace_files(
            source,
            folder,
            skip=(*_PERSONA, *_NOTES, "BOOTSTRAP.md", "HEARTBEAT.md", "BOOT.md"),
            skip_below=("memory", "skills", "canvas"),
        )
        if folder
        else ()
    )
    if any(each.target in ("AGENTS.md", "TOOLS.md") for each in files):
        gathered.remark(
            f"{name}: AGENTS.md, TOOLS.md", f"{RULES}; they lie in the workspace as files"
        )
    for each in ("HEARTBEAT.md", "BOOT.md"):
        if folder and source.text(f"{folder}/{each}").strip():
            gathered.remark(
                f"{name}: {each}", "agents have no heartbeat; make a task with a schedule"
            )
    if look(entry, "sandbox", "mode") or look(config, "agents", "defaults", "sandbox", "mode"):
        gathered.remark(
            "sandbox", "what agents run is kept from the home by [fence] of config.toml"
        )
    by_target = {each.target: each for each in (*files, *shared, *own_skills)}
    return ForeignAgent(
        name,
        {**fields, **({"prompt": prompt} if prompt else {})},
        notes=notes(source, *(f"{folder}/{each}" for each in _NOTES)) if folder else "",
        memories=memories(source, f"{folder}/memory", "openclaw") if folder else (),
        files=tuple(by_target.values()),
    )


def _workspace(
    source: SourceFolder,
    config: Mapping[str, Any],
    there: str,
    name: str,
    entry: Mapping[str, Any],
    gathered: Gathered,
) -> str:
    """The folder of the agent's workspace in the home; empty if it lies elsewhere."""
    given = text_of(entry.get("workspace"), 1_000)
    default = text_of(
        look(config, "agents", "defaults", "workspace") or look(config, "agent", "workspace"), 1_000
    )
    inside = _inside(source, given or default)
    is_missing = not inside or not source.is_folder(inside)
    if is_missing and (given or (default and inside is None)):
        gathered.remark(
            f"{name}: the workspace {given or default}",
            "only what lies in this folder is read; copy it there as workspace",
        )
        inside = None
    candidates = (
        [inside]
        if given and inside
        else [
            *([f"{inside}/{there}", inside] if inside else []),
            *(f"workspace-{there}", f"workspace/{there}"),
            *(["workspace"] if name == MAIN else []),
        ]
    )
    marks = (*_PERSONA, *_NOTES, "AGENTS.md")
    for each in candidates:
        if each and (
            each == inside == given or any(source.has(f"{each}/{mark}") for mark in marks)
        ):
            if each == "workspace" and name != MAIN:
                continue
            return each
    return ""


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


def _schedules(
    source: SourceFolder, names: Mapping[str, str], main: str, gathered: Gathered
) -> Iterable[ForeignSchedule]:
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
            gathered.remark(f"schedule {name}", why)
            continue
        delivery = mapping(job.get("delivery"))
        if delivery.get("mode") == "webhook":
            gathered.remark(f"schedule {name}: its webhook", "results go to a chat or stay here")
        to = chat_of(
            text_of(delivery.get("channel"), 50),
            text_of(delivery.get("to"), 300),
            str(delivery.get("threadId") or ""),
        )
        agent = names.get(text_of(job.get("agentId"), 100), names[main])
        is_paused = job.get("enabled") is False
        yield ForeignSchedule(agent, f"openclaw:{key}", name, prompt, times, is_paused, *to)


def model_of(
    source: SourceFolder,
    config: Mapping[str, Any],
    there: str,
    entry: Mapping[str, Any],
    name: str,
    keys: Keyring,
    gathered: Gathered,
) -> dict[str, Any]:
    chosen = (
        entry.get("model")
        or look(config, "agents", "defaults", "model")
        or look(config, "agent", "model")
    )
    model = text_of(chosen if isinstance(chosen, str) else look(chosen, "primary"), 200)
    named = model.partition("/")[0]
    provider = mapping(look(config, "models", "providers", named))
    key = provider.get("apiKey") or _profile_key(source, there, named)
    fields = model_fields(model, "", keys, key=key, base_url=provider.get("baseUrl"))
    if model and not fields:
        gathered.remark(
            f"{name}: the model {model}", f"{named} is not known here; agentsup setup chooses one"
        )
    for each in texts(look(chosen, "fallbacks"))[:1]:
        spare = model_fields(
            each, "", keys, key=_profile_key(source, there, each.partition("/")[0])
        )
        if spare and fields:
            fields |= {
                f"fallback_{ours}": spare[theirs]
                for ours, theirs in (
                    *(("model", "model"), ("provider", "provider")),
                    *(("engine", "engine"), ("options", "engine_options")),
                )
            }
    return fields


def _profile_key(source: SourceFolder, there: str, provider: str) -> object:
    """The key of a provider among the profiles by which an agent signs in."""
    agent = f"agents/{there}/agent"
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
            if look(profile, "provider") == provider and look(profile, "type") in ("api_key", None):
                return look(profile, "key") or look(profile, "keyRef")
    return None
