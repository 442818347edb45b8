"""The entry point of the daemon process: lock, log, loop, signals, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.files import LIMIT_S, ConfigFiles
from agentsup.config.home import Home
from agentsup.config.program_places import without_places_of
from agentsup.config.settings import LogSettings, parse_settings
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon import boot, space
from agentsup.daemon.build import Daemon, build
from agentsup.daemon.ground import LOG_FILE, Ground, redact_secrets
from agentsup.daemon.modes import Restored, StartModes, restore_at_start
from agentsup.daemon.reconcile import first_snapshot, keep_applied
from agentsup.daemon.roster import Roster
from agentsup.daemon.supervisor import REBUILD_CODE, Ending
from agentsup.daemon.tokens import TokenBook, operator_token
from agentsup.kit import descriptors, prctl
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.entropy import Entropy, SystemEntropy
from agentsup.kit.files import HomeLock, HomeLocked
from agentsup.kit.planted import read_plain
from agentsup.kit.pool import in_time
from agentsup.kit.reaper import OrphansStuck, Reaper
from agentsup.kit.terminal import clean
from agentsup.model.errors import AgentsupError, ConfigErrors, StoreUnavailable
from agentsup.model.ids import BootId
from agentsup.observe.logging import LogSystem, get_logger, setup_logging
from agentsup.observe.redact import Redactor
from agentsup.store.database import Database
from agentsup.store.record import StoreRecord

_log = get_logger(__name__)

STORM_LIMIT = 10
STORM_WINDOW_MS = 60_000
LAST_THREADS_S = 5.0
"""When all is closed, threads that hang keep the process no longer than this."""
LAST_RESORT_S = 50.0
"""After an end was asked for, the process is gone at the latest after this (the graces and 5 s)."""


ACCEPT_STORE = "--accept-store"


def run_daemon(home: Path, *, port: int | None, accept_store: bool = False) -> int:
    """Run the daemon of ``home`` until it ends; returns the exit code (blocking).

    With ``accept_store`` a store that is gone, older or without its log is taken as it is.

    Errors that a person must mend are printed as one sentence on standard error: 1 is returned.
    Where nothing outside would restart it, an end with 42 re-executes the process in place and
    does not return.
    """
    prctl.close_memory()
    descriptors.raise_limit()
    place = Home(home.expanduser().absolute())
    try:
        restored = restore_at_start(place)
        space.wait_for_space(place.create)
        lock = HomeLock(place.lock)
        space.wait_for_space(lock.acquire)
    except HomeLocked as error:
        of_pid = f" (pid {error.pid})" if error.pid else ""
        return _refuse(
            f"{place.root} belongs to a running daemon{of_pid}. "
            "`agentsup status` asks it, `agentsup stop` ends it"
        )
    except OSError as error:
        return _refuse(f"the home {place.root} can't be used: {error.strerror or error}")
    redactor = Redactor()
    log = space.wait_for_space(lambda: _open_log(place, redactor))
    try:
        ending, in_place = asyncio.run(
            _boot(place, port, redactor, log, lock, restored, accept_store=accept_store)
        )
    except AgentsupError as error:
        return _refuse(str(error))
    finally:
        lock.release()
        log.close()
    if ending.code == REBUILD_CODE and in_place:
        _execute_again()
    return ending.code


def _execute_again() -> NoReturn:
    os.execv(sys.executable, _again(sys.orig_argv))  # noqa: S606 - ourselves


def _again(argv: list[str]) -> list[str]:
    """The command line of the next life: a store is accepted once."""
    return [sys.executable, *(word for word in argv[1:] if word != ACCEPT_STORE)]


def _open_log(home: Home, redactor: Redactor) -> LogSystem:
    """The log as ``[log]`` says; as by default where the files are wrong, which is told later."""
    try:
        wanted = parse_settings(_config_toml(home)).settings.log
    except (ConfigErrors, OSError):
        wanted = LogSettings()
    return setup_logging(
        level=wanted.level,
        json=wanted.format == "json",
        plain=wanted.format == "text",
        file=home.logs / LOG_FILE if wanted.file else None,
        redactor=redactor,
        file_bytes=wanted.max_bytes,
        files_kept=wanted.keep,
    )


def _config_toml(home: Home) -> bytes | None:
    try:
        return in_time(partial(read_plain, home.config_toml, MAX_BYTES + 1), LIMIT_S)
    except FileNotFoundError:
        return None


def _refuse(text: str) -> int:
    sys.stderr.write(f"agentsup: {clean(text)}\n")
    return 1


async def _boot(
    home: Home,
    port: int | None,
    redactor: Redactor,
    log: LogSystem,
    lock: HomeLock,
    restored: list[Restored],
    *,
    accept_store: bool,
) -> tuple[Ending, bool]:
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    reaper = Reaper(clock) if prctl.become_subreaper() else None
    files = ConfigFiles()

    async def token_there() -> tuple[str, bool]:
        return await asyncio.to_thread(operator_token, home.api_token, entropy)

    try:
        token, is_new = await space.wait_in_loop(token_there)
        redactor.add(token)
        ready = await space.wait_in_loop(
            lambda: _prepare(home, clock, entropy, redactor, files, accept_store=accept_store),
            undo=lambda prepared: prepared.database.close(),
        )
    except space.Stopped:
        return Ending(0, "asked to end while it waited for space"), False
    database, begun, snapshot = ready.database, ready.begun, ready.snapshot
    try:
        ground = Ground(
            home=home,
            database=database,
            clock=clock,
            entropy=entropy,
            boot=begun,
            endings=await boot.load_endings(database),
            roster=ready.roster,
            snapshot=snapshot,
            first_complaint=ready.complaint,
            tokens=TokenBook(entropy, token),
            start_modes=StartModes(tuple(restored), is_new),
            redactor=redactor,
            environ=await _environ(home, files),
            config_files=files,
            port=port,
            announce=_show_link if _is_watched() else None,
            keep_lock=lock.restore,
            reaper=reaper,
            dropped_log_lines=lambda: log.dropped,
            after_imports=gc.freeze,
        )
        gc.freeze()
        ending = await _serve(build(ground), begun, reaper)
        try:
            await boot.end(database, clock, begun.boot_id, ending.code, ending.reason)
        except StoreUnavailable as error:  # a full disk must not turn a restart into an end
            _log.error("the end could not be noted", code=ending.code, reason=str(error))
        in_place = _restarts_in_place(snapshot)
    finally:
        await database.close()
        home.daemon_json.unlink(missing_ok=True)  # nothing else runs on the loop any more
    # From here on Python waits for threads of its default executor, however long they hang.
    again = in_place and ending.code == REBUILD_CODE
    _last_resort(LAST_THREADS_S, _execute_again if again else partial(os._exit, ending.code))
    return ending, in_place


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What stands before anything is built. Its store is open."""

    database: Database
    begun: boot.Boot
    roster: Roster
    snapshot: ConfigSnapshot
    complaint: ConfigErrors | None


async def _environ(home: Home, files: ConfigFiles) -> dict[str, str]:
    """Ours, with a PATH on which nothing lies that an agent wrote."""
    try:
        return await files.run(partial(without_places_of, os.environ, home.root), key="PATH")
    except OSError as error:
        _log.error("PATH is not used, as folders of it don't answer", reason=str(error))
        return {**os.environ, "PATH": os.defpath}


async def _prepare(
    home: Home,
    clock: Clock,
    entropy: Entropy,
    redactor: Redactor,
    files: ConfigFiles,
    *,
    accept_store: bool,
) -> _Prepared:
    """Open the store and record this boot in it; where that fails, nothing is left open."""
    record = StoreRecord(
        home.state_db,
        now_ms=clock.now_ms,
        new_id=lambda: entropy.new_id("store"),
        accept=accept_store,
    )
    database = await Database.open(home.state_db, clock=clock, record=record)
    try:
        begun = await boot.begin(database, clock, BootId(entropy.new_id("boot")), entropy)
        roster = Roster(database, clock, entropy)
        await roster.load()
        snapshot, complaint = await first_snapshot(home, roster.overrides(), files)
        # Where config.toml is wrong, the level that was applied last.
        logging.getLogger().setLevel(snapshot.settings.log.level.upper())
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        await redact_secrets(redactor, snapshot, home.root, os.environ, files)
        await roster.take_over(snapshot.specs)
        if complaint is None:
            await asyncio.to_thread(keep_applied, home, snapshot)
    except BaseException:
        await database.close()
        raise
    return _Prepared(database, begun, roster, snapshot, complaint)


def _is_watched() -> bool:
    """Whether standard output goes to somebody: a terminal, a pipe, but no file and no journal.

    A link that signs in has no place in what is kept.
    """
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and "JOURNAL_STREAM" not in os.environ


def _show_link(url: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(f"Web page: {url} (this link works once, within 10 minutes)\n")
        sys.stdout.flush()


async def _serve(daemon: Daemon, begun: boot.Boot, reaper: Reaper | None) -> Ending:
    swept = await daemon.processes.sweep_earlier_boots()
    if swept:
        _log.warning("ended processes of an earlier boot", groups=[r.argv0 for r in swept])
    await daemon.mailbox.load()
    _on_signals(daemon)
    try:
        ending = await daemon.supervisor.run()
    finally:
        await daemon.engines.close()
        if reaper is not None:
            with contextlib.suppress(OrphansStuck):  # told by its beat; the next start tries again
                await reaper.clear()
    if ending.code == REBUILD_CODE and boot.restart_storm(
        begun, REBUILD_CODE, limit=STORM_LIMIT, window_ms=STORM_WINDOW_MS
    ):
        reason = f"main asked for a restart more than {STORM_LIMIT} times in a minute"
        _log.critical("restart storm", reason=reason)
        return Ending(1, reason)
    return ending


def _on_signals(daemon: Daemon) -> None:
    """The first TERM or INT drains, the second forces, the third or the last resort ends."""
    loop = asyncio.get_running_loop()
    count = 0

    def asked(number: signal.Signals) -> None:
        nonlocal count
        count += 1
        if count == 1:
            daemon.supervisor.end(0, f"signal {number.name}")
            _last_resort(LAST_RESORT_S)
        elif count == 2:
            daemon.supervisor.force()
            _last_resort(5.0)
        else:
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)


def _last_resort(after_s: float, end: Callable[[], object] | None = None) -> None:
    """A thread ends the process, because the loop may be the thing that hangs."""
    timer = threading.Timer(after_s, end or partial(os._exit, 1))
    timer.daemon = True
    timer.start()


def _restarts_in_place(snapshot: ConfigSnapshot) -> bool:
    """Whether an end with 42 must re-execute the process, since nothing outside restarts it."""
    setting = snapshot.settings.restart_in_place
    if setting != "auto":
        return setting == "always"
    under_systemd = "INVOCATION_ID" in os.environ or "NOTIFY_SOCKET" in os.environ
    # In the session of process 1 we are what the container runs; elsewhere nobody minds our end.
    in_container = os.getpid() == 1 or os.getsid(0) == 1
    return not (under_systemd or in_container)
