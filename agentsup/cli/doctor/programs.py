"""Coding agents on this machine, as the doctor shows them (found, version, sign-in, what to do), and
the fence around programs: its protection on this machine, and its gaps."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.config import FenceSettings
from agentsup.daemon.runtime import fencing_by
from agentsup.engines.process import Fencing, home_variables
from agentsup.engines.programs import PROGRAMS, Preset, SignInState, sign_in_of
from agentsup.kit import fence
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


_LISTENS: Final = 0x10000
_NAMED: Final = 6
_TAKES_ORDERS: Final = (
    ("tmux", "/tmux-"),
    ("screen", "/screen/"),
    ("systemd", "/systemd/"),
    ("D-Bus", "/bus"),
    ("D-Bus", "/dbus/"),
    ("Docker", "/docker"),
    ("Podman", "/podman/"),
    ("containerd", "/containerd/"),
    ("snapd", "/snapd"),
    ("emacs", "/emacs"),
    ("kitty", "/kitty"),
    ("VS Code", "/vscode-"),
    ("WezTerm", "/wezterm/"),
    ("X", "/.X11-unix/"),
    ("ssh-agent", "/ssh-"),
    ("gpg-agent", "/gnupg/"),
)


def check_fence(mode: str) -> Iterator[Check]:
    """Whether the kernel keeps programs of agents from the home. ``mode``: as ``[fence]`` says."""
    known = fence.version()
    if mode == "off":
        text = "fence.mode is off: what agents run can read the home, its tokens and all chats"
        yield Check("fence", WARN, text, 'take `mode = "off"` out of [fence]')
        return
    if known < fence.OLDEST:
        text = (
            "this system can't fence programs in (Landlock of Linux 5.19 or newer): what agents "
            "run can read the home, its tokens and all chats"
        )
        advice = "give `exec` and coding agents only to agents you trust with all of it"
        yield Check("fence", FAIL if mode == "required" else WARN, text, advice)
        return
    if known < fence.WHOLE:
        text = "what agents run can't read the home, but could cut its files to nothing"
        yield Check("fence", WARN, text, "Linux 6.2 or newer closes that too")
    else:
        text = f"what agents run can't open what is in the home (Landlock {known})"
        yield Check("fence", OK, f"{text}; modes and names stay open to it, see docs/fence.md", "")
    if known < fence.SCOPED:
        text = "what agents run can send signals and reach abstract sockets of other programs"
        yield Check("fence", WARN, text, "Linux 6.12 or newer closes that")
    if os.geteuid() == 0:
        text = (
            "the daemon runs as root: what agents run can change what this machine starts by itself"
        )
        yield Check("fence", WARN, text, "run it as a user of its own")
    if known < fence.SOCKETS:
        yield from _sockets()


def _sockets() -> Iterator[Check]:
    found = open_sockets()
    if not found:
        return
    shown = ", ".join(f"{path} ({name})" for name, path in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    text = (
        f"what agents run can connect to {shown}{more}: who takes orders there carries them out "
        "without a fence, and so opens the home"
    )
    advice = (
        "Linux 7.1 or newer closes sockets; until then end those services, or run the daemon as a "
        "user or in a container that can't reach them"
    )
    yield Check("fence", WARN, text, advice)


def open_sockets(table: Path = Path("/proc/net/unix")) -> list[tuple[str, str]]:
    """Sockets with a path at which a known service listens and lets this user in, as (name of the
    service, path). A service is recognised by the path alone."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = sorted(set(_listening(lines)))
    return [(name, path) for path in paths if (name := _service(path)) and os.access(path, os.W_OK)]


def _listening(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7].startswith("/"):
            try:
                if int(fields[3], 16) & _LISTENS:
                    yield fields[7]
            except ValueError:
                continue


def _service(path: str) -> str:
    return next((name for name, part in _TAKES_ORDERS if part in path), "")
