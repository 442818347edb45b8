"""Coding agents on this machine, as the doctor shows them: found, version, sign-in, what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agentsup.engines.programs import PROGRAMS, Preset, SignIn, sign_in_of
from agentsup.kit.procgroup import ProcessGroup, child_env

_LIMIT_S = 10.0
_VERSION_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """What was found of one agent."""

    preset: Preset
    path: str | None
    version: str
    sign_in: SignIn
    is_used: bool
    """An entry names it as its engine."""

    @property
    def is_well(self) -> bool:
        """Nothing keeps an agent that uses it from working, as far as can be seen."""
        return not self.is_used or (self.path is not None and bool(self.sign_in))

    @property
    def text(self) -> str:
        """One line about it."""
        if self.path is None:
            return f"not installed ({self.preset.install})"
        known = self.version or "version not told"
        return f"{known}, {self.sign_in or 'no sign-in seen'} ({self.path})"

    @property
    def advice(self) -> str:
        """What to do, where something is missing."""
        if self.is_well and (self.path is None or self.sign_in):
            return ""
        return self.preset.remedy if self.path is None else self.preset.sign_in


def look(env: Mapping[str, str], used: Collection[str]) -> list[Program]:
    """Every known agent; ``used`` are the engines that entries name. Runs each for its version."""
    paths = {
        name: shutil.which(preset.program, path=env.get("PATH", ""))
        for name, preset in PROGRAMS.items()
    }
    versions = asyncio.run(_versions({name: path for name, path in paths.items() if path}, env))
    return [
        Program(
            preset,
            paths[name],
            versions.get(name, ""),
            sign_in_of(preset, env, os.path.isfile),
            is_used=name in used,
        )
        for name, preset in PROGRAMS.items()
    ]


async def _versions(paths: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """What each says of its version, all asked at once."""
    asked = [name for name in paths if PROGRAMS[name].version]
    told = await asyncio.gather(
        *(_version([paths[name], *PROGRAMS[name].version], env) for name in asked)
    )
    return dict(zip(asked, told, strict=True))


async def _version(argv: list[str], env: Mapping[str, str]) -> str:
    """The first line of its output; nothing where it fails or takes too long."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            async with await ProcessGroup.spawn(argv, env=child_env(source=env), cwd="/") as group:
                output = await group.communicate(limit_bytes=_VERSION_BYTES)
    except (OSError, TimeoutError):
        return ""
    lines = output.stdout.decode("utf-8", "replace").split("\n")
    first = "".join(char for char in lines[0] if char.isprintable()).strip()
    return first[:80] if output.code == 0 else ""
