"""Checks of the agents: their engines, the coding agents on this machine, their tool servers, and what
the running daemon reports."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.config import FenceSettings, McpServer, servers_of
from agentsup.daemon.runtime import DaemonEngines, fencing_by
from agentsup.engines import NotInstalled
from agentsup.engines.process import Fencing, find_program, home_variables
from agentsup.engines.programs import PROGRAMS, Preset, sign_in_of
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.childenv import child_env
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.searching import folder_of, not_found
from agentsup.kit.terminal import clean
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError, EngineFailed

_WELL = ("running", "starting", "stopping", "stopped", "disabled")
_LIMIT_S = 10.0
_VERSION_BYTES = 4096


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """An engine, why ``auto`` chose it (empty if an entry names it), and why it is worse than what
    the files name (empty if it is not)."""

    name: str
    reason: str
    problem: str = ""

    def is_like(self, other: EngineCheck) -> bool:
        """Whether it is the same engine for the same reason, which the daemon may tell with more."""
        if self.name == other.name and self.problem and other.problem:
            return self.problem in other.problem
        return self == other

    def __str__(self) -> str:
        return ": ".join(each for each in (self.name, self.problem or self.reason) if each)


def check_engines(it: Examined) -> Iterator[Check]:
    """The engines in the running daemon, and main's by this shell if that is another one. If no
    daemon runs: main's by this shell alone."""
    here, there = _here(it), dict[EngineCheck, list[str]]()
    for one in it.agents or ():
        engine = EngineCheck(one["engine"], one["engine_reason"], one["engine_problem"])
        there.setdefault(engine, []).append(one["name"])
    if it.agents is None and here is not None:
        yield Check("engine", WARN if here.problem else OK, f"main uses {here}")
    for engine, names in there.items():
        verb = "uses" if len(names) == 1 else "use"
        result = WARN if engine.problem else OK
        yield Check("engine", result, f"{', '.join(names)} {verb} {engine}")
        if MAIN in names and here is not None and not here.is_like(engine):
            yield Check(
                "engine",
                WARN,
                f"in the daemon main uses {engine.name}; in one that is started from this shell it "
                f"would use {here}",
                "put the variables that it needs into the file environment of the home, then "
                f"`{it.location.command('restart')}`",
            )


def _here(it: Examined) -> EngineCheck | None:
    """Main's engine in a daemon started from this shell; None if the files are wrong."""
    if (spec := it.specs.get(MAIN)) is None:
        return None
    try:
        engines = DaemonEngines(EngineRegistry({}), it.home.root, it.environ)
        return EngineCheck(*engines.choice(spec), engines.shortfall(spec))
    except AgentsupError:
        return None


def check_warnings(it: Examined) -> Iterator[Check]:
    """The warnings of each agent in the running daemon, besides those of engines."""
    for one in it.agents or ():
        for warning in one["warnings"]:
            if warning != one["engine_problem"]:
                yield Check("agent", WARN, f"{one['name']}: {warning}")


def check_servers(it: Examined) -> Iterator[Check]:
    """Whether what the tool servers need is installed: the library, and each program. Blocks."""
    named = _named(it)
    if named and importlib.util.find_spec("mcp") is None:
        agents = ", ".join(sorted({agent for agent, _ in named}))
        text = f"{agents} name tool servers, and what they take is not installed"
        advice = "pip install 'agentsup[mcp]', then restart the daemon"
        yield Check("tool server", FAIL, text, advice)
        return
    for agent, server in named:
        head = f"{server.name} of {agent}"
        if server.url is not None:
            yield Check("tool server", OK, f"{head}: {server.shown} (not asked)")
            continue
        # The server's own PATH comes first.
        own_path = server.env.get("PATH") or it.environ.get("PATH")
        path = {"PATH": own_path} if isinstance(own_path, str) else {}
        cwd = server.cwd or str(it.home.workspace(agent))
        try:
            program = find_program(server.command, path, cwd=cwd, remedy=server.remedy)
        except NotInstalled as error:
            text = f"{head}: the program {server.command} is not found"
            yield Check("tool server", FAIL, text, error.message)
        else:
            yield Check("tool server", OK, f"{head}: {program}")


def check_running_servers(it: Examined) -> Iterator[Check]:
    """Report problems of the servers in the running daemon; nothing if none answers."""
    for agent in dict.fromkeys(agent for agent, _ in _named(it)) if it.agents is not None else ():
        if found := it.ask(f"/agents/{quote(agent, safe='')}/mcp"):
            yield from amiss(agent, found["servers"])


def amiss(agent: str, servers: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """A warning for each server that does not run, and for each with tools that are left out."""
    for one in servers:
        head = f"{one['name']} of {agent}"
        if one["state"] not in _WELL:
            text = f"{head}: {one['state'].replace('_', ' ')}"
            why = clean(one["error"])
            yield Check("tool server", WARN, f"{text}: {why}" if why else text)
        if one["notes"]:
            yield Check("tool server", WARN, f"{head}: {clean('; '.join(one['notes']))}")


def _named(it: Examined) -> list[tuple[str, McpServer]]:
    """The servers that are on, each with its agent."""
    return [
        (spec.name, server)
        for spec in it.specs.values()
        for server in servers_of(spec.mcp).values()
        if server.enabled
    ]


def check_programs(it: Examined) -> Iterator[Check]:
    """Coding agents that can be an engine; one that an entry names must be installed. Each is run for
    its version, with an empty home and behind the fence of an agent's program."""
    settings = it.settings.fence if it.settings is not None else FenceSettings()
    fencing = fencing_by(it.home.root, it.environ, settings)
    used = {spec.engine for spec in it.specs.values()}
    paths = {
        name: shutil.which(preset.program, path=it.environ.get("PATH", ""))
        for name, preset in PROGRAMS.items()
    }
    installed = {name: path for name, path in paths.items() if path}
    versions = asyncio.run(_versions(installed, it.environ, fencing))
    missing = []
    for name, preset in PROGRAMS.items():
        if path := paths[name]:
            yield _installed(preset, path, versions.get(name, ""), name in used, it.environ)
        elif (folder := folder_of(preset.program)) or name in used:
            where = f"in {folder}, which is not on the PATH"
            text = where if folder else f"not installed ({preset.install})"
            advice = not_found(preset.program, it.environ, preset.remedy) if name in used else ""
            yield Check(f"engine {preset.name}", FAIL if name in used else OK, text, advice)
        else:
            missing.append(preset.name)
    if missing:
        text = f"not installed, and no agent names one: {', '.join(missing)}"
        yield Check("other engines", OK, text)


def _installed(
    preset: Preset, path: str, version: str, is_used: bool, env: Mapping[str, str]
) -> Check:
    """A coding agent that is there; one that is used must be signed in."""
    sign_in = sign_in_of(preset, env, os.path.isfile)
    text = f"{version or 'version not told'}, {sign_in} ({path})"
    result = WARN if is_used and not sign_in else OK
    return Check(f"engine {preset.name}", result, text, "" if sign_in else preset.sign_in)


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
