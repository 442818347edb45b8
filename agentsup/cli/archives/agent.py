"""One agent as an archive: its entry without secrets, its memories, its workspace and its role."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agentsup.agents.memory import MemoryEntry, rows
from agentsup.cli.archives.home import write_archive
from agentsup.config import Home, is_secret_name, is_secret_text
from agentsup.kit.archive.contents import Contents
from agentsup.kit.archive.packing import Packer
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.name import name_problem
from agentsup.store import Reader, agents, glance

AGENT: Final = "agent"
"""The ``kind`` of an archive of one agent."""
ENTRY: Final = "entry.json"
MEMORIES: Final = "memories.json"
NOTES: Final = "MEMORY.md"
WORKSPACE: Final = "workspace"
ROLES: Final = "roles"
SKILLS: Final = "skills"
_SHARED: Final = f"{WORKSPACE}/SHAREDMEMORY.md"
"""A copy of what all agents of the home share."""
_REFERENCES: Final = ("env:", "file:")
_OPEN: Final = ("engine_options", "fallback_options", "mcp", "mcpServers")
"""Fields in which any text may be a secret, whatever its name."""
_GIVEN: Final = ("env", "headers")
"""Settings that go to a program or a server: all of them may be secret."""


@dataclass(frozen=True, slots=True)
class PortableEntry:
    """An entry that may be shown: a secret in it is a reference."""

    values: dict[str, Any]
    replaced: tuple[str, ...]
    """The references that stand for what was written in clear."""
    references: tuple[str, ...]
    """All references in it."""


def portable(entry: Mapping[str, Any]) -> PortableEntry:
    """The entry with a reference to a file in place of each secret in clear."""
    cleaning = _Cleaning(str(entry.get("name", AGENT)))
    values = {key: cleaning.of(each, (key,)) for key, each in entry.items()}
    references = tuple(dict.fromkeys(cleaning.references))
    return PortableEntry(values, tuple(cleaning.replaced), references)


class _Cleaning:
    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.replaced: list[str] = []
        self.references: list[str] = []

    def of(self, value: Any, path: tuple[str, ...]) -> Any:
        """The value at ``path``, without secrets."""
        if isinstance(value, Mapping):
            return {key: self.of(each, (*path, str(key))) for key, each in value.items()}
        if isinstance(value, list):
            return [self.of(each, path) for each in self._arguments(value)]
        if not isinstance(value, str) or not value:
            return value
        if value.startswith(_REFERENCES):
            self.references.append(value)
            return value
        if not _may_be_secret(value, path):
            return value
        reference = f"file:secrets/{self._agent}-{path[-1].lower().replace('_', '-')}"
        while reference in self.replaced:
            reference += "-2"
        self.replaced.append(reference)
        self.references.append(reference)
        return reference

    def _arguments(self, value: list[Any]) -> Iterator[Any]:
        """The items of a list, without those that give a secret as an option of a command line."""
        is_next = False
        for each in value:
            option = isinstance(each, str) and each.startswith("-") and is_secret_name(each)
            if option:
                self.replaced.append(f"the option {each.partition('=')[0]}, which is left out")
            elif not is_next:
                yield each
            is_next = bool(option and "=" not in each)


def _may_be_secret(text: str, path: tuple[str, ...]) -> bool:
    if is_secret_name(path[-1]) or _has_secret_in_address(text):
        return True
    if path[0] not in _OPEN:
        return False
    is_given = len(path) > 1 and path[-2] in _GIVEN
    return is_given or is_secret_text(text)


def _has_secret_in_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) and (
        "@" in parts.netloc or is_secret_name(parts.query)
    )


def export_agent(home: Home, entry: Mapping[str, Any], target: Path, *, at_ms: int) -> Contents:
    """Write the agent of ``entry`` (of ``declared``) into the new file ``target``, whether or not a
    daemon runs. Raises as ``write_archive`` does, and ``StoreUnavailable``."""
    name, shown = str(entry["name"]), portable(entry)

    def fill(packer: Packer) -> Mapping[str, Any]:
        packer.content(ENTRY, json.dumps(shown.values, ensure_ascii=False, indent=2).encode())
        memories = _memories(home, name)
        packer.content(MEMORIES, json.dumps(memories, ensure_ascii=False).encode())
        folder = home.agent_dir(name)
        if folder.is_dir():
            packer.tree(folder, skips=_stays_out)
        _add_role(packer, home, entry.get("role"))
        _add_skills(packer, home, entry.get("skills"))
        facts = {"agent": name, "memories": len(memories)}
        return {**facts, "replaced": list(shown.replaced), "references": list(shown.references)}

    return write_archive(target, AGENT, at_ms, fill)


def _stays_out(path: str) -> bool:
    """Whether a path is left out: programs' own files, such as sign-ins, and what is not the
    agent's own."""
    top = path.partition("/")[0]
    return (
        top not in {WORKSPACE, NOTES}
        or path == _SHARED
        or path.startswith(f"{WORKSPACE}/inbox/.agentsup-")
    )


def _add_role(packer: Packer, home: Home, role: object) -> None:
    if not isinstance(role, str) or not GuardedFolder(home.roles.parent).has(ROLES):
        return
    known = [name for name, _ in GuardedFolder(home.roles).list("", 1000)[0]]
    name = next((each for each in known if each.casefold() == role.casefold()), None)
    if name is not None:
        packer.folder(ROLES)
        packer.folder(f"{ROLES}/{name}")
        packer.tree(home.roles / name, to=f"{ROLES}/{name}")


def _add_skills(packer: Packer, home: Home, skills: object) -> None:
    """Add the files of those skills that are names."""
    folder, wanted = home.root / SKILLS, skills if isinstance(skills, list) else []
    names = {f"{each}.md" for each in wanted if isinstance(each, str) and not name_problem(each)}
    if folder.is_dir() and names:
        packer.folder(SKILLS)
        packer.tree(folder, to=SKILLS, skips=lambda path: path.partition("/")[2] not in names)


def _memories(home: Home, name: str) -> list[dict[str, Any]]:
    if not home.state_db.exists():
        return []
    return glance(home.state_db, lambda reader: [*_read_memories(reader, name)])


def _read_memories(reader: Reader, name: str) -> Iterator[dict[str, Any]]:
    ids = [
        each for each, known in agents.names(reader).items() if known.casefold() == name.casefold()
    ]
    for agent_id in ids:
        after = 0
        while page := rows.every(reader, agent_id, after=after):
            yield from map(_moved, page)
            after = page[-1].seq


def _moved(entry: MemoryEntry) -> dict[str, Any]:
    """An entry as ``POST /agents/{name}/memory/import`` takes it."""
    return {
        "key": entry.key,
        "content": entry.content,
        "kind": entry.kind.value,
        "scope": entry.scope.value,
        "tags": list(entry.tags),
        "confidence": entry.confidence,
        "person": entry.person,
        "role": entry.role,
        "pinned": entry.pinned,
        "shared": bool(entry.shared_by),
        "use_count": entry.use_count,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    }
