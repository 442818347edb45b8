"""The parts of a prompt that describe the agent, its skills and its team.

A skill is the name of a file ``skills/<name>.md`` in the home, or the text itself. If there is no
file of that name, the name itself is the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path

from agentsup.config import timed_reads
from agentsup.kit.safe_files import read_plain
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec
from agentsup.model.name import name_problem

SKILLS = "skills"
"""The folder of skill files in the home."""
MAX_SKILL_BYTES = 64 * 1024
"""A longer file is cut: every turn would pay for it."""
_LIMIT_S = 0.25
_PLACEHOLDERS = re.compile(r"\{(nickname|name|role|team)\}")


def filled(text: str, spec: AgentSpec) -> str:
    """``text`` with the agent's values for ``{nickname}``, ``{name}``, ``{role}`` and ``{team}``;
    other braces stay as they are."""
    facts = {
        "nickname": spec.called,
        "name": spec.name,
        "role": spec.role or "",
        "team": spec.team or "",
    }
    return _PLACEHOLDERS.sub(lambda found: facts[found[1]], text)


def team_block(spec: AgentSpec, everyone: Iterable[DirectoryEntry]) -> str:
    """The members of the agent's team except itself; empty if it has no team or is alone in it."""
    if not spec.team:
        return ""
    own = spec.name.casefold()
    mates = [
        each
        for each in everyone
        if each.team.casefold() == spec.team.casefold() and each.name.casefold() != own
    ]
    if not mates:
        return ""
    return "\n".join([f"With you in team {spec.team}:", *map(_line, mates)])


def _line(mate: DirectoryEntry) -> str:
    called = mate.nickname or mate.name
    known_as = f" (agent {mate.name})" if called != mate.name else ""
    role = f", {mate.role}" if mate.role else ""
    can = f"; {', '.join(mate.capabilities)}" if mate.capabilities else ""
    about = f": {mate.description}" if mate.description else ""
    return f"- {called}{known_as}{role}{can}{about}"


def skill_texts(folder: Path, skills: Sequence[str]) -> tuple[str, ...]:
    """The text of each skill; changed files are read again. If a file can't be read in time, the
    skill's name is its text. Blocks for 0.25 s at most, and not again while that file hangs."""
    return tuple(_skill(folder, each) for each in skills)


def _skill(folder: Path, skill: str) -> str:
    if name_problem(skill):
        return skill.strip()
    path = folder / f"{skill}.md"
    try:
        return timed_reads().run(partial(_text, path), _LIMIT_S, key=f"{path}") or skill
    except OSError:
        return skill


def _text(path: Path) -> str:
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size: int) -> str:
    """Read a small file. Its time and size are part of the cache key."""
    del mtime_ns, size
    return read_plain(path, MAX_SKILL_BYTES).decode("utf-8", "replace").strip()
