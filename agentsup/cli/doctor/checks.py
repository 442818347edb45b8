"""``agentsup doctor``: what could keep the daemon from running well, each with what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from asyncio.base_subprocess import BaseSubprocessTransport as Transport
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agentsup.cli.connect.client import ConnectionLost, DaemonClient
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.locate import DaemonLocation, holder_of
from agentsup.cli.connect.ports import by_settings
from agentsup.cli.doctor.bots import check_agents
from agentsup.cli.doctor.check import FAIL, OK, WARN, Check
from agentsup.cli.doctor.engines import check_engines
from agentsup.cli.doctor.fence import check_fence, check_folders
from agentsup.cli.doctor.programs import check_programs
from agentsup.cli.doctor.proxies import check_proxies
from agentsup.cli.doctor.store import check_store
from agentsup.cli.doctor.tool_servers import check_running_servers, check_servers
from agentsup.cli.doctor.work import check_work
from agentsup.config import Home, Settings, environment_of, parse_settings, resolve, validate
from agentsup.daemon.runtime import ScriptCheck
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.platforms import PLATFORMS
from agentsup.model.secret import Secret
from agentsup.store import SQLITE_VERSION

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
    **{each.name: (each.library, each.distribution) for each in PLATFORMS},
    "mcp": ("mcp", "mcp"),
    "files": ("pypdf", "pypdf"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http"),
}


def examine(location: DaemonLocation) -> list[Check]:
    """The results of every check, in an order in which problems can be fixed."""
    environ = environment_of(location.home)
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _sqlite,
        _asyncio,
        lambda: _home(location.home),
        lambda: _file_system(location.home),
        lambda: _disk(location.home),
        lambda: _token(location.home),
        lambda: _config(location.home),
        lambda: _daemon(location),
        _extras,
        lambda: check_proxies(environ),
        lambda: check_engines(location, environ),
        lambda: check_agents(location),
        lambda: check_programs(location.home, environ),
        lambda: _fence(location.home),
        lambda: check_folders(location.home, environ),
        lambda: check_servers(location.home, environ),
        lambda: check_running_servers(location, environ),
        lambda: _otel(location.home),
        lambda: _voice(location.home, environ),
        lambda: check_store(location.home, is_running=_runs(location.home)),
        lambda: check_work(location.home.state_db, is_running=_runs(location.home)),
    )
    return [each for check in checks for each in check()]


def _python() -> Iterator[Check]:
    version = platform.python_version()
    if sys.version_info[:2] < LEAST_PYTHON:
        yield Check("python", FAIL, version, "agentsup needs Python 3.11 or newer")
    else:
        yield Check("python", OK, f"{version} ({sys.executable})")


def _sqlite() -> Iterator[Check]:
    if tuple(int(part) for part in SQLITE_VERSION.split(".")) < LEAST_SQLITE:
        yield Check("sqlite", FAIL, SQLITE_VERSION, "agentsup needs SQLite 3.37 or newer")
    else:
        yield Check("sqlite", OK, SQLITE_VERSION)


def _asyncio() -> Iterator[Check]:
    at_exit = Transport._process_exited.__code__.co_names  # noqa: SLF001 - the fix can't be seen otherwise
    at_close = Transport._call_connection_lost.__code__.co_names  # noqa: SLF001 - as above
    if "_exit_waiters" in at_close and "_exit_waiters" not in at_exit:
        text = (
            "this Python's Process.wait() waits for pipes too (cpython #119710); agentsup watches "
            "the exit of engines itself and is not affected"
        )
    else:
        text = "Process.wait() returns at the exit (cpython #119710 is fixed here)"
    yield Check("asyncio", OK, text)


def _home(home: Home) -> Iterator[Check]:
    root = home.root
    if not root.exists():
        yield Check("home", FAIL, f"{root} does not exist", "make it with `agentsup init`")
        return
    if not root.is_dir() or not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        advice = "choose another home, or mend its owner and mode"
        yield Check("home", FAIL, f"{root} is not a directory we can write", advice)
        return
    mode = root.stat().st_mode & 0o777
    if mode & 0o077:
        text = f"{root} is open to other users (mode {mode:o})"
        yield Check("home", WARN, text, f"chmod 700 {root}")
    else:
        yield Check("home", OK, str(root))


def _file_system(home: Home) -> Iterator[Check]:
    kind = file_system_of(home.root)
    if kind in _NETWORK:
        yield Check(
            "file system",
            WARN,
            f"{home.root} is on {kind}, a network file system: locks and the write-ahead log of "
            "SQLite can't be relied on there",
            "put the home on a local disk",
        )
    elif kind:
        yield Check("file system", OK, kind)


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


def _disk(home: Home) -> Iterator[Check]:
    probe = home.root
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    free = shutil.disk_usage(probe).free
    text = f"{free / (1 << 30):.1f} GiB free"
    if free < NO_DISK:
        yield Check("disk", FAIL, text, "free some space; the store can't be written without")
    elif free < LITTLE_DISK:
        yield Check("disk", WARN, text, "free some space")
    else:
        yield Check("disk", OK, text)


def _token(home: Home) -> Iterator[Check]:
    path = home.api_token
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        if home.root.is_dir():
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


def _config(home: Home) -> Iterator[Check]:
    if not home.root.is_dir():
        return
    found = validate(home, checks=(ScriptCheck(),))
    for one in found:
        yield Check("config", FAIL if one.is_error else WARN, str(one))
    if not found:
        yield Check("config", OK, "agents.json and config.toml are right")


def _daemon(location: DaemonLocation) -> Iterator[Check]:
    if not location.home.root.is_dir() and not location.url:
        return
    try:
        client = DaemonClient.to(location)
        status = client.ask("GET", "/status", timeout_s=5.0)
        ready = client.ask("GET", "/readyz", timeout_s=5.0)
    except DaemonUnreachable:
        yield from _no_daemon(location)
        return
    except ConnectionLost as lost:
        yield Check("daemon", FAIL, str(lost), "see `agentsup logs`")
        return
    except CommandFailed as failure:
        yield Check("daemon", FAIL, str(failure))
        return
    if status.status != 200:
        yield Check(
            "daemon",
            FAIL,
            f"what answers at {client.address.url} does not know our token",
            "another program, or the daemon of another home, has the port; set api.port",
        )
    elif ready.status != 200:
        missing = ", ".join(p["name"] for p in ready.document.get("probes", ()) if not p["ok"])
        yield Check(
            "daemon", WARN, f"runs, not ready: {missing or 'draining'}", "see `agentsup logs`"
        )
    else:
        yield Check("daemon", OK, f"runs at {client.address.url} (pid {status.document['pid']})")


def _no_daemon(location: DaemonLocation) -> Iterator[Check]:
    if location.url:
        yield Check("daemon", FAIL, location.not_running())
        return
    holder = holder_of(location.home)
    if holder is not None:
        text = f"process {holder} holds the home and does not answer"
        yield Check("daemon", FAIL, text, "see `agentsup logs`; `agentsup stop` ends it")
        return
    written = location.written()
    if written is None:
        yield Check("daemon", OK, "none runs for this home")
    else:
        # A daemon that ends normally removes its address.
        text = (
            f"none runs for this home; the last one (pid {written.get('pid')}) did not end normally"
        )
        advice = f"`{location.command('up')}` starts it, and nothing accepted is lost; see `agentsup logs`"
        yield Check("daemon", WARN, text, advice)
    yield from _port(location.home)


def _port(home: Home) -> Iterator[Check]:
    wanted = by_settings(home)
    if wanted is None:
        return  # the check of the configuration reports it
    if problem := wanted.problem():
        text = f"{wanted.bind}:{wanted.port} can't be had: {problem}"
        yield Check("port", FAIL, text, "end what uses it, or set api.port in config.toml")
    else:
        yield Check("port", OK, f"{wanted.bind}:{wanted.port} is free")


def _extras() -> Iterator[Check]:
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


def _settings(home: Home) -> Settings | None:
    """The settings; None if they can't be read, which the check of the configuration reports."""
    try:
        content = home.config_toml.read_bytes() if home.config_toml.exists() else None
        return parse_settings(content).settings
    except (ConfigErrors, OSError):
        return None


def _fence(home: Home) -> Iterator[Check]:
    """Whether the kernel keeps programs of agents from the home and from other agents."""
    settings = _settings(home)
    return check_fence(settings.fence.mode if settings else "auto")


def _otel(home: Home) -> Iterator[Check]:
    """Whether the library that sends spans is installed, if a setting names where they go."""
    settings = _settings(home)
    if settings is None or not settings.otel.url:
        return
    otel = settings.otel
    if _is_installed(_EXTRAS["otel"][0]):
        yield Check("otel", OK, f"spans are sent to {otel.url}")
    else:
        text = f"[otel] names {otel.url}, and OpenTelemetry is not installed: nothing is sent"
        yield Check("otel", FAIL, text, "pip install 'agentsup[otel]', then restart the daemon")


def _voice(home: Home, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether the program and the key that ``[voice]`` names are there."""
    settings = _settings(home)
    if settings is None or not settings.voice.is_on:
        return
    voice = settings.voice
    try:
        resolve(Secret(voice.hear_key), base=home.root, environ=environ)
    except ConfigError as error:
        yield Check("voice", FAIL, error.message, "correct hear_key under [voice] in config.toml")
        return
    if not voice.hear_command:
        yield Check("voice", OK, f"voice messages are sent to {voice.hear_url}")
    elif shutil.which(voice.hear_command[0], path=environ.get("PATH")) is None:
        text = f"[voice] names the program {voice.hear_command[0]}, which is not on the path"
        yield Check("voice", FAIL, text, "install it, or correct hear_command in config.toml")
    else:
        yield Check("voice", OK, f"voice messages are heard by {voice.hear_command[0]}")


def _runs(home: Home) -> bool:
    return holder_of(home) is not None
