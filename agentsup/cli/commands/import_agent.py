"""``import`` of an exported agent: what its archive has, and how it comes into a home."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from agentsup.cli.archives.agent import (
    AGENT,
    ENTRY,
    MEMORIES,
    NOTES,
    ROLES,
    SKILLS,
    WORKSPACE,
    portable,
)
from agentsup.cli.commands.background import looks
from agentsup.cli.commands.backups import read_archive, tell_left_out
from agentsup.cli.commands.home_files import change_file
from agentsup.cli.connect.client import DaemonClient, DaemonRefused, segment
from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.show import CommandOutput
from agentsup.config import Home, environment_of, load, with_entry
from agentsup.kit.archive.contents import FILE, ArchiveRefused, Contents
from agentsup.kit.archive.unpacking import content_of, unpack
from agentsup.kit.safe_files import GuardedFolder
from agentsup.kit.terminal import clean, clean_line
from agentsup.model.agent import MAIN
from agentsup.model.name import name_problem
from agentsup.model.principal import PERSON_MARK

UNPACKED: Final = ".importing"
_MAX_ENTRY: Final = 1024**2
_MAX_MEMORIES: Final = 512 * 1024**2
_AT_ONCE: Final = 50
_KNOWN_S: Final = 60.0
_ROLE: Final = re.compile(rf"{ROLES}/([^/]+)")


@dataclass(frozen=True, slots=True)
class AgentImport:
    """The content of an archive, with what must be put right by hand."""

    name: str
    entry: dict[str, Any]
    memories: tuple[dict[str, Any], ...]
    strangers: int
    """Memories of people who are not in ``[people]`` here; they stay out."""
    files: int
    role: str
    """A role that comes along; empty if there is none, or one of that name here."""
    skills: tuple[str, ...]
    """Files of skills that are not here yet."""
    missing: tuple[str, ...]
    """References that lead to nothing here."""
    shown: str
    """The entry as a person may see it: it decides which programs run, who may talk to the agent, and
    where its keys go. Whoever made the archive wrote it."""


def read_import(home: Home, file: Path, contents: Contents, name: str | None) -> AgentImport:
    """Plan the import of ``contents``, which was checked. Raises ``CommandFailed``,
    ``ArchiveRefused``, ``OSError``."""
    entry = _json(content_of(file, contents, ENTRY, most=_MAX_ENTRY), dict)
    memories = _json(content_of(file, contents, MEMORIES, most=_MAX_MEMORIES), list)
    entry["name"] = name = name or str(entry.get("name"))
    if problem := name_problem(name):
        raise CommandFailed(f"{name!r} can't be an agent's name: {problem}; give another with --as")
    if name.casefold() == MAIN:
        raise CommandFailed("main is here already; give it another name with --as")
    shown = portable(entry)  # not what the manifest says of it
    known = {PERSON_MARK + each for each in load(home).settings.people}
    wanted = tuple(each for each in memories if _is_known(each, known))
    roles = {found[1] for each in contents.entries if (found := _ROLE.fullmatch(each.path))}
    here = {each.casefold() for each in _names(home.roles)}
    role = next((each for each in roles if each.casefold() not in here), "")
    return AgentImport(
        name,
        entry,
        wanted,
        len(memories) - len(wanted),
        sum(each.kind == FILE and each.path.startswith(WORKSPACE) for each in contents.entries),
        role,
        tuple(
            each.path
            for each in contents.entries
            if each.kind == FILE
            and each.path.startswith(f"{SKILLS}/")
            and not (home.root / each.path).exists()
        ),
        tuple(_missing(home, shown.references)),
        json.dumps(shown.values, ensure_ascii=False, indent=2),
    )


def _json(data: bytes, kind: type) -> Any:
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise ArchiveRefused("it has no entry of an agent")
    return found


def _is_known(memory: object, people: set[str]) -> bool:
    if not isinstance(memory, Mapping):
        raise ArchiveRefused("its memories can't be read")
    person = memory.get("person")
    return isinstance(person, str) and (not person.startswith(PERSON_MARK) or person in people)


def _names(folder: Path) -> list[str]:
    try:
        return [name for name, _ in GuardedFolder(folder).list("", 1000)[0]]
    except FileNotFoundError:
        return []


def _missing(home: Home, references: Iterable[str]) -> Iterator[str]:
    environ = environment_of(home)
    for each in references:
        kind, _, target = each[:500].partition(":")
        if kind == "env" and not environ.get(target):
            yield f"{target} in {home.environment} (a line {target}=…)"
        elif kind == "file" and not (home.root / Path(target).expanduser()).is_file():
            yield str(home.root / Path(target).expanduser())


def bring(
    home: Home, file: Path, contents: Contents, plan: AgentImport, client: DaemonClient
) -> int:
    """Add the agent of ``plan``; returns how many memories came along.

    Raises ``CommandFailed``, ``ArchiveRefused`` and ``OSError``; then nothing is changed.
    """
    folder = home.agent_dir(plan.name)
    if folder.exists():
        raise CommandFailed(
            f"{folder} is there already, of this agent or one of before; give another name with --as, "
            "or move it away. Nothing was changed"
        )
    fresh = home.root / UNPACKED
    with contextlib.ExitStack() as undo:
        shutil.rmtree(fresh, ignore_errors=True)
        undo.callback(shutil.rmtree, fresh, ignore_errors=True)
        unpack(file, contents, fresh)
        with contextlib.ExitStack() as placed:
            folder.mkdir(mode=0o700, parents=True)
            placed.callback(shutil.rmtree, folder, ignore_errors=True)
            for name in (WORKSPACE, NOTES):
                if (fresh / name).exists():
                    (fresh / name).rename(folder / name)
            for name in (f"{ROLES}/{plan.role}" if plan.role else "", *plan.skills):
                if name:
                    _move_in(fresh / name, home.root / name, placed)
            change_file(home, lambda text: with_entry(text, plan.entry))
            placed.pop_all()
    return _remember(plan, client)


def _move_in(path: Path, to: Path, placed: contextlib.ExitStack) -> None:
    to.parent.mkdir(mode=0o700, exist_ok=True)
    path.rename(to)
    placed.callback(shutil.rmtree if to.is_dir() else Path.unlink, to)


def _remember(plan: AgentImport, client: DaemonClient) -> int:
    """Hand the memories to the daemon, once it knows the agent. Raises ``CommandFailed``."""
    if not plan.memories:
        return 0
    path = f"/agents/{segment(plan.name)}"
    for _ in looks(_KNOWN_S):
        with contextlib.suppress(DaemonRefused):
            client.get(path)
            break
    added, left = 0, iter(plan.memories)
    try:
        while some := list(islice(left, _AT_ONCE)):
            added += client.post(f"{path}/memory/import", {"memories": some})["count"]
    except CommandFailed as failure:
        raise CommandFailed(
            f"the agent {plan.name} is here, but only {added} of its {len(plan.memories)} memories: "
            f"{failure}"
        ) from None
    return added


def import_archive(
    location: DaemonLocation, file: Path, screen: CommandOutput, *, name: str | None, apply: bool
) -> None:
    """Print the content of the archive at ``file``, and import it if ``apply`` is set. Raises
    ``CommandFailed``."""
    home = location.home
    if not home.root.is_dir():
        raise CommandFailed(
            f"there is no home at {home.root}; make one with `{location.command('up')}`"
        )
    contents = read_archive(file, home, AGENT)
    with failing_as(f"{file} can't be used", ArchiveRefused, end=". Nothing was changed"):
        plan = read_import(home, file, contents, name)
        _tell(screen, file, contents, plan)
        if not apply:
            screen.say("Nothing was changed. To do it, give --apply.")
            return
        # The daemon alone writes what agents remember.
        client = DaemonClient.to(location)
        client.get("/status")
        count = bring(home, file, contents, plan, client)
    screen.say(f"{plan.name} is here, with {count} memories.")


def _tell(screen: CommandOutput, file: Path, contents: Contents, plan: AgentImport) -> None:
    screen.say(f"{file} is whole: the agent {plan.name}")
    screen.say("Its entry, which decides what it runs, who may talk to it and where keys go:")
    screen.say(clean(plan.shown))
    screen.say(f"{len(plan.memories)} memories, {plan.files} files in its workspace")
    if plan.role:
        screen.say(clean_line(f"its role {plan.role}"))
    for each in plan.skills:
        screen.say(clean_line(f"its skill {each}"))
    if plan.strangers:
        screen.prose(
            f"{plan.strangers} memories of people who are not in [people] here stay out; name "
            "them in config.toml first to have them."
        )
    tell_left_out(screen, contents.left_out)
    if plan.missing:
        screen.say("It needs, and this home does not have:")
    for each in plan.missing:
        screen.say(clean_line(f"  {each}"))
