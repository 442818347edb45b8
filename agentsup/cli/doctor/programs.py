"""Coding agents on this machine, as the doctor shows them: found, version, sign-in, what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.config import FenceSettings
from agentsup.daemon.runtime import fencing_by
from agentsup.engines.process import Fencing, home_variables
from agentsup.engines.programs import PROGRAMS, Preset, SignInState, sign_in_of
from agentsup.kit.childenv import child_env
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.searching import folder_of, not_found
from agentsup.model.errors import EngineFailed

_LIMIT_S = 10.0
_VERSION_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """The state of one coding agent."""

    preset: Preset
    path: str | None
    folder: str
    """Its folder, if that is not on the PATH."""
    version: str
    sign_in: SignInState
    is_used: bool
    """An entry names it as its engine."""
    absence: str
    """Why it is not found, and what to do."""

    @property
    def is_well(self) -> bool:
        """Whether an agent that uses it can work, as far as can be seen."""
        return not self.is_used or (self.path is not None and bool(self.sign_in))

    @property
    def text(self) -> str:
        """One line about the program."""
        if self.path is None and self.folder:
            return f"in {self.folder}, which is not on the PATH"
        if self.path is None:
            return f"not installed ({self.preset.install})"
        known = self.version or "version not told"
        return f"{known}, {self.sign_in} ({self.path})"

    @property
    def advice(self) -> str:
        """The remedy if something is missing, else empty."""
        if self.is_well and (self.path is None or self.sign_in):
            return ""
        return self.absence if self.path is None else self.preset.sign_in


def check_programs(it: Examined) -> Iterator[Check]:
    """Coding agents that can be an engine; one that an entry names must be installed."""
    fence = it.settings.fence if it.settings is not None else FenceSettings()
    fencing = fencing_by(it.home.root, it.environ, fence)
    missing = []
    used = {spec.engine for spec in it.specs.values()}
    for each in _programs(it.environ, used, fencing):
        if each.path is not None or each.is_used or each.folder:
            result = OK if each.is_well else FAIL if each.path is None else WARN
            yield Check(f"engine {each.preset.name}", result, each.text, each.advice)
        else:
            missing.append(each.preset.name)
    if missing:
        text = f"not installed, and no agent names one: {', '.join(missing)}"
        yield Check("other engines", OK, text)


def _programs(env: Mapping[str, str], used: Collection[str], fencing: Fencing) -> list[Program]:
    """Every known coding agent; ``used`` are the engines that entries name. Each is run for its
    version, with an empty home and behind the fence of an agent's program."""
    paths = {
        name: shutil.which(preset.program, path=env.get("PATH", ""))
        for name, preset in PROGRAMS.items()
    }
    installed = {name: path for name, path in paths.items() if path}
    versions = asyncio.run(_versions(installed, env, fencing))
    return [
        Program(
            preset,
            paths[name],
            "" if paths[name] else folder_of(preset.program),
            versions.get(name, ""),
            sign_in_of(preset, env, os.path.isfile),
            is_used=name in used,
            absence=not_found(preset.program, env, preset.remedy),
        )
        for name, preset in PROGRAMS.items()
    ]


async def _versions(
    paths: Mapping[str, str], env: Mapping[str, str], fencing: Fencing
) -> dict[str, str]:
    """The version that each program prints; all are run at the same time."""
    asked = [name for name in paths if PROGRAMS[name].version]
    outputs = await asyncio.gather(
        *(_version(PROGRAMS[name], paths[name], env, fencing) for name in asked)
    )
    return dict(zip(asked, outputs, strict=True))


async def _version(preset: Preset, path: str, env: Mapping[str, str], fencing: Fencing) -> str:
    """The first line of its output; empty if it fails, takes too long or can't be fenced in."""
    shown = [path, *(f"{env.get('HOME', '')}/{name}" for name in preset.settings.installed)]
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
            own = child_env(source=env) | home_variables(Path(made)) | {"TMPDIR": made}
            async with (
                asyncio.timeout(_LIMIT_S),
                fencing.around((made,), shown, files=BoundedPool("files"), key=path) as fence,
                await ProcessGroup.spawn(
                    [path, *preset.version], env=own, cwd=made, fence=fence
                ) as group,
            ):
                output = await group.communicate(limit_bytes=_VERSION_BYTES)
    except (OSError, TimeoutError, EngineFailed):
        return ""
    lines = output.stdout.decode("utf-8", "replace").split("\n")
    first = "".join(char for char in lines[0] if char.isprintable()).strip()
    return first[:80] if output.code == 0 else ""
