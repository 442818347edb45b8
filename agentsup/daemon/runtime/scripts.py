"""Check of the scripts that agents name: each must be readable and valid.

``validate``, an edit and a start use the same check. An edit that names an unusable script is
refused, and an agent whose script breaks later is degraded until it is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentsup.config import ConfigFinding, KeyPath, LocateField, Severity, timed_reads
from agentsup.engines.scripted import build_script, parse_script, read_script, script_path
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigError

_LIMIT_S = 1.0
_ENGINES = ("scripted", "auto")
"""The engines that answer by a script; it has no effect on others."""
_MOST_CACHED = 512

T = TypeVar("T")
Problem = OSError | ConfigError | None
Version = tuple[int, int, int] | None
"""Modification time (ns), size (bytes) and inode of a file; None if they can't be read."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A script that an agent's entry names: a file, or rules in the entry."""

    field: str
    source: str
    rules: Any


class ScriptCheck:
    """Finds an error in each script that its engine would refuse, with its file and line.

    A file is read once, however many agents use it, and again when it has changed.
    """

    def __init__(self) -> None:
        self._known: dict[Path | str, tuple[Version, Problem]] = {}
        """By file, or by the text of rules, which have no version."""
        self._seen: dict[Path, Version] = {}
        """By file, the version that was last read or reported as changed."""

    def __call__(self, spec: AgentSpec, locate: LocateField, home: Path) -> Iterator[ConfigFinding]:
        """Implements ``config.snapshot.Check``. Reads the files."""
        for named in _scripts_of(spec):
            problem = self._examined(named, home)
            if problem is not None:
                yield _finding(problem, named, spec, locate)

    def known_problem(self, spec: AgentSpec, home: Path) -> str:
        """The problem of the agent's own script in the last check; empty if there is none. Reads
        nothing."""
        own = next((one for one in _scripts_of(spec) if one.field == "engine_options"), None)
        if own is None:
            return ""
        _, problem = self._known.get(_key(own, home), (None, None))
        return _said(problem, own, spec) if problem is not None else ""

    def has_changed(self) -> bool:
        """Whether a file changed since it was last read; reported once per change. Blocks."""
        for path, seen in list(self._seen.items()):
            found = _in_time(partial(_version, path), path)
            version = None if isinstance(found, OSError) else found
            if version != seen:
                # No read may follow: no agent may name the file any more, or agents.json may be
                # broken.
                self._seen[path] = version
                return True
        return False

    def _examined(self, named: _Named, home: Path) -> Problem:
        for cache in (self._known, self._seen):
            if len(cache) >= _MOST_CACHED:
                cache.clear()
        key = _key(named, home)
        known = self._known.get(key)
        if isinstance(key, Path):
            found = _in_time(partial(_read, key, None if known is None else known[0]), key)
            if isinstance(found, OSError):
                known = None, found
            elif known is None or found[1] is not None:
                # Only the read is timed: on a busy machine a sound script takes long to be checked.
                check = partial(parse_script, found[1] or b"", path=str(key))
                known = found[0], _problem_of(check)
            self._seen[key] = known[0]
        elif known is None:
            known = None, _problem_of(partial(build_script, named.rules, path="rules"))
        self._known[key] = known
        return known[1]


def _scripts_of(spec: AgentSpec) -> Iterator[_Named]:
    if spec.engine in _ENGINES:
        yield _named("engine_options", spec.engine_options)
    has_fallback = spec.fallback_engine or spec.fallback_model or spec.fallback_provider
    if has_fallback and (spec.fallback_engine or spec.engine) in _ENGINES:
        yield _named("fallback_options", spec.fallback_options)


def _named(field: str, options: Mapping[str, Any]) -> _Named:
    return _Named(field, str(options.get("script") or ""), options.get("rules") or [])


def _key(named: _Named, home: Path) -> Path | str:
    return script_path(named.source, str(home)) if named.source else repr(named.rules)


def _in_time(step: Callable[[], T], path: Path) -> T | OSError:
    """The result of ``step``, or the error if it fails or takes too long. A read of a file that
    hangs is not started twice."""
    try:
        return timed_reads().run(step, _LIMIT_S, key=f"{path}")
    except OSError as error:
        return error


def _version(path: Path) -> Version:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path, known: Version) -> tuple[Version, bytes | None]:
    """The file's version and its content; None in place of that if the version is ``known``."""
    version = _version(path)
    return version, None if version == known else read_script(path)


def _problem_of(read: Callable[[], object]) -> Problem:
    try:
        read()
    except (OSError, ConfigError) as error:
        return error
    return None


def _said(problem: OSError | ConfigError, named: _Named, spec: AgentSpec) -> str:
    if isinstance(problem, ConfigError):
        return f"the script of {spec.name}: {problem.message}"
    why = problem.strerror or str(problem) or type(problem).__name__
    return f"the script {named.source!r} of {spec.name} can't be read: {why}"


def _finding(
    problem: OSError | ConfigError, named: _Named, spec: AgentSpec, locate: LocateField
) -> ConfigFinding:
    text = _said(problem, named, spec)
    if not isinstance(problem, ConfigError):
        at = locate(spec.name, (named.field, "script"))
        return at.finding(text, "its path is relative to the home", Severity.ERROR)
    where, path, line, column = problem.field, problem.path, problem.line, problem.column
    if not named.source:
        at = locate(spec.name, (named.field, "rules", *_index(where)))
        where = f"{at.field}: {where}" if where else at.field
        path, line, column = at.path, at.line, at.column
    return ConfigFinding(Severity.ERROR, text, path, line, column, where, problem.hint)


def _index(where: str | None) -> KeyPath:
    """The index of the rule in a finding's location ("rule 2, step 1"); empty without one."""
    number = (where or "").removeprefix("rule ").partition(",")[0]
    return (int(number) - 1,) if number.isdigit() else ()
