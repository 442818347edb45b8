"""The plan of an import: the parts of the foreign home that are new here. Reads, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from agentsup.cli.commands.home_files import EMPTY, TEMPLATES
from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.moving.foreign_home import (
    ForeignAgent,
    ForeignChat,
    ForeignHome,
    ForeignSchedule,
    Remark,
)
from agentsup.cli.moving.source import MAX_FILE, SourceFolder
from agentsup.config import MAX_BYTES, Home, listed, parse_agents
from agentsup.kit.clock import SystemClock
from agentsup.kit.safe_files import GuardedFolder, read_plain
from agentsup.model.agent import MAIN
from agentsup.model.errors import ConfigErrors
from agentsup.model.message import DeliverTo
from agentsup.model.task import NewTask
from agentsup.tasks import imported

_UNSET: Final[tuple[Any, ...]] = (None, "", [], {}, "auto")
"""Values of main's entry that say nothing yet."""
_OF_MODEL: Final = ("engine", "model", "provider", "engine_options")
_CHATS: Final = "workspace/moved/chats"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The effects that an import would have. ``fields`` are the new fields of entries, by agent."""

    found: ForeignHome
    fields: Mapping[str, Mapping[str, Any]]
    new_agents: tuple[str, ...]
    files: Mapping[str, bytes] = field(repr=False)
    """New files of the home, by their path in it."""
    executable: frozenset[str] = frozenset()
    tasks: tuple[tuple[ForeignSchedule, NewTask], ...] = ()
    chats: tuple[ForeignChat, ...] = ()
    """Chats that go on on a platform; the others are among the files."""
    remarks: tuple[Remark, ...] = ()


def plan_move(source: SourceFolder, found: ForeignHome, home: Home) -> MovePlan:
    """Compare what was found with what is here. Raises ``CommandFailed`` if agents.json is wrong."""
    found = replace(found, chats=_one_each(found.chats))
    entries = _entries(home)
    remarks: list[Remark] = []
    fields: dict[str, Mapping[str, Any]] = {}
    for agent in found.agents:
        known = entries.get(agent.name.casefold())
        if known is None or agent.name == MAIN:
            fields[agent.name] = _new_fields(agent, known or {}, remarks)
        else:
            remarks.append(
                Remark(f"{agent.name}: its entry", "there is one of that name; it stays")
            )
    files, executable = _files(source, found, home, remarks)
    tasks = _tasks(found, remarks)
    return MovePlan(
        found=replace(found, secrets={}),
        fields=fields,
        new_agents=tuple(name for name in fields if name.casefold() not in entries),
        files={**files, **_secrets(found, home, fields, remarks)},
        executable=executable,
        tasks=tasks,
        chats=tuple(chat for chat in found.chats if chat.channel),
        remarks=(*found.remarks, *remarks, *_skipped(source)),
    )


def _entries(home: Home) -> dict[str, Mapping[str, Any]]:
    data = EMPTY.encode()
    with failing_as(f"{home.agents_json} can't be read"), suppress(FileNotFoundError):
        data = read_plain(home.agents_json, MAX_BYTES)
    try:
        parse_agents(data)
    except ConfigErrors as error:
        raise CommandFailed(f"{home.agents_json} has an error; mend it first: {error}") from None
    return {str(e["name"]).casefold(): e for e in listed(data.decode("utf-8-sig")).values}


def _new_fields(
    agent: ForeignAgent, known: Mapping[str, Any], remarks: list[Remark]
) -> dict[str, Any]:
    fields = {key: value for key, value in agent.fields.items() if value not in _UNSET}
    if known.get("model") or known.get("engine", "auto") != "auto":
        # A model and where it is belong together.
        fields = {key: value for key, value in fields.items() if key not in _OF_MODEL}
    new = {
        key: value
        for key, value in fields.items()
        if known.get(key) in _UNSET or key == "engine_options"
    }
    differing = [key for key in fields.keys() - new.keys() if known.get(key) != fields[key]]
    if differing:
        what = f"{agent.name}: {', '.join(sorted(differing))}"
        remarks.append(Remark(what, "set here already; it stays"))
    return new


def _files(
    source: SourceFolder, found: ForeignHome, home: Home, remarks: list[Remark]
) -> tuple[dict[str, bytes], frozenset[str]]:
    """The files that are not here yet, and which of them the owner may run."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    for agent in found.agents:
        base = home.agent_dir(agent.name).relative_to(home.root)
        if agent.notes:
            files[f"{base}/MEMORY.md"] = f"{agent.notes}\n".encode()
        for each in agent.files:
            data = source.data(each.source)
            if data is not None:
                files[f"{base}/workspace/{each.target}"] = data
                if source.is_executable(each.source):
                    executable.add(f"{base}/workspace/{each.target}")
        for path, text in agent.texts.items():
            files[f"{base}/workspace/{path}"] = text.encode()
    for chat in found.chats:
        if not chat.channel:
            base = home.agent_dir(chat.agent).relative_to(home.root)
            name = f"{base}/{_CHATS}/{_file_name(chat)}"
            while f"{name}.md" in files:
                name += "-more"
            files[f"{name}.md"] = chat_markdown(chat).encode()
    for skill in found.skills:
        files[f"skills/{skill.name}.md"] = f"{skill.text}\n".encode()
    if found.shared.strip() and not _has_text(home):
        files[home.shared_memory.name] = f"{found.shared.strip()}\n".encode()
    elif found.shared.strip():
        remarks.append(Remark("SHAREDMEMORY.md", "there is one here already; it stays"))
    return _missing(files, home, remarks), frozenset(executable)


def _missing(files: Mapping[str, bytes], home: Home, remarks: list[Remark]) -> dict[str, bytes]:
    folder, shared = GuardedFolder(home.root), home.shared_memory.name
    try:
        new = {path: data for path, data in files.items() if path == shared or not folder.has(path)}
    except OSError as error:
        # Such as a link in place of a folder, which nothing is written through.
        where = f"{home.root}: {error.filename}"
        raise CommandFailed(
            f"{where} can't be used: {error.strerror or error}; nothing was changed"
        ) from None
    staying = [path for path in files.keys() - new.keys() if _read(folder, path) != files[path]]
    if staying:
        what = f"{len(staying)} files, such as {min(staying)}"
        remarks.append(Remark(what, "they are here already; they stay"))
    return new


def _read(folder: GuardedFolder, path: str) -> bytes:
    """A file of the home; empty if there is none that can be read."""
    try:
        return folder.head(path, MAX_FILE)[0]
    except OSError:
        return b""


def _has_text(home: Home) -> bool:
    """Whether the shared memory here says anything of its own."""
    name = home.shared_memory.name
    text = _read(GuardedFolder(home.root), name)
    return bool(text.strip()) and text != _read(GuardedFolder(TEMPLATES), name)


def _secrets(
    found: ForeignHome, home: Home, fields: Mapping[str, Mapping[str, Any]], remarks: list[Remark]
) -> dict[str, bytes]:
    """The files of those secrets that the new fields name."""
    wanted = str(dict(fields))
    folder = GuardedFolder(home.root)
    files: dict[str, bytes] = {}
    for name, secret in found.secrets.items():
        path = f"secrets/{name}"
        if f"file:{path}" not in wanted:
            continue
        if not folder.has(path):
            files[path] = f"{secret}\n".encode()
        elif _read(folder, path).strip() != secret.encode():
            remarks.append(Remark(f"secrets/{name}", "there is another one here already; it stays"))
    return files


def _tasks(
    found: ForeignHome, remarks: list[Remark]
) -> tuple[tuple[ForeignSchedule, NewTask], ...]:
    now = SystemClock().now_ms()
    tasks: list[tuple[ForeignSchedule, NewTask]] = []
    for each in found.schedules:
        new = NewTask(prompt=each.prompt, name=each.name, schedule=each.schedule)
        if problem := imported.problem_of(new, at=now):
            why = problem.partition("; ")[0]
            remarks.append(Remark(f"{each.agent}: schedule {each.name}", why))
            continue
        channel, conversation = each.channel, each.conversation
        if not channel:
            channel, conversation = _own_chat(found, each.agent)
        if channel:
            chat = DeliverTo("chat", channel=channel, conversation=conversation)
            new = replace(new, deliver_to=chat)
        else:
            remarks.append(
                Remark(f"{each.agent}: where results of {each.name} go", "they stay with the task")
            )
        tasks.append((each, new))
    return tuple(tasks)


def _own_chat(found: ForeignHome, agent: str) -> tuple[str, str]:
    """The chat of the first person with the agent's bot, or with main's."""
    for each in found.agents:
        people = each.fields.get("allowed_user_ids")
        if each.name == agent and people and each.fields.get("telegram_token"):
            return "telegram", str(people[0])
    return "", ""


def _one_each(chats: Iterable[ForeignChat]) -> tuple[ForeignChat, ...]:
    """The chats; of several in one conversation the latest goes on, the others are for reading."""
    chats = tuple(chats)
    latest: dict[tuple[str, str, str], ForeignChat] = {}
    for chat in chats:
        where = (chat.agent, chat.channel, chat.conversation)
        if where not in latest or latest[where].lines[-1].at < chat.lines[-1].at:
            latest[where] = chat
    goes_on = {id(chat) for chat in latest.values()}
    return tuple(
        chat if id(chat) in goes_on else replace(chat, channel="", conversation="")
        for chat in chats
    )


def _file_name(chat: ForeignChat) -> str:
    staying = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in chat.key)
    return staying.strip("-")[:120] or "chat"


def chat_markdown(chat: ForeignChat) -> str:
    """A chat as a file for reading."""
    head = f"# {' '.join(chat.title.split())[:200] or chat.key}\n"
    parts = [head]
    for line in chat.lines:
        when = datetime.fromtimestamp(min(line.at, 253402300799000) / 1000, UTC)
        said = "Person" if line.role == "user" else "Agent"
        at = f" ({when:%Y-%m-%d %H:%M} UTC)" if line.at else ""
        parts.append(f"\n**{said}**{at}\n\n{line.text}\n")
    return "".join(parts)


def _skipped(source: SourceFolder) -> list[Remark]:
    """Remarks about what could not be read: the first of each reason, with their number."""
    by_reason: dict[str, list[str]] = {}
    for path, why in source.skipped.items():
        by_reason.setdefault(why, []).append(path or ".")
    return [
        Remark(paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more", why)
        for why, paths in by_reason.items()
    ]
