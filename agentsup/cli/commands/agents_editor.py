"""``agents edit``: agents.json, or one entry of it, in the person's editor.

What was typed is never lost: a text with an error can be edited again, or stays in a file that is
named. Nothing wrong is written, and a file that changed meanwhile is not overwritten.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agentsup.agents.roles import read_roles
from agentsup.cli.commands.home_files import agents_text, change_file, difference, entry_span
from agentsup.cli.commands.send import NOTHING_NAMED
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import (
    ChangePlan,
    ConfigFinding,
    Home,
    LocateField,
    Severity,
    advice,
    diff,
    finding_of,
    load,
    read_environment,
    validate,
)
from agentsup.daemon.runtime import DaemonEngines, ScriptCheck
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.detached import run_in_terminal
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import WHOLE_FILE, ConfigErrors

EDITORS: Final = ("VISUAL", "EDITOR")
_FALLBACK: Final = "vi"


@dataclass(frozen=True, slots=True)
class EditedFile:
    """The result of an edit: the lines that differ, its effects on agents, and the copy before."""

    lines: list[str]
    effects: list[str]
    backup: str


def edit(
    home: Home, name: str | None, editor: Callable[[Path], None], again: Callable[[str], bool]
) -> EditedFile | None:
    """Let a person edit agents.json, or the entry called ``name``; None if nothing was changed.

    ``again`` is told what is wrong, and says whether to edit once more. Raises ``CommandFailed`` if
    the person gives up; the text stays in a file then.
    """
    before = agents_text(home)
    begin, end = (0, len(before)) if name is None else entry_span(before, name)
    indent = before[before.rfind("\n", 0, begin) + 1 : begin]
    indent = indent if not indent.strip() else ""
    shown = before[begin:end].replace(f"\n{indent}", "\n").rstrip() + "\n"
    path = _draft(shown)
    while True:
        try:
            editor(path)
            typed = path.read_text(encoding="utf-8")
            if typed == shown:
                path.unlink()
                return None
            part = typed if name is None else typed.strip().replace("\n", f"\n{indent}")
            after = before[:begin] + part + before[end:]
            backup, effects = _write(home, before, after)
        except (CommandFailed, ConfigErrors, UnicodeDecodeError) as error:
            if again(str(error)):
                continue
            raise CommandFailed(f"nothing was written; your text is in {path}") from None
        path.unlink()
        return EditedFile(difference(before, after), effects, backup)


def _write(home: Home, before: str, after: str) -> tuple[str, list[str]]:
    def change(now: str) -> str:
        if now != before:
            raise CommandFailed(f"{home.agents_json} was changed meanwhile")
        return after

    with contextlib.suppress(ConfigErrors):  # then it is the edit that mends the file
        old = load(home)
        backup = change_file(home, change, mends=True)
        return backup, effects_of(diff(old, load(home)))
    return change_file(home, change, mends=True), []


def effects_of(plan: ChangePlan) -> list[str]:
    """The effects of an edit on a running daemon, in lines."""
    lines = [f"{name} starts" for name in plan.added]
    lines += [f"{name} ends when its turns have; memory and mail stay" for name in plan.removed]
    enabled = plan.enabled
    for name, changes in plan.changed.items():
        what = ", ".join(changes)
        if name in enabled:
            lines.append(f"{name} {'starts' if enabled[name] else 'stops'}: {what}")
        elif name in plan.rebuild:
            lines.append(f"{name} is rebuilt when its turns have ended: {what}")
        else:
            lines.append(f"{name} goes on, no restart: {what}")
    return lines


def in_editor(path: Path) -> None:
    """Open the editor of the environment. Raises ``CommandFailed``."""
    words = shlex.split(next(filter(None, map(os.environ.get, EDITORS)), _FALLBACK))
    try:
        code = run_in_terminal([*words, os.fspath(path)])
    except OSError as error:
        raise CommandFailed(
            f"the editor {words[0]} can't be started: {error.strerror or error}; set EDITOR"
        ) from None
    if code:
        raise CommandFailed(f"the editor {words[0]} ended with code {code}")


def _draft(text: str) -> Path:
    """A file of this user alone with the text; whoever is done with it removes it."""
    descriptor, path = tempfile.mkstemp(prefix="agentsup-", suffix=".json")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(path)


def check_home(home: Home) -> list[ConfigFinding]:
    """Every finding about agents.json, config.toml, scripts, roles and engines. Blocks."""
    environ = read_environment(home).beside(os.environ)
    checks = (ScriptCheck(), _EngineFindings(environ), partial(advice, environ=environ))
    found = validate(home, environ, checks=checks)
    name = home.agents_json.name
    if not home.agents_json.exists() and not any(one.path == name for one in found):
        missing = "there is no such file, so main is the only agent"
        how = "`agentsup agents add NAME` makes one, `agentsup init` one with examples"
        found.append(ConfigFinding(Severity.WARNING, missing, name, field=WHOLE_FILE, hint=how))
    return [*found, *map(finding_of, read_roles(home.roles).findings)]


class _EngineFindings:
    """Finds why engines would be worse than what the files name, each reason once for each line."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: set[ConfigFinding] = set()

    def __call__(self, spec: AgentSpec, locate: LocateField, home: Path) -> Iterator[ConfigFinding]:
        """Implements ``config.snapshot.Check``."""
        problem = DaemonEngines(EngineRegistry({}), home, self._environ).shortfall(spec)
        if not problem or problem.startswith(NOTHING_NAMED):
            return
        found = locate(spec.name, ("model" if spec.model else "engine",)).finding(problem)
        if found not in self._known:
            self._known.add(found)
            yield found
