"""Starts the daemon in the background, waits until it is ready, and stops or restarts it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from agentsup.cli.connect.client import ConnectionLost, DaemonClient
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable, failing_as
from agentsup.cli.connect.keeping import is_container_main
from agentsup.cli.connect.locate import DaemonLocation, holder_of, is_alive
from agentsup.cli.output.show import CommandOutput
from agentsup.kit.clock import SystemClock
from agentsup.kit.detached import exit_code_of, start_detached
from agentsup.kit.keeper import TAKEN
from agentsup.kit.keeping import KeeperStatus, read_status, start_keeper
from agentsup.kit.terminal import clean

READY_S: Final = 130.0
"""Main may take 120 s until it is ready; the rest of the daemon needs little more."""
NAMED_AFTER_S: Final = 5.0
"""A start that takes longer names the parts that are not ready yet."""
LOOK_S: Final = 0.05
OUTPUT: Final = "daemon.out"
"""The file in the home's logs/ with what the daemon prints before and besides its log."""
STOP_S: Final = 60.0
"""A drain takes at most 30 s, then cancelling and closing."""
_OF_SUPERVISORS: Final = (
    *("INVOCATION_ID", "NOTIFY_SOCKET", "JOURNAL_STREAM", "WATCHDOG_PID", "WATCHDOG_USEC"),
    *("MANAGERPID", "SYSTEMD_EXEC_PID", "LISTEN_FDS", "LISTEN_PID"),
)
"""Variables of a service manager around this terminal, which does not supervise this daemon."""


def looks(timeout_s: float) -> Iterator[float]:
    """The seconds since the start, at each check of something that sends no event."""
    clock = SystemClock()
    began = clock.monotonic()
    while (passed_s := clock.monotonic() - began) < timeout_s:
        yield passed_s
        select.select([], [], [], LOOK_S)


def answering(location: DaemonLocation) -> DaemonClient | None:
    """A client of the daemon of ``location``; None if it does not answer, or another one does."""
    try:
        client = DaemonClient.to(location)
        alive = client.ask("GET", "/healthz", timeout_s=5.0)
    except (DaemonUnreachable, ConnectionLost):
        return None
    return client if alive.status == 200 else None


def ensure_running(
    location: DaemonLocation,
    screen: CommandOutput,
    *,
    port: int | None = None,
    tether: int | None = None,
    accept_store: bool = False,
) -> DaemonClient:
    """A client of the ready daemon of ``location``, which is started if none runs.

    ``tether`` is a descriptor for the standard input of a daemon that is started; the daemon ends
    at its end of file. ``accept_store`` lets the daemon take the store as it is. Raises
    ``CommandFailed``.
    """
    found = answering(location)
    if found is not None:
        _tell_running(location, found, screen, port)
        return _until_ready(location, screen, pid=None)
    holder = holder_of(location.home)
    if holder is not None:
        screen.say(f"A daemon (pid {holder}) is starting or stopping; waiting for it.")
        with contextlib.suppress(CommandFailed):
            return _until_ready(location, screen, pid=None, watched=holder)
        if is_alive(holder):
            raise CommandFailed(
                f"the process {holder} holds {location.home.root} and does not answer; see "
                f"{location.home.logs}, or end it with `kill {holder}`"
            )
    keeper = read_status(location.home.keeper)
    if keeper is not None and keeper.is_alive:
        return _of_keeper(location, screen, keeper, port, accept_store)
    if (
        tether is None
        and port is None
        and not accept_store
        and _is_started_as_service(location, screen)
    ):
        return _until_ready(location, screen, pid=None)
    return _until_ready(location, screen, pid=_start(location, port, tether, accept_store))


def _is_started_as_service(location: DaemonLocation, screen: CommandOutput) -> bool:
    """Start the person's own service of this home, if one is installed and can be started."""
    from agentsup.cli.service.unit import installed_unit

    unit = installed_unit(location.home)
    if unit is None:
        return False
    from agentsup.cli.service.systemd import Systemd

    try:
        Systemd(is_system=False).run("start", unit.name)
    except CommandFailed as failure:
        screen.prose(f"The service {unit.stem} could not be started ({failure}).")
        return False
    screen.say(f"started the service {unit.stem}")
    return True


def _of_keeper(
    location: DaemonLocation,
    screen: CommandOutput,
    keeper: KeeperStatus,
    port: int | None,
    accept_store: bool,
) -> DaemonClient:
    """The daemon of a keeper that has none at the moment. One that waits after a crash is replaced,
    for our environment and options."""
    if not keeper.is_waiting:
        return _until_ready(location, screen, pid=None, watched=keeper.pid)
    screen.say(f"The daemon ended with code {keeper.code}; it is started now.")
    end_keeper(keeper, STOP_S)
    return _until_ready(location, screen, pid=_start(location, port, None, accept_store))


def _tell_running(
    location: DaemonLocation, found: DaemonClient, screen: CommandOutput, port: int | None
) -> None:
    """Print that the daemon runs already, and that ``port`` has no effect on it."""
    url = found.address.url
    screen.say(f"The daemon runs already, at {url}.")
    if port is not None and port != urlsplit(url).port:
        again = location.command(f"restart --port {port}")
        screen.prose(f"--port {port} has no effect on it; `{again}` starts it anew there.")


def _start(
    location: DaemonLocation, port: int | None, tether: int | None, accept_store: bool
) -> int:
    program = "agentsup" if tether is None else "agentsup.cli.foreground"
    argv = [sys.executable, "-m", program, "--home", str(location.home.root), "run"]
    if accept_store:
        argv.append("--accept-store")
    if port is not None:
        argv += ["--port", str(port)]
    env = {name: value for name, value in os.environ.items() if name not in _OF_SUPERVISORS}
    log = location.home.logs / OUTPUT
    with failing_as("the daemon can't be started"):
        location.home.create()
        if tether is None:
            return start_keeper(location.home.keeper, argv, env, log)
        return start_detached(argv, env=env, log=log, stdin=tether)


def _until_ready(
    location: DaemonLocation, screen: CommandOutput, *, pid: int | None, watched: int | None = None
) -> DaemonClient:
    """Wait until the daemon takes work; print what is still missing. Raises ``CommandFailed``.

    ``pid`` is our child: a keeper, or the daemon itself. ``watched`` is a process of others.
    """
    progress = _StartProgress(screen)
    if pid is not None:
        progress.say("starting the daemon …")
    try:
        for passed_s in looks(READY_S):
            if pid is not None and (code := _failure_of(location, pid)) is not None:
                progress.end()
                raise CommandFailed(_why_it_ended(location, code))
            if watched is not None and not is_alive(watched):
                raise CommandFailed(f"the process {watched} has ended")
            missing = _missing(location)
            if not missing:
                return DaemonClient.to(location)
            if passed_s >= NAMED_AFTER_S:
                progress.say("waiting for " + ", ".join(missing) + " …")
    finally:
        progress.end()
    raise CommandFailed(
        f"the daemon was not ready within {READY_S:g} s; see `{location.command('logs')}` and "
        f"`{location.command('status')}`"
    )


def _failure_of(location: DaemonLocation, pid: int) -> int | None:
    """The exit code of a failed first start. Its keeper, our child ``pid``, is ended: a person must
    fix the cause, so it is not tried again."""
    code = exit_code_of(pid)
    if code is not None and code != TAKEN:
        return code
    keeper = read_status(location.home.keeper)
    if keeper is None or keeper.pid != pid or not keeper.failures:
        return None
    os.kill(pid, signal.SIGTERM)
    for _ in looks(STOP_S):
        if exit_code_of(pid) is not None:
            break
    return keeper.code


_NO_ANSWER: Final = "an answer"


def _missing(location: DaemonLocation) -> list[str]:
    try:
        answer = DaemonClient.to(location).ask("GET", "/readyz", timeout_s=5.0)
    except (DaemonUnreachable, ConnectionLost, CommandFailed):
        return [_NO_ANSWER]
    if answer.status == 200:
        return []
    probes = answer.document.get("probes", ()) if isinstance(answer.document, dict) else ()
    return [clean(p["name"]) for p in probes if not p.get("ok")] or ["the daemon"]


def _why_it_ended(location: DaemonLocation, code: int) -> str:
    """A sentence with the exit code and the daemon's last output, which names the reason."""
    log = location.home.logs / OUTPUT
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    except OSError:
        lines = []
    said = [line for line in lines if line.startswith("agentsup: ")] or lines
    last = clean(said[-1]).removeprefix("agentsup: ") if said and said[-1] else "it said nothing"
    return f"the daemon ended with code {code}: {last} (all of it in {log})"


class _StartProgress:
    """One line that changes in a terminal; in a pipe a line per change."""

    def __init__(self, screen: CommandOutput) -> None:
        self._screen = screen
        self._last = ""

    def say(self, text: str) -> None:
        text = clean(text)
        if text == self._last:
            return
        self._last = text
        if self._screen.plain:
            print(text, file=sys.stderr)
        else:
            sys.stderr.write(f"\r\x1b[K{text[: (self._screen.width or 80) - 1]}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._last and not self._screen.plain:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._last = ""


def stop_daemon(location: DaemonLocation, timeout_s: float) -> int | None:
    """Drain the daemon of ``location`` and wait until it and its keeper are gone; returns its pid if
    known.

    Raises ``DaemonUnreachable`` if none runs, ``CommandFailed`` if it still runs after
    ``timeout_s`` seconds.
    """
    keeper = read_status(location.home.keeper)
    if keeper is None or not keeper.is_alive:
        return _drained(location, timeout_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper.pid, signal.SIGUSR1)  # however the daemon ends now, it was wanted
    try:
        ended = _drained(location, timeout_s)
    except DaemonUnreachable:  # the keeper waits to start one, or that one does not listen yet
        end_keeper(keeper, timeout_s)
        return keeper.child or None
    _until_gone(keeper, timeout_s)
    return ended


def end_keeper(keeper: KeeperStatus, timeout_s: float) -> None:
    """End a keeper with the daemon that it may have. Raises ``CommandFailed`` if they don't end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper.pid, signal.SIGTERM)
    _until_gone(keeper, timeout_s)


def _until_gone(keeper: KeeperStatus, timeout_s: float) -> None:
    for _ in looks(timeout_s):
        if not is_alive(keeper.pid):
            return
    raise CommandFailed(
        f"the parent of the daemon (pid {keeper.pid}) has not ended within {timeout_s:g} s"
    )


def _drained(location: DaemonLocation, timeout_s: float) -> int | None:
    client = DaemonClient.to(location)
    pid = client.address.pid
    try:
        client.post("/drain")
    except DaemonUnreachable:
        holder = holder_of(location.home)
        if holder is None:
            raise
        # The daemon starts or ends, or its API hangs: the signal asks it to drain, too.
        pid = holder
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder, signal.SIGTERM)
    except ConnectionLost:
        pass  # it may have ended while it answered; the wait below shows whether it has
    for _ in looks(timeout_s):
        if (not is_alive(pid)) if pid is not None else (answering(location) is None):
            return pid
    who = f"the daemon (pid {pid})" if pid is not None else "the daemon"
    raise CommandFailed(
        f"{who} is still draining after {timeout_s:g} s; wait, or force it with a second "
        f"`kill {pid or 'PID'}`"
    )


def is_supervised(location: DaemonLocation) -> bool:
    """Whether systemd or a container runs the daemon: they restart it when it ends with 42."""
    written = location.written()
    pid = written.get("pid") if written else None
    if written is None or not isinstance(pid, int) or not is_alive(pid):
        return False
    return bool(written.get("systemd")) or is_container_main(pid)


def restart_daemon(location: DaemonLocation, timeout_s: float) -> DaemonClient:
    """Have the daemon of ``location`` end with 42, and wait until what supervises it has restarted it.

    Raises ``DaemonUnreachable`` if none runs, ``CommandFailed`` if none answers after
    ``timeout_s`` seconds.
    """
    before = DaemonClient.to(location).get("/status")["boot_id"]
    DaemonClient.to(location).post("/restart")
    for _ in looks(timeout_s):
        with contextlib.suppress(DaemonUnreachable, ConnectionLost):
            client = DaemonClient.to(location)
            if client.get("/status")["boot_id"] != before:
                return client
    raise CommandFailed(
        f"the daemon was asked to begin anew and does not answer after {timeout_s:g} s; what runs it "
        "(systemd or the container's restart policy) must start it again after exit code 42"
    )
