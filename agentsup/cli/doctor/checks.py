"""``agentsup doctor``: what could keep the daemon from running well, each with what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agentsup.cli.connect.client import ConnectionLost, DaemonClient
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.keeping import by_settings
from agentsup.cli.connect.locate import DaemonLocation, holder_of
from agentsup.cli.doctor.agents import (
    check_engines,
    check_programs,
    check_running_servers,
    check_servers,
    check_warnings,
)
from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.cli.doctor.fence import check_fence, check_folders
from agentsup.config import resolve, validate
from agentsup.daemon.runtime import ScriptCheck
from agentsup.kit.clock import SystemClock
from agentsup.kit.outbound.proxy import NAMES, ProxyUnusable, proxy_of
from agentsup.model.errors import AgentsupError, ConfigError, StoreLost
from agentsup.model.platforms import PLATFORMS
from agentsup.model.secret import Secret
from agentsup.observe.traces import TraceFinding
from agentsup.observe.traces import examine as examine_traces
from agentsup.store import SQLITE_VERSION, Reader, StoreRecord, glance, latest, taken_at

_DAY_MS = 86_400_000
_SHOWN = 5
_TEXT_CHARS = 200
LEAST_PYTHON: Final = (3, 11)
LEAST_SQLITE: Final = (3, 37, 0)
"""The first with STRICT tables."""
LITTLE_DISK: Final = 1 << 30
NO_DISK: Final = 64 << 20
_NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "sshfs", "fuse.sshfs", "afs"}
_EXTRAS: Final = {
    "llm": ("pydantic_ai", "pydantic-ai-slim"),
    "anthropic": ("anthropic", "anthropic"),
    "acp": ("acp", "agent-client-protocol"),
    **{each.name: (each.library, each.distribution) for each in PLATFORMS if each.library},
    "mcp": ("mcp", "mcp"),
    "files": ("pypdf", "pypdf"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http"),
}


SUBJECTS = ("loops", "timeouts", "leaks", "questions", "failures")


def examine(location: DaemonLocation) -> list[Check]:
    """The results of every check, in an order in which problems can be fixed."""
    it = Examined.at(location)
    return [each for check in CHECKS for each in check(it)]


def _python(it: Examined) -> Iterator[Check]:
    version = platform.python_version()
    is_old = sys.version_info[:2] < LEAST_PYTHON
    text = version if is_old else f"{version} ({sys.executable})"
    yield Check.of("python", FAIL if is_old else OK, text, "agentsup needs Python 3.11 or newer")


def _sqlite(it: Examined) -> Iterator[Check]:
    is_old = tuple(int(part) for part in SQLITE_VERSION.split(".")) < LEAST_SQLITE
    advice = "agentsup needs SQLite 3.37 or newer"
    yield Check.of("sqlite", FAIL if is_old else OK, SQLITE_VERSION, advice)


def _home(it: Examined) -> Iterator[Check]:
    root = it.home.root
    if not root.exists():
        yield Check("home", FAIL, f"{root} does not exist", "make it with `agentsup init`")
    elif not root.is_dir() or not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        advice = "choose another home, or mend its owner and mode"
        yield Check("home", FAIL, f"{root} is not a directory we can write", advice)
    elif (mode := root.stat().st_mode & 0o777) & 0o077:
        text = f"{root} is open to other users (mode {mode:o})"
        yield Check("home", WARN, text, f"chmod 700 {root}")
    else:
        yield Check("home", OK, str(root))


def _file_system(it: Examined) -> Iterator[Check]:
    text = kind = file_system_of(it.home.root)
    if kind in _NETWORK:
        text = (
            f"{it.home.root} is on {kind}, a network file system: locks and the write-ahead log of "
            "SQLite can't be relied on there"
        )
    if kind:
        result = WARN if kind in _NETWORK else OK
        yield Check.of("file system", result, text, "put the home on a local disk")


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of file system that ``path`` is on; empty if the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _disk(it: Examined) -> Iterator[Check]:
    probe = it.home.root
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    free = shutil.disk_usage(probe).free
    result = FAIL if free < NO_DISK else WARN if free < LITTLE_DISK else OK
    more = "; the store can't be written without" if result == FAIL else ""
    yield Check.of("disk", result, f"{free / (1 << 30):.1f} GiB free", f"free some space{more}")


def _token(it: Examined) -> Iterator[Check]:
    path = it.home.api_token
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        if it.home.root.is_dir():
            yield Check("token", OK, "none yet; the daemon makes it at its first start")
        return
    if mode & 0o077:
        text = f"{path} can be read by others (mode {mode:o})"
        advice = "the daemon makes a new one within a minute, or when it starts"
        yield Check("token", WARN, text, advice)
    elif not os.access(path, os.R_OK):
        yield Check("token", FAIL, f"{path} is another user's", "run this as its owner")
    else:
        yield Check("token", OK, f"{path.name} is readable by its owner alone")


def _config(it: Examined) -> Iterator[Check]:
    if not it.home.root.is_dir():
        return
    found = validate(it.home, checks=(ScriptCheck(),))
    for one in found:
        yield Check("config", FAIL if one.is_error else WARN, str(one))
    if not found:
        yield Check("config", OK, "agents.json and config.toml are right")


def _daemon(it: Examined) -> Iterator[Check]:
    location = it.location
    if not it.home.root.is_dir() and not location.url:
        return
    try:
        client = DaemonClient.to(location)
        status = client.ask("GET", "/status", timeout_s=5.0)
        ready = client.ask("GET", "/readyz", timeout_s=5.0)
    except DaemonUnreachable:
        yield from _no_daemon(location)
    except CommandFailed as failure:
        advice = "see `agentsup logs`" if isinstance(failure, ConnectionLost) else ""
        yield Check("daemon", FAIL, str(failure), advice)
    else:
        url = client.address.url
        if status.status != 200:
            text = f"what answers at {url} does not know our token"
            advice = "another program, or the daemon of another home, has the port; set api.port"
            yield Check("daemon", FAIL, text, advice)
        elif ready.status != 200:
            missing = ", ".join(p["name"] for p in ready.document.get("probes", ()) if not p["ok"])
            text = f"runs, not ready: {missing or 'draining'}"
            yield Check("daemon", WARN, text, "see `agentsup logs`")
        else:
            yield Check("daemon", OK, f"runs at {url} (pid {status.document['pid']})")


def _no_daemon(location: DaemonLocation) -> Iterator[Check]:
    if location.url:
        yield Check("daemon", FAIL, location.not_running())
        return
    if (holder := holder_of(location.home)) is not None:
        text = f"process {holder} holds the home and does not answer"
        yield Check("daemon", FAIL, text, "see `agentsup logs`; `agentsup stop` ends it")
        return
    text, written = "none runs for this home", location.written()
    if written is not None:  # a daemon that ends normally removes its address
        text += f"; the last one (pid {written.get('pid')}) did not end normally"
    advice = (
        f"`{location.command('up')}` starts it, and nothing accepted is lost; see `agentsup logs`"
    )
    yield Check.of("daemon", OK if written is None else WARN, text, advice)
    if (wanted := by_settings(location.home)) is not None:  # else the check of config reports it
        problem, where = wanted.problem(), f"{wanted.bind}:{wanted.port}"
        text = f"{where} can't be had: {problem}" if problem else f"{where} is free"
        advice = "end what uses it, or set api.port in config.toml"
        yield Check.of("port", FAIL if problem else OK, text, advice)


def _extras(it: Examined) -> Iterator[Check]:
    missing = [extra for extra, (module, _) in _EXTRAS.items() if not _is_installed(module)]
    for extra, (_, package) in _EXTRAS.items():
        if extra not in missing:
            yield Check(f"extra {extra}", OK, f"{package} {importlib.metadata.version(package)}")
    if missing:
        text = f"not installed: {', '.join(missing)} (pip install 'agentsup[NAME]')"
        yield Check("other extras", OK, text)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # the package around it is missing
        return False


def check_proxies(it: Examined) -> Iterator[Check]:
    """Report the proxies of outgoing requests; nothing if there are none."""
    found = {}
    # Without NO_PROXY, which may name everything.
    given = {n: it.environ[n] for n in NAMES if n in it.environ and n.casefold() != "no_proxy"}
    for scheme in ("https", "http"):
        try:
            proxy = proxy_of(f"{scheme}://example.com", given)
        except ProxyUnusable as error:
            yield Check("proxy", WARN, str(error), "correct the variable, then restart")
            return
        if proxy is not None:
            parts = urlsplit(proxy)  # without its password
            port = parts.port or (443 if parts.scheme == "https" else 80)
            found[scheme] = f"{parts.hostname}:{port}"
    if found:
        asked = ", ".join(f"{scheme} through {where}" for scheme, where in found.items())
        excluded = it.environ.get("no_proxy") or it.environ.get("NO_PROXY")
        rest = f" and NO_PROXY ({excluded})" if excluded else ""
        yield Check("proxy", OK, f"{asked}; directly: this machine{rest}")


def _fence(it: Examined) -> Iterator[Check]:
    """Whether the kernel keeps programs of agents from the home and from other agents."""
    return check_fence(it.settings.fence.mode if it.settings else "auto")


def _otel(it: Examined) -> Iterator[Check]:
    """Whether the library that sends spans is installed, if a setting names where they go."""
    if it.settings is None or not (url := it.settings.otel.url):
        return
    if _is_installed(_EXTRAS["otel"][0]):
        yield Check("otel", OK, f"spans are sent to {url}")
    else:
        text = f"[otel] names {url}, and OpenTelemetry is not installed: nothing is sent"
        yield Check("otel", FAIL, text, "pip install 'agentsup[otel]', then restart the daemon")


def _voice(it: Examined) -> Iterator[Check]:
    """Whether the program and the key that ``[voice]`` names are there."""
    if it.settings is None or not it.settings.voice.is_on:
        return
    voice = it.settings.voice
    try:
        resolve(Secret(voice.hear_key), base=it.home.root, environ=it.environ)
    except ConfigError as error:
        yield Check("voice", FAIL, error.message, "correct hear_key under [voice] in config.toml")
        return
    if not voice.hear_command:
        yield Check("voice", OK, f"voice messages are sent to {voice.hear_url}")
    elif shutil.which(voice.hear_command[0], path=it.environ.get("PATH")) is None:
        text = f"[voice] names the program {voice.hear_command[0]}, which is not on the path"
        yield Check("voice", FAIL, text, "install it, or correct hear_command in config.toml")
    else:
        yield Check("voice", OK, f"voice messages are heard by {voice.hear_command[0]}")


def check_store(it: Examined) -> Iterator[Check]:
    """Whether a start will take the store, and what it can be restored from.

    Only the files are read, and the store's own file only if no daemon has it open.
    """
    now, home = SystemClock().now_ms(), it.home
    if not it.is_running:
        try:
            StoreRecord(home.state_db, now_ms=lambda: now, new_id=str).check()
        except StoreLost as error:
            advice = "put the right files back, restore a backup or accept it"
            yield Check("store", FAIL, error.message, advice)
        except (AgentsupError, OSError) as error:
            yield Check("store", FAIL, str(error))
    if not home.state_db.is_file():
        return
    text = "no backup yet: the first is made 10 minutes after a start"
    if (newest := latest(home.backups)) is not None:
        age_days = max(0.0, (now - (taken_at(newest) or now)) / _DAY_MS)
        text = f"newest backup {newest.name}, {age_days:.1f} days old"
    yield Check("store", OK, text)


def check_work(it: Examined) -> Iterator[Check]:
    """Problems of the latest work, from the store; a daemon may write it meanwhile."""
    if not it.home.state_db.is_file():
        return

    def read(reader: Reader) -> list[TraceFinding]:
        boot = "SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1"
        boot_id = reader.scalar(boot) if it.is_running else None
        now = SystemClock().now_ms()
        return [*examine_traces(reader, now, boot_id), *failures(reader, now)]

    try:
        found = glance(it.home.state_db, read)
    except AgentsupError as error:
        yield Check("work", FAIL, error.message)
        return
    for one in found:
        yield Check(one.subject, WARN, one.text, one.advice)
    well = [subject for subject in SUBJECTS if subject not in {one.subject for one in found}]
    if well:
        yield Check("work", OK, f"nothing amiss: {', '.join(well)}")


def failures(reader: Reader, now: int) -> Iterator[TraceFinding]:
    """The failures of the last day by error code, and how often a fallback model had to answer,
    each with the text of the last one."""
    tables = {row[0] for row in reader.all("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"messages", "attempts"} <= tables:
        return  # a store that no daemon of this version has opened yet
    rows = reader.all(
        "SELECT error_code, count(*), error_text, max(finished_at) FROM messages"
        " WHERE finished_at >= ? AND (outcome = 'failed' OR state = 'dead')"
        " AND error_code NOT IN ('', 'cancelled', 'expired')"
        " GROUP BY error_code ORDER BY count(*) DESC LIMIT ?",
        (now - _DAY_MS, _SHOWN),
    )
    for code, count, text, _ in rows:
        yield TraceFinding(
            "failures",
            f"{count} failed within a day with {code}, the last one: {_short(text)}",
            "see `agentsup messages list` and `agentsup failed list`; `agentsup docs recovery` names the kinds",
        )
    switched = reader.one(
        "SELECT count(*), text, max(attempt_id) FROM attempts WHERE at >= ? AND act = 'switch'",
        (now - _DAY_MS,),
    )
    if switched is not None and switched[0]:
        yield TraceFinding(
            "failures",
            f"{switched[0]} went to a fallback model within a day, the last because:"
            f" {_short(switched[1])}",
            "the primary model of these agents is out; `agentsup logs` has each case",
        )


def _short(text: str) -> str:
    return " ".join(str(text).split())[:_TEXT_CHARS]


CHECKS: Final[tuple[Callable[[Examined], Iterator[Check]], ...]] = (
    *(_python, _sqlite, _home, _file_system, _disk, _token, _config, _daemon, _extras),
    *(check_proxies, check_engines, check_warnings, check_programs, _fence, check_folders),
    *(check_servers, check_running_servers, _otel, _voice, check_store, check_work),
)
"""Every check, in an order in which problems can be fixed."""
