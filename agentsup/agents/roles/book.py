"""All roles that there are: the shipped ones, and those of the home's ``roles`` directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agentsup.agents.roles.parse import MAX_CHARS, parse_role
from agentsup.agents.roles.role import Role, Source, Status, order_of
from agentsup.config.files import ConfigFiles
from agentsup.config.unknown_names import may_be_a_programs, tool_problem
from agentsup.kit.planted import read_plain
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.tool import Tool
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

FILE = "AGENT.md"
SHIPPED = Path(__file__).parent / "builtin"
_MAX_BYTES = 4 * MAX_CHARS + 1


@dataclass(frozen=True, slots=True)
class RoleBook:
    """What one look at the files found. ``broken`` are directories whose file can't be used."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    findings: tuple[ConfigError, ...] = ()
    broken: frozenset[str] = frozenset()

    def find(self, name: str) -> Role | None:
        """The role of that name, compared without case."""
        return self.roles.get(name.casefold())

    def all(self) -> tuple[Role, ...]:
        """Every role in the order in which tools are given to them."""
        return tuple(sorted(self.roles.values(), key=order_of))

    def served(self, tools: Iterable[Tool]) -> tuple[Role, ...]:
        """The active roles that have something to work with among the tools."""
        known = tuple(tools)
        return tuple(r for r in self.all() if r.status is Status.ACTIVE and r.is_served(known))


@cache
def shipped() -> Mapping[str, Role]:
    """The roles that come with the program. Blocks on the disk, once."""
    found: dict[str, Role] = {}
    for name in BUILTIN_ROLES:
        text = (SHIPPED / name / FILE).read_text(encoding="utf-8")
        found[name] = parse_role(text, f"{name}/{FILE} (built in)", source=Source.BUILTIN)
    return found


def read_roles(directory: Path, last: RoleBook | None = None) -> RoleBook:
    """Look at every ``<directory>/<name>/AGENT.md``. Blocks on the disk.

    A broken file is a finding; the role it had in ``last`` stays as it was then. So does one whose
    ceiling names a tool that there is not; where there was none before, it is taken without that name.
    """
    roles = dict(shipped())
    findings: list[ConfigError] = []
    broken: set[str] = set()
    for path in _files(directory, findings):
        try:
            role = _read(path)
            _check_place(role, path, roles)
        except ConfigErrors as error:
            folder = path.parent.name.casefold()
            broken.add(folder)
            findings.extend(error.findings)
            kept = last.find(folder) if last is not None else None
            if kept is not None and kept.source is Source.USER:
                roles[folder] = kept
            continue
        known = last.find(role.name) if last is not None else None
        unknown = _unknown_tools(role, path)
        if unknown and known is not None and known.source is Source.USER:
            role = known
        findings.extend(unknown)
        roles[role.name.casefold()] = role
    return RoleBook(roles, tuple(findings), frozenset(broken))


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
        return parse_role(text, str(path))
    raise ConfigErrors((ConfigError(problem, path=str(path), line=1, column=1),))


def _check_place(role: Role, path: Path, known: Mapping[str, Role]) -> None:
    """A role is called as its directory, and never as a shipped one."""
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
        line = _line_of("name", path)
        found = ConfigError(problem, path=str(path), line=line, column=1, field="name", hint=hint)
        raise ConfigErrors((found,))


def _unknown_tools(role: Role, path: Path) -> list[ConfigError]:
    """A finding for each name in the ceiling that is neither ours nor a coding agent's, nor can be
    a tool server's."""
    found = []
    for pattern in role.max_tools or ():
        problem = tool_problem(pattern)
        if problem is None or may_be_a_programs(pattern):
            continue
        message, hint = problem
        line = _line_of("max_tools", path)
        found.append(
            ConfigError(message, path=str(path), line=line, column=1, field="max_tools", hint=hint)
        )
    return found


def _line_of(key: str, path: Path) -> int:
    lines = read_plain(path, _MAX_BYTES).decode("utf-8", "replace").splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.startswith(key)), 2)


class RoleShelf:
    """The book as it is now. Read at first use, and again whenever ``refresh`` is called."""

    def __init__(
        self,
        directory: Path,
        tools: Callable[[], Iterable[Tool]],
        files: ConfigFiles | None = None,
    ) -> None:
        """``tools`` gives the live registry; ``files`` reads."""
        self.directory = directory
        self.files = files or ConfigFiles()
        self.tools = tools
        self._book: RoleBook | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Hears that the roles are others than before."""
        self._seen: object = None
        self._lock = asyncio.Lock()

    @property
    def known(self) -> RoleBook | None:
        """The roles as last read; None before the first look."""
        return self._book

    async def book(self) -> RoleBook:
        """The roles that there are."""
        return self._book if self._book is not None else await self.refresh()

    async def refresh(self) -> RoleBook:
        """Look at the files again, and read them where they are others than before."""
        async with self._lock:
            before = self._book
            try:
                seen, found = await self.files.run(self._look, key=f"{self.directory}/*")
            except OSError as error:
                why = f"the roles can't be read: {error.strerror or error}"
                seen, found = None, _unread(ConfigError(why, path=str(self.directory)), before)
            if found is not None:
                self._book, self._seen = found, seen
                if before is None or before.findings != found.findings:
                    for finding in found.findings:
                        _log.warning("a role is not used as it stands", finding=str(finding))
                self.on_change()
            assert self._book is not None, "a first look finds a book"
            return self._book

    def _look(self) -> tuple[object, RoleBook | None]:
        """What the files look like now, and, where they are others than before, what they say."""
        seen = _signature(self.directory)
        if self._book is not None and seen == self._seen:
            return seen, None
        return seen, read_roles(self.directory, self._book)


def _unread(finding: ConfigError, before: RoleBook | None) -> RoleBook:
    known = before or RoleBook(shipped())
    return RoleBook(known.roles, (finding,), known.broken)


def _signature(directory: Path) -> object:
    """What changes with any edit of the files; their content is not read for it."""
    found: list[object] = []
    for path in _files(directory, []):
        try:
            status = path.stat()
        except OSError:
            found.append((str(path), None))
        else:
            found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return found
