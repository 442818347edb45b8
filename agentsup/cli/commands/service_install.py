"""Installs, removes and reports a service. The file is written last and removed first by us alone."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from typing import Any, Final

from agentsup.cli.commands.background import STOP_S, stop_daemon
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable, failing_as
from agentsup.cli.connect.keeping import is_container_main
from agentsup.cli.connect.locate import DaemonLocation, holder_of
from agentsup.cli.output.show import CommandOutput
from agentsup.cli.service.systemd import Systemd, asked, is_macos, lingers
from agentsup.cli.service.unit import ServiceFile, UnitState, argv_in, complaints, is_ours
from agentsup.config import read_environment
from agentsup.kit.files import write_atomic

_KEY: Final = re.compile(r"(?!AGENTSUP_)\w+_(API_KEY|BASE_URL|TOKEN)")
_SETTING: Final = re.compile(r"AGENTSUP_(?!(HOME|URL|TOKEN)$)")


def install(
    file: ServiceFile, location: DaemonLocation, screen: CommandOutput, *, force: bool
) -> None:
    """Write the file and start the service, in place of any other daemon of the home.

    Raises ``CommandFailed``; nothing was changed then, or it says what was.
    """
    _available(file)
    found = file.found()
    if found is UnitState.FOREIGN and not force:
        own = f"systemctl --user edit {file.name}"
        raise CommandFailed(
            f"{file.path} was written or changed by somebody else, and is left alone. Own settings "
            f"go into `{own}`; --force replaces the file and keeps it as {file.path.name}~"
        )
    if not file.service.home.is_dir():
        if file.is_system:
            raise CommandFailed(
                f"there is no home {file.service.home}; make it as {file.service.user}, with "
                f"`agentsup --home {file.service.home} init`"
            )
        from agentsup.cli.commands.home_files import create_home

        create_home(location.home)
        screen.say(f"made the home {location.home.root}")
    of_service = _main_pid(file)
    _write(file, found)
    screen.say(
        f"wrote {file.path}" if found is not UnitState.SAME else f"{file.path} is as it should be"
    )
    _take_over(file, location, of_service, screen)
    _start(file, is_changed=found is not UnitState.SAME)
    screen.prose(
        f"The service {file.name} runs {file.service.home}, and starts it again when it ends."
    )
    for text in _hints(file, location):
        screen.prose(text)


def _available(file: ServiceFile) -> None:
    """Raises ``CommandFailed`` if nothing here can run the service."""
    if is_macos():
        if file.is_system:
            raise CommandFailed("on macOS a service is one of your own; leave --system out")
        return
    up = shlex.join((*file.service.argv[:-1], "up", "--no-chat"))
    if problem := Systemd(file.is_system).why_unavailable(up):
        raise CommandFailed(problem)


def _write(file: ServiceFile, found: UnitState) -> None:
    if found is UnitState.SAME:
        return
    with failing_as(f"{file.path} can't be written"):
        if found is UnitState.FOREIGN:
            file.path.rename(file.path.with_name(f"{file.path.name}~"))
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file.path, file.wanted.encode(), mode=0o644)


def _take_over(
    file: ServiceFile, location: DaemonLocation, of_service: int, screen: CommandOutput
) -> None:
    """End a daemon of this home that is not the service's: two can't have one home."""
    home = type(location)(type(location.home)(file.service.home))
    holder = holder_of(home.home)
    if of_service and holder in {of_service, None}:
        return
    if holder is not None and is_container_main(holder):
        raise CommandFailed(f"a container runs this home (pid {holder}); it is its service")
    written = home.written() or {}
    try:
        ended = stop_daemon(home, STOP_S)
    except DaemonUnreachable:
        return  # none runs
    screen.say(f"ended the daemon that ran without it{f' (pid {ended})' if ended else ''}")
    if written.get("is_port_given"):
        screen.prose(
            f"It listened at {written['url']}, by --port; the service listens where [api] port of "
            "config.toml says."
        )


def _start(file: ServiceFile, *, is_changed: bool) -> None:
    try:
        if is_macos():
            target = f"gui/{os.getuid()}"
            asked("launchctl", "bootout", f"{target}/{file.name}")
            answer = asked("launchctl", "bootstrap", target, str(file.path))
            if answer.code:
                raise CommandFailed(f"launchctl could not start it: {answer.text}")
            return
        systemd = Systemd(file.is_system)
        systemd.run("daemon-reload")
        systemd.run("enable", file.unit)
        systemd.run("restart" if is_changed else "start", file.unit)
    except CommandFailed as failure:
        raise CommandFailed(
            f"the service is installed, but does not run: {failure}. `agentsup service logs` says why"
        ) from None


def _hints(file: ServiceFile, location: DaemonLocation) -> list[str]:
    """Hints for a person: when the service ends all the same, and what it can't see."""
    hints = []
    if not file.is_system and not is_macos():
        user = pwd.getpwuid(os.getuid()).pw_name
        if lingers(user) is False:
            hints.append(
                "It ends when you log out and starts when you log in. `loginctl enable-linger` lets it "
                "run without you, from the start of the machine."
            )
    unseen = set(filter(_KEY.fullmatch, os.environ)) - read_environment(location.home).values.keys()
    if unseen:
        hints.append(
            f"The service does not see {', '.join(sorted(unseen))} of this shell. What it needs belongs "
            f"into {location.home.environment} (mode 0600, lines NAME=VALUE), then `agentsup restart`."
        )
    settings = sorted(name for name in os.environ if _SETTING.match(name))
    if settings:
        hints.append(
            f"Nor does it see {', '.join(settings)}; settings that last belong into config.toml."
        )
    return hints


def uninstall(file: ServiceFile, screen: CommandOutput, *, force: bool) -> None:
    """Stop the service and remove its file, if that is ours. Raises ``CommandFailed``."""
    content = file.content()
    if content is None:
        raise CommandFailed(f"there is no service of {file.service.home} ({file.path} is missing)")
    if not is_ours(content) and not force:
        raise CommandFailed(
            f"{file.path} was written or changed by somebody else, so it is left alone; --force "
            "removes it all the same"
        )
    _available(file)
    if is_macos():
        asked("launchctl", "bootout", f"gui/{os.getuid()}/{file.name}")
    else:
        Systemd(file.is_system).run("disable", "--now", file.unit)
    with failing_as(f"{file.path} can't be removed"):
        file.path.unlink(missing_ok=True)
    if not is_macos():
        Systemd(file.is_system).run("daemon-reload")
    screen.say(f"stopped the service and removed {file.path}")
    own = file.path.with_name(f"{file.path.name}.d")
    if own.is_dir():
        screen.say(f"{own} stays: it was not written by `install`")
    screen.prose(f"The home {file.service.home} stays; `agentsup up` runs it without a service.")


def report(file: ServiceFile, location: DaemonLocation) -> dict[str, Any]:
    """The service as it is, and what is wrong with it. Raises ``CommandFailed`` if there is none."""
    content = file.content()
    if content is None:
        raise CommandFailed(
            f"no service is installed for {file.service.home}; "
            f"`{location.command('service install')}` does it"
        )
    argv = argv_in(content)
    problems = complaints(argv, file.service, bool(argv) and os.access(argv[0], os.X_OK))
    if not is_ours(content):
        problems.append(f"{file.path} was changed by somebody since it was installed")
    elif content != file.wanted and not problems:
        problems.append("its file is of another version; `agentsup service install` renews it")
    shown: dict[str, str] = {}
    if not is_macos():
        _available(file)
        shown = Systemd(file.is_system).shown(file.unit)
    if shown.get("NeedDaemonReload") == "yes":
        problems.append("systemd has not read the file since; run `systemctl --user daemon-reload`")
    pid = int(shown.get("MainPID") or 0)
    holder = holder_of(location.home)
    if holder is not None and pid != holder and not is_macos():
        problems.append(
            f"the daemon that runs (pid {holder}) is not the service's; "
            f"`{location.command('service install')}` takes over from it"
        )
    if (
        not file.is_system
        and not is_macos()
        and lingers(pwd.getpwuid(os.getuid()).pw_name) is False
    ):
        problems.append("it ends when you log out, until `loginctl enable-linger` was run")
    state = shown.get("ActiveState", "")
    return {
        "service": file.name,
        "is_running": state == "active" if shown else holder is not None,
        "state": f"{state} ({shown.get('SubState', '')})" if shown else "see `launchctl list`",
        "since": shown.get("ActiveEnterTimestamp", ""),
        "pid": pid or None,
        "restarts": shown.get("NRestarts", ""),
        "file": str(file.path),
        "runs": " ".join(argv),
        "at_boot": shown.get("UnitFileState", ""),
        "problems": problems,
    }


def _main_pid(file: ServiceFile) -> int:
    """The process that systemd runs for this service; 0: none."""
    if is_macos():
        return 0
    return int(Systemd(file.is_system).shown(file.unit).get("MainPID") or 0)
