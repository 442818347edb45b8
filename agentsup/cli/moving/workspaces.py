"""Parts that the homes of other products have in common: files of a workspace, personas, skills."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from agentsup.cli.moving.foreign_home import (
    MOST_NOTES_CHARS,
    MOST_PROMPT_CHARS,
    ForeignFile,
    ForeignMemory,
    joined_text,
)
from agentsup.cli.moving.gathered import Gathered
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import MOST_MEMORIES, memories_of, skill_of

_MOST_SKILLS: Final = 200
RULES: Final = "AGENTS.md and such tell how to use what the other product has"


def persona(source: SourceFolder, *paths: str) -> str:
    """The texts of files that say who the agent is."""
    return joined_text(*(source.text(path) for path in paths), most=MOST_PROMPT_CHARS)


def notes(source: SourceFolder, *paths: str) -> str:
    """The texts of files that an agent always remembers."""
    return joined_text(*(source.text(path) for path in paths), most=MOST_NOTES_CHARS)


def memories(
    source: SourceFolder, folder: str, tag: str, skip: Collection[str] = ()
) -> tuple[ForeignMemory, ...]:
    """The memories in the Markdown files of a folder, the latest names first."""
    found: list[ForeignMemory] = []
    for path in reversed(source.walk(folder) if source.is_folder(folder) else []):
        name = path.removeprefix(f"{folder}/")
        if name.endswith(".md") and name not in skip:
            found += memories_of(source.text(path), name.removesuffix(".md"), tag)
    return tuple(found[:MOST_MEMORIES])


def workspace_files(
    source: SourceFolder,
    folder: str,
    *,
    skip: Collection[str] = (),
    skip_below: Collection[str] = (),
) -> tuple[ForeignFile, ...]:
    """The files of a workspace, without those at the paths ``skip`` and below ``skip_below``."""
    if not source.is_folder(folder):
        return ()
    found = []
    for path in source.walk(folder):
        name = path.removeprefix(f"{folder}/")
        if name not in skip and not name.startswith(tuple(f"{each}/" for each in skip_below)):
            found.append(ForeignFile(path, name))
    return tuple(found)


def skills(
    gathered: Gathered, folder: str, *, skip: Collection[str] = ()
) -> tuple[ForeignFile, ...]:
    """The skills below a folder: each ``SKILL.md`` with the files beside it.

    Returns the files for the workspace of the agent that has them.
    """
    source = gathered.source
    paths = source.walk(folder) if source.is_folder(folder) else []
    heads = [path for path in paths if path.endswith("/SKILL.md")]
    if len(heads) > _MOST_SKILLS:
        gathered.remark(f"{len(heads) - _MOST_SKILLS} skills", f"{_MOST_SKILLS} come at most")
    found: list[ForeignFile] = []
    for head in heads[:_MOST_SKILLS]:
        home = head.removesuffix("/SKILL.md")
        skill = skill_of(home.rpartition("/")[2], source.text(head))
        if skill is None or home.rpartition("/")[2] in skip:
            continue
        gathered.skills.setdefault(skill.name, skill)
        found += [
            ForeignFile(path, f"skills/{skill.name}{path.removeprefix(home)}")
            for path in paths
            if path.startswith(f"{home}/")
        ]
    return tuple({each.target: each for each in found}.values())
