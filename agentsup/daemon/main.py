"""The entry point of the daemon process: lock, log, loop, signals, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from agentsup.config import (
    LIMIT_S,
    MAX_BYTES,
    ConfigFiles,
    ConfigSnapshot,
    Home,
    HomeEnvironment,
    LogSettings,
    parse_settings,
    read_environment,
    without_folders_of,
)
from agentsup.daemon.assembly.build import build
from agentsup.daemon.assembly.parts import Assembly
from agentsup.daemon.runtime import boot, disk_space
from agentsup.daemon.runtime.boot_context import LOG_FILE, BootContext, redact_secrets
from agentsup.daemon.runtime.ending import DaemonExit, Ending
from agentsup.daemon.runtime.file_modes import RestoredMode, StartModes, restore_at_start
from agentsup.daemon.runtime.reconcile import first_snapshot, keep_applied
from agentsup.daemon.runtime.roster import Roster
from agentsup.daemon.runtime.scripts import ScriptCheck
from agentsup.daemon.runtime.tokens import TokenRegistry, operator_token
from agentsup.kit import descriptors, installation, prctl
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.entropy import Entropy, SystemEntropy
from agentsup.kit.files import HomeLock, HomeLocked
from agentsup.kit.keeping import restarted_by
from agentsup.kit.loading import settled
from agentsup.kit.log import get_logger, set_level
from agentsup.kit.outbound import proxy
from agentsup.kit.own_command import naming, with_home
from agentsup.kit.pool import in_time
from agentsup.kit.reaper import OrphansStuck, Reaper
from agentsup.kit.safe_files import read_plain
from agentsup.kit.terminal import clean
from agentsup.model.errors import AgentsupError, ConfigErrors, StoreUnavailable
from agentsup.model.ids import BootId
from agentsup.observe import LogSystem, Redactor, setup_logging
from agentsup.store import Database, StoreRecord
from agentsup.supervision import REBUILD_CODE

_log = get_logger(__name__)

STORM_LIMIT = 10
STORM_WINDOW_MS = 60_000
LAST_THREADS_S = 5.0
"""Once all is closed, a hanging thread keeps the process for this many seconds at most."""
LAST_RESORT_S = 50.0
"""The time in seconds after which the process ends at the latest, once an end was asked for (the
graces and 5 s)."""
FORCED_CODE = 128 + signal.SIGTERM
"""The exit code of an end that was asked for and had to be forced: nothing starts the daemon again."""


ACCEPT_STORE = "--accept-store"


def run_daemon(home: Path, *, port: int | None, accept_store: bool = False) -> int:
    """Run the daemon of ``home`` until it ends (blocking), and return the exit code.

    ``accept_store``: a store that is missing, older than recorded or without its log is used as it
    is.

    An error that a person must fix is printed as one sentence on standard error, and 1 is returned.
    An end with 42 re-executes the process in place and does not return, if nothing outside would
    restart it.
    """
    prctl.close_memory()
    descriptors.raise_limit()
    root = Home(home.expanduser().absolute())
    with naming(root.root, Home.resolve(environ={}).root):
        return _run(root, port, accept_store=accept_store)


def _run(root: Home, port: int | None, *, accept_store: bool) -> int:
    try:
        restored = restore_at_start(root)
        disk_space.wait_for_space(root.create)
        lock = HomeLock(root.lock)
        disk_space.wait_for_space(lock.acquire)
    except HomeLocked as error:
        of_pid = f" (pid {error.pid})" if error.pid else ""
        return _refuse(
            f"{root.root} belongs to a running daemon{of_pid}. "
            "`agentsup status` asks it, `agentsup stop` ends it"
        )
    except OSError as error:
        return _refuse(f"the home {root.root} can't be used: {error.strerror or error}")
    redactor = Redactor()
    log = disk_space.wait_for_space(lambda: _open_log(root, redactor))

    async def start() -> tuple[DaemonExit, bool]:
        return await _Start(root, port, accept_store, redactor, log, lock, restored).run()

    try:
        ending, in_place = asyncio.run(start())
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
    """The command line of the next life, without ``--accept-store``: a store is accepted once."""
    return [sys.executable, *(word for word in argv[1:] if word != ACCEPT_STORE)]


def _open_log(home: Home, redactor: Redactor) -> LogSystem:
    """The log that ``[log]`` configures; the default log if the files are wrong, which is reported
    later."""
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
        most_files=wanted.keep,
    )


def _config_toml(home: Home) -> bytes | None:
    try:
        return in_time(partial(read_plain, home.config_toml, MAX_BYTES + 1), LIMIT_S)
    except FileNotFoundError:
        return None


def _refuse(text: str) -> int:
    sys.stderr.write(f"agentsup: {clean(with_home(text))}\n")
    return 1


@dataclass(frozen=True, slots=True)
class _Start:
    """One run of the process, from its locked home to its end. Made on the loop."""

    home: Home
    port: int | None
    accept_store: bool
    redactor: Redactor
    log: LogSystem
    lock: HomeLock
    restored: list[RestoredMode]
    clock: Clock = field(default_factory=SystemClock)
    files: ConfigFiles = field(default_factory=ConfigFiles)

    async def run(self) -> tuple[DaemonExit, bool]:
        """Run the daemon. Returns why it ended, and whether an end with 42 re-executes the process."""
        reaper = Reaper(self.clock) if prctl.become_subreaper() else None
        entropy = SystemEntropy(self.clock)

        async def token_there() -> tuple[str, bool]:
            return await asyncio.to_thread(operator_token, self.home.api_token, entropy)

        try:
            token, is_new = await disk_space.wait_in_loop(token_there)
            self.redactor.add(token)
            environ = await self._environ()
            tokens, modes = TokenRegistry(entropy, token), StartModes(tuple(self.restored), is_new)
            boot_context = await disk_space.wait_in_loop(
                lambda: self._prepare(entropy, environ, tokens, modes, reaper),
                undo=lambda prepared: prepared.database.close(),
            )
        except disk_space.StoppedWhileWaiting:
            return DaemonExit(0, "asked to end while it waited for space"), False
        database = boot_context.database
        try:
            settled()
            ending = await _serve(build(boot_context), boot_context)
            try:
                await boot.end(
                    database, self.clock, boot_context.boot.boot_id, ending.code, ending.reason
                )
            except StoreUnavailable as error:  # a full disk must not turn a restart into an end
                _log.error("the end could not be noted", code=ending.code, reason=str(error))
            in_place = _restarts_in_place(boot_context.snapshot, self.home)
        finally:
            await database.close()
            self.home.daemon_json.unlink(missing_ok=True)  # nothing else runs on the loop any more
        # After this, Python waits for the threads of its default executor, however long they hang.
        again = in_place and ending.code == REBUILD_CODE
        _last_resort(LAST_THREADS_S, _execute_again if again else partial(os._exit, ending.code))
        return ending, in_place

    async def _environ(self) -> dict[str, str]:
        """Our environment and the home's, with a PATH in which no folder holds files that an agent
        wrote."""
        home, files = self.home, self.files
        try:
            declared = await files.run(partial(read_environment, home), key=f"{home.environment}")
        except OSError as error:
            _log.error("the file environment does not answer", reason=str(error))
            declared = HomeEnvironment({})
        self.redactor.add_all(declared.secrets)
        environ = declared.beside(os.environ)
        proxy.use(declared.values)
        await files.run(installation.remember, key="installation")
        try:
            return await files.run(partial(without_folders_of, environ, home.root), key="PATH")
        except OSError as error:
            _log.error("PATH is not used, as folders of it don't answer", reason=str(error))
            return {**environ, "PATH": os.defpath}

    async def _prepare(
        self,
        entropy: Entropy,
        environ: Mapping[str, str],
        tokens: TokenRegistry,
        start_modes: StartModes,
        reaper: Reaper | None,
    ) -> BootContext:
        """Open the store and record this boot in it. Nothing stays open if that fails."""
        home, clock, files, scripts = self.home, self.clock, self.files, ScriptCheck()
        record = StoreRecord(
            home.state_db,
            now_ms=clock.now_ms,
            new_id=lambda: entropy.new_id("store"),
            accept=self.accept_store,
        )
        database = await Database.open(home.state_db, clock=clock, record=record)
        try:
            begun = await boot.begin(database, clock, BootId(entropy.new_id("boot")), entropy)
            roster = Roster(database, clock, entropy)
            await roster.load()
            snapshot, complaint = await first_snapshot(
                home, roster.overrides(), files, scripts, environ
            )
            # If config.toml is wrong, this is the level that was applied last.
            set_level(snapshot.settings.log.level.upper())
            set_level("WARNING", "watchfiles")
            await redact_secrets(self.redactor, snapshot, home.root, environ, files)
            await roster.take_over(snapshot.specs)
            if complaint is None:
                await asyncio.to_thread(keep_applied, home, snapshot)
            return BootContext(
                home=home,
                database=database,
                clock=clock,
                entropy=entropy,
                boot=begun,
                endings=await boot.load_endings(database),
                roster=roster,
                snapshot=snapshot,
                first_complaint=complaint,
                tokens=tokens,
                start_modes=start_modes,
                redactor=self.redactor,
                environ=environ,
                config_files=files,
                scripts=scripts,
                port=self.port,
                announce=_show_link if _is_watched() else None,
                keep_lock=self.lock.restore,
                is_started_again=_is_started_again(snapshot, home),
                reaper=reaper,
                dropped_log_lines=lambda: self.log.dropped,
                after_imports=gc.freeze,
            )
        except BaseException:
            await database.close()
            raise


def _is_watched() -> bool:
    """Whether standard output goes to a terminal or a pipe, and not to a file or the journal.

    The link signs its reader in, so it must not be stored.
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


async def _serve(daemon: Assembly, boot_context: BootContext) -> DaemonExit:
    reaper = boot_context.reaper
    running = daemon.agents().running
    swept = await running.processes.sweep_earlier_boots()
    if swept:
        _log.warning("ended processes of an earlier boot", groups=[r.argv0 for r in swept])
    await daemon.mail.mailbox.load()
    _on_signals(daemon.mail.ending)
    try:
        ending = await daemon.borders().supervisor.run()
    finally:
        await running.registry.close()
        if reaper is not None:
            with contextlib.suppress(OrphansStuck):  # reported by the reaper; tried again at start
                await reaper.clear()
    if ending.code == REBUILD_CODE and boot.restart_storm(
        boot_context.boot, REBUILD_CODE, limit=STORM_LIMIT, window_ms=STORM_WINDOW_MS
    ):
        reason = f"main asked for a restart more than {STORM_LIMIT} times in a minute"
        _log.critical("restart storm", reason=reason)
        return DaemonExit(1, reason)
    return ending


def _on_signals(ending: Ending) -> None:
    """The first TERM or INT drains, the second forces, the third or the last resort ends."""
    loop = asyncio.get_running_loop()
    count = 0

    def asked(number: signal.Signals) -> None:
        nonlocal count
        count += 1
        if count == 1:
            ending.end(0, f"signal {number.name}")
            _last_resort(LAST_RESORT_S)
        elif count == 2:
            ending.force()
            _last_resort(5.0)
        else:
            os._exit(FORCED_CODE)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)


def _last_resort(after_s: float, end: Callable[[], object] | None = None) -> None:
    """End the process from a thread after ``after_s``, in case the loop hangs."""
    timer = threading.Timer(after_s, end or partial(os._exit, FORCED_CODE))
    timer.daemon = True
    timer.start()


def _restarts_in_place(snapshot: ConfigSnapshot, home: Home) -> bool:
    """Whether an end with 42 must re-execute the process, because nothing outside restarts it."""
    setting = snapshot.settings.restart_in_place
    if setting != "auto":
        return setting == "always"
    return restarted_by(home.keeper, os.environ) == "nothing"


def _is_started_again(snapshot: ConfigSnapshot, home: Home) -> bool:
    """Whether the process comes back after 42, as far as we can know: not of a container."""
    by = restarted_by(home.keeper, os.environ)
    return _restarts_in_place(snapshot, home) or by in ("systemd", "parent")
