"""The service manager of this machine, asked by its own programs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentsup.cli.connect.failure import CommandFailed
from agentsup.kit.childenv import BASE_ENV_NAMES, child_env
from agentsup.kit.procgroup import ProcessGroup

LIMIT_S: Final = 90.0
"""A stop waits for a drain."""
_BYTES: Final = 65536
_NAMES: Final = (*BASE_ENV_NAMES, "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "XDG_CONFIG_HOME")
_SHOWN: Final = (
    *("LoadState", "ActiveState", "SubState", "MainPID", "ActiveEnterTimestamp", "NRestarts"),
    *("FragmentPath", "UnitFileState", "Result", "ExecMainStatus", "NeedDaemonReload"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code and output of a program of the manager."""

    code: int
    text: str
    """Standard output, or standard error where it failed."""


def asked(*argv: str) -> Answer:
    """Run one program to its end; the code is 127 where it does not exist."""
    return asyncio.run(_asked(argv))


async def _asked(argv: Sequence[str]) -> Answer:
    try:
        async with asyncio.timeout(LIMIT_S):
            group = await ProcessGroup.spawn(argv, env=child_env(_NAMES), cwd="/")
            async with group:
                output = await group.communicate(limit_bytes=_BYTES)
                errors = group.stderr_tail
    except FileNotFoundError:
        return Answer(127, f"{argv[0]} is not installed")
    except TimeoutError:
        return Answer(1, f"{argv[0]} did not end within {LIMIT_S:g} s")
    said = output.stdout if output.code == 0 else errors or output.stdout
    return Answer(output.code, said.decode("utf-8", "replace").strip())


@dataclass(frozen=True, slots=True)
class Systemd:
    """systemd of the person, or of the whole machine."""

    is_system: bool

    @property
    def _scope(self) -> tuple[str, ...]:
        return ("systemctl",) if self.is_system else ("systemctl", "--user")

    def why_unavailable(self, up: str) -> str:
        """Why no service can be installed here, and what to do; empty if one can. ``up`` is the command
        that starts the daemon without a service, by whole paths: cron has a short PATH."""
        answer = asked(*self._scope, "show-environment")
        if answer.code == 0:
            return "" if not self.is_system or os.geteuid() == 0 else _NEEDS_ROOT
        if answer.code == 127 or not os.path.isdir("/run/systemd/system"):  # noqa: PTH112 - as sd_booted(3)
            return _NO_SYSTEMD.format(up=up)
        text = _NO_SYSTEMD if self.is_system else _NO_USER_BUS
        return text.format(uid=os.getuid(), up=up)

    def run(self, *words: str) -> None:
        """One command of systemctl. Raises ``CommandFailed`` with what it said."""
        answer = asked(*self._scope, *words)
        if answer.code != 0:
            raise CommandFailed(f"`{' '.join((*self._scope, *words))}` failed: {answer.text}")

    def shown(self, unit: str) -> dict[str, str]:
        """The properties of ``unit``, as systemd shows them."""
        answer = asked(*self._scope, "show", unit, f"--property={','.join(_SHOWN)}")
        pairs = (
            (line.partition("=") for line in answer.text.splitlines()) if not answer.code else ()
        )
        return {name: value for name, _, value in pairs}


def lingers(user: str) -> bool | None:
    """Whether services of ``user`` run without a session; None if nobody tells."""
    answer = asked("loginctl", "show-user", user, "--property=Linger", "--value")
    return {"yes": True, "no": False}.get(answer.text) if answer.code == 0 else None


def is_macos() -> bool:
    """Whether launchd keeps services here."""
    return sys.platform == "darwin"


_OTHERWISE: Final = (
    "Without a service, `agentsup up` keeps the daemon running until the next reboot; a line "
    "`@reboot {up}` in `crontab -e` starts it after one"
)
_NO_SYSTEMD: Final = (
    "systemd does not run here. "
    + _OTHERWISE
    + ". In a container its restart policy is the service"
)
_NO_USER_BUS: Final = (
    "systemd runs, but not for you in this shell (as after `su` or `sudo`, or without a login): log "
    "in as yourself, or set XDG_RUNTIME_DIR=/run/user/{uid} after `loginctl enable-linger`; `sudo "
    "agentsup service install --system` makes a service of the whole machine. " + _OTHERWISE
)
_NEEDS_ROOT: Final = "a service of the whole machine needs root: put `sudo` before the command"
