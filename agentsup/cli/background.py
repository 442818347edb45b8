"""Starting the daemon in the background, seeing it become ready, and seeing it end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import Final

from agentsup.cli.client import Client, ConnectionLost
from agentsup.cli.failure import Failed, Unreachable
from agentsup.cli.locate import Place, holder_of, is_alive
from agentsup.cli.show import Screen, clean
from agentsup.kit.clock import SystemClock
from agentsup.kit.detached import exit_code_of, start_detached

READY_S: Final = 130.0
"""Main may take 120 s until it is ready; the rest of the daemon needs little more."""
LOOK_S: Final = 0.05
OUTPUT: Final = "daemon.out"
"""What the daemon prints before and beside its log; in the home's logs/."""
_OF_SUPERVISORS: Final = (
    *("INVOCATION_ID", "NOTIFY_SOCKET", "JOURNAL_STREAM", "WATCHDOG_PID", "WATCHDOG_USEC"),
    *("MANAGERPID", "SYSTEMD_EXEC_PID", "LISTEN_FDS", "LISTEN_PID"),
)
"""Of a service manager around this terminal; it does not watch over a daemon started here."""


def pause(seconds: float) -> None:
    """Wait between two looks at something that sends no event."""
    select.select([], [], [], seconds)


def answering(place: Place) -> Client | None:
    """The daemon of `place`, if one answers there and is the one that wrote its address."""
    try:
        client = Client.to(place)
        alive = client.ask("GET", "/healthz", timeout_s=5.0)
    except (Unreachable, ConnectionLost):
        return None
    return client if alive.status == 200 else None


def ensure_running(
    place: Place,
    screen: Screen,
    *,
    port: int | None = None,
    tether: int | None = None,
    accept_store: bool = False,
) -> Client:
    """A client of the ready daemon of `place`, which is started if none runs. Raises `Failed`.

    With `tether`, a descriptor to read from, the one that is started ends at its end of file.
    `accept_store` lets it take the store as it is.
    """
    found = answering(place)
    if found is not None:
        return _until_ready(place, screen, pid=None)
    holder = holder_of(place.home)
    if holder is None:
        return _until_ready(place, screen, pid=_start(place, port, tether, accept_store))
    screen.say(f"A daemon (pid {holder}) is starting or stopping; waiting for it.")
    with contextlib.suppress(Failed):
        return _until_ready(place, screen, pid=None, watched=holder)
    if is_alive(holder):
        raise Failed(
            f"the process {holder} holds {place.home.root} and does not answer; see "
            f"{place.home.logs}, or end it with `kill {holder}`"
        )
    return _until_ready(place, screen, pid=_start(place, port, tether, accept_store))


def _start(place: Place, port: int | None, tether: int | None, accept_store: bool) -> int:
    program = "agentsup" if tether is None else "agentsup.cli.tethered"
    argv = [sys.executable, "-m", program, "--home", str(place.home.root), "run"]
    if accept_store:
        argv.append("--accept-store")
    if port is not None:
        argv += ["--port", str(port)]
    env = {name: value for name, value in os.environ.items() if name not in _OF_SUPERVISORS}
    try:
        place.home.create()
        return start_detached(argv, env=env, log=place.home.logs / OUTPUT, stdin=tether)
    except OSError as error:
        raise Failed(f"the daemon can't be started: {error.strerror or error}") from None


def _until_ready(
    place: Place, screen: Screen, *, pid: int | None, watched: int | None = None
) -> Client:
    """Wait until the daemon takes work, saying what is still missing. Raises `Failed`."""
    clock = SystemClock()
    until = clock.monotonic() + READY_S
    told = _Progress(screen)
    if pid is not None:
        told.say("starting the daemon …")
    try:
        while clock.monotonic() < until:
            if pid is not None and (code := exit_code_of(pid)) is not None:
                told.end()
                raise Failed(_why_it_ended(place, code))
            if watched is not None and not is_alive(watched):
                raise Failed(f"the process {watched} has ended")
            missing = _missing(place)
            if not missing:
                return Client.to(place)
            if pid is None or missing != [_NO_ANSWER]:
                told.say("waiting for " + ", ".join(missing) + " …")
            pause(LOOK_S)
    finally:
        told.end()
    raise Failed(
        f"the daemon was not ready within {READY_S:g} s; see `{place.command('logs')}` and "
        f"`{place.command('status')}`"
    )


_NO_ANSWER: Final = "an answer"


def _missing(place: Place) -> list[str]:
    try:
        answer = Client.to(place).ask("GET", "/readyz", timeout_s=5.0)
    except (Unreachable, ConnectionLost, Failed):
        return [_NO_ANSWER]
    if answer.status == 200:
        return []
    probes = answer.document.get("probes", ()) if isinstance(answer.document, dict) else ()
    return [clean(p["name"]) for p in probes if not p.get("ok")] or ["the daemon"]


def _why_it_ended(place: Place, code: int) -> str:
    """The daemon's own last words, which name the reason."""
    log = place.home.logs / OUTPUT
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    except OSError:
        lines = []
    said = [line for line in lines if line.startswith("agentsup: ")] or lines
    last = clean(said[-1]).removeprefix("agentsup: ") if said and said[-1] else "it said nothing"
    return f"the daemon ended with code {code}: {last} (all of it in {log})"


class _Progress:
    """One line that changes in a terminal; in a pipe a line per change."""

    def __init__(self, screen: Screen) -> None:
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


def stop_daemon(place: Place, timeout_s: float) -> int | None:
    """Drain the daemon of `place` and wait until it is gone; returns its pid where known.

    Raises `Unreachable` where none runs, `Failed` where it still runs after `timeout_s` seconds.
    """
    client = Client.to(place)
    pid = client.address.pid
    try:
        client.post("/drain")
    except Unreachable:
        holder = holder_of(place.home)
        if holder is None:
            raise
        # It is starting, ending, or its API hangs: the signal asks for the same.
        pid = holder
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder, signal.SIGTERM)
    except ConnectionLost:
        pass  # it may have ended while it answered; the wait below tells
    clock = SystemClock()
    until = clock.monotonic() + timeout_s
    while clock.monotonic() < until:
        if (not is_alive(pid)) if pid is not None else (answering(place) is None):
            return pid
        pause(LOOK_S)
    who = f"the daemon (pid {pid})" if pid is not None else "the daemon"
    raise Failed(
        f"{who} is still draining after {timeout_s:g} s; wait, or force it with a second "
        f"`kill {pid or 'PID'}`"
    )


def is_supervised(place: Place) -> bool:
    """Whether systemd or a container runs the daemon: they start it anew when it ends with 42."""
    written = place.written()
    pid = written.get("pid") if written else None
    if written is None or not isinstance(pid, int) or not is_alive(pid):
        return False
    return bool(written.get("systemd")) or _is_of_container(pid)


def restart_daemon(place: Place, timeout_s: float) -> Client:
    """Have the daemon of `place` end with 42, and wait for whoever runs it to start it anew.

    Raises `Unreachable` where none runs, `Failed` where none answers after `timeout_s` seconds.
    """
    before = Client.to(place).get("/status")["boot_id"]
    Client.to(place).post("/restart")
    clock = SystemClock()
    until = clock.monotonic() + timeout_s
    while clock.monotonic() < until:
        with contextlib.suppress(Unreachable, ConnectionLost):
            client = Client.to(place)
            if client.get("/status")["boot_id"] != before:
                return client
        pause(LOOK_S)
    raise Failed(
        f"the daemon was asked to begin anew and does not answer after {timeout_s:g} s; what runs it "
        "(systemd or the container's restart policy) must start it again after exit code 42"
    )


def _is_of_container(pid: int) -> bool:
    """Whether `pid` is what a container was started for: process 1, or in the session of it.

    A daemon started by `up` has a session of its own, in a container too.
    """
    try:
        return pid == 1 or os.getsid(pid) == 1
    except ProcessLookupError:
        return False
