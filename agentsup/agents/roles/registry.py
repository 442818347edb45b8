"""All roles: the shipped ones, and those of the home's ``roles`` directory, which is watched.

An event only causes a check; a slow periodic check finds edits for which no event came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from agentsup.agents.roles.role import MAX_CHARS, Role, RoleSource, RoleStatus, order_of
from agentsup.config import REREAD_S, ConfigFiles, WatchedDirectory, may_be_a_programs, tool_problem
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.safe_files import read_plain
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.tool import Tool

_log = get_logger(__name__)

FILE = "AGENT.md"
SHIPPED = Path(__file__).parent / "builtin"
_MAX_BYTES = 4 * MAX_CHARS + 1
MISSING_S = 3.0
"""Seconds between checks for a directory that does not exist; most homes have none."""


@dataclass(frozen=True, slots=True)
class RoleRegistry:
    """The roles as read from the files. ``broken`` are directories whose file can't be used."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    findings: tuple[ConfigError, ...] = ()
    broken: frozenset[str] = frozenset()

    def find(self, name: str) -> Role | None:
        """The role of that name, compared without case."""
        return self.roles.get(name.casefold())

    def all(self) -> tuple[Role, ...]:
        """Every role, in the order in which ``partition`` assigns tools to them."""
        return tuple(sorted(self.roles.values(), key=order_of))

    def served(self, tools: Iterable[Tool]) -> tuple[Role, ...]:
        """The active roles that can use at least one of the tools, or need none."""
        known = tuple(tools)
        return tuple(r for r in self.all() if r.status is RoleStatus.ACTIVE and r.is_served(known))


@cache
def shipped() -> Mapping[str, Role]:
    """The roles that come with the program. Blocks on the disk, once."""
    found: dict[str, Role] = {}
    for name in BUILTIN_ROLES:
        text = (SHIPPED / name / FILE).read_text(encoding="utf-8")
        found[name] = _parse(text, f"{name}/{FILE} (built in)", source=RoleSource.BUILTIN)
    return found


def read_roles(directory: Path, last: RoleRegistry | None = None) -> RoleRegistry:
    """Read every ``<directory>/<name>/AGENT.md``. Blocks on the disk.

    A broken file is a finding, and its role stays as it was in ``last``. The same holds for a file
    whose ceiling names an unknown tool; if ``last`` has no such role, the role is used all the
    same.
    """
    roles = dict(shipped())
    findings: list[ConfigError] = []
    broken: set[str] = set()
    for path in _files(directory, findings):
        try:
            role = _read(path)
            _check_name(role, path, roles)
        except ConfigErrors as error:
            folder = path.parent.name.casefold()
            broken.add(folder)
            findings.extend(error.findings)
            earlier = last.find(folder) if last is not None else None
            if earlier is not None and earlier.source is RoleSource.USER:
                roles[folder] = earlier
            continue
        known = last.find(role.name) if last is not None else None
        unknown = _unknown_tools(role, path)
        if unknown and known is not None and known.source is RoleSource.USER:
            role = known
        findings.extend(unknown)
        roles[role.name.casefold()] = role
    return RoleRegistry(roles, tuple(findings), frozenset(broken))


def _parse(text: str, path: str, source: RoleSource = RoleSource.USER) -> Role:
    # Loaded with the first file: an idle home reads none.
    from agentsup.agents.roles.parse import parse_role  # noqa: PLC0415

    return parse_role(text, path, source=source)


def _files(directory: Path, findings: list[ConfigError]) -> list[Path]:
    try:
        folders = sorted(each for each in directory.iterdir() if not each.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        reason = f"the directory can't be read: {error.strerror}"
        findings.append(ConfigError(reason, path=str(directory)))
        return []
    return [each / FILE for each in folders if (each / FILE).exists()]


def _read(path: Path) -> Role:
    try:
        text = read_plain(path, _MAX_BYTES).decode("utf-8")
    except OSError as error:
        problem = f"the file can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"the file is not UTF-8 at byte {error.start}"
    else:
        return _parse(text, str(path))
    raise ConfigErrors((ConfigError(problem, path=str(path), line=1, column=1),))


def _check_name(role: Role, path: Path, known: Mapping[str, Role]) -> None:
    """Check that the role has the name of its directory, and not that of a shipped role.

    Raises ``ConfigErrors``.
    """
    problem, hint = "", None
    if role.name.casefold() in BUILTIN_ROLES:
        problem = f"the role {role.name!r} is built in and can't be taken over"
        hint = "call yours otherwise, such as my-" + role.name.casefold()
    elif role.name != path.parent.name:
        problem = f"the role is called {role.name!r}, but its directory {path.parent.name!r}"
        hint = "give both the same name"
    elif role.name.casefold() in known:
        problem = f"there is a role {known[role.name.casefold()].name!r} already"
        hint = "names are compared without case"
    if problem:
        raise ConfigErrors((_finding(path, "name", problem, hint),))


def _unknown_tools(role: Role, path: Path) -> list[ConfigError]:
    """A finding for each unknown tool in the ceiling.

    Our tools and those of coding agents are known; a name that may be a tool server's is accepted.
    """
    found = []
    for pattern in role.max_tools or ():
        problem = tool_problem(pattern)
        if problem is not None and not may_be_a_programs(pattern):
            found.append(_finding(path, "max_tools", *problem))
    return found


def _finding(path: Path, key: str, problem: str, hint: str | None) -> ConfigError:
    """A finding about a key of the front matter, with the line where it stands."""
    lines = read_plain(path, _MAX_BYTES).decode("utf-8", "replace").splitlines()
    line = next((i for i, line in enumerate(lines, 1) if line.startswith(key)), 2)
    return ConfigError(problem, path=str(path), line=line, column=1, field=key, hint=hint)


class LiveRoleRegistry:
    """The current roles. They are read at first use, and again when ``refresh`` is called."""

    def __init__(
        self,
        directory: Path,
        tools: Callable[[], Iterable[Tool]],
        files: ConfigFiles | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``tools`` gives the tools of the live registry; ``files`` reads the files in a pool.
        ``on_change`` is called when the roles may have changed.
        """
        self.directory = directory
        self.files = files or ConfigFiles()
        self.tools = tools
        self.known: RoleRegistry | None = None
        """The roles as last read; None before the first ``refresh``."""
        self._on_change = on_change
        self._seen: object = None
        self._lock = asyncio.Lock()

    async def registry(self) -> RoleRegistry:
        """The roles, read now if they were never read."""
        return self.known if self.known is not None else await self.refresh()

    async def follow(self) -> None:
        """As ``refresh``, but reads nothing while nobody has asked and the home has no role."""
        try:
            step = partial(_files, self.directory, [])
            has_any = bool(await self.files.run(step, key=f"{self.directory}/*"))
        except OSError:
            has_any = True  # which ``refresh`` reports
        if has_any or self.known is not None:
            await self.refresh()

    async def refresh(self) -> RoleRegistry:
        """Read the files if they have changed, and return the roles."""
        async with self._lock:
            before = self.known
            try:
                seen, found = await self.files.run(self._look, key=f"{self.directory}/*")
            except OSError as error:
                why = f"the roles can't be read: {error.strerror or error}"
                seen, found = None, _unread(ConfigError(why, path=str(self.directory)), before)
            if found is not None:
                self.known, self._seen = found, seen
                if before is None or before.findings != found.findings:
                    for finding in found.findings:
                        _log.warning("a role is not used as it stands", finding=str(finding))
                self._on_change()
            assert self.known is not None, "a first look finds a registry"
            return self.known

    def _look(self) -> tuple[object, RoleRegistry | None]:
        """The signature of the files and, if it has changed, the roles in them."""
        seen = _signature(self.directory)
        if self.known is not None and seen == self._seen:
            return seen, None
        return seen, read_roles(self.directory, self.known)


def _unread(finding: ConfigError, before: RoleRegistry | None) -> RoleRegistry:
    known = before or RoleRegistry(shipped())
    return RoleRegistry(known.roles, (finding,), known.broken)


def _signature(directory: Path) -> object:
    """A value that changes with any edit of the files: inode, size and time of each."""
    found: list[object] = []
    for path in _files(directory, []):
        try:
            status = path.stat()
        except OSError:
            found.append((str(path), None))
        else:
            found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return found


async def watch_roles(shelf: LiveRoleRegistry, *, stop: asyncio.Event, clock: Clock) -> None:
    """Refresh the roles when their files change, until ``stop`` is set.

    A directory that can't be watched is checked every ``REREAD_S`` seconds.
    """
    directory = WatchedDirectory(shelf.directory, clock, missing_s=MISSING_S, files=shelf.files)
    while not stop.is_set():
        try:
            async with aclosing(directory.looks(stop)) as looks:
                async for _ in looks:
                    await shelf.follow()
        except (OSError, RuntimeError) as error:
            _log.warning("roles can't be watched; they are looked at", reason=str(error))
            await is_set_within(stop, REREAD_S)
