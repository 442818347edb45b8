"""`agentsup doctor`: what could keep the daemon from running well, each with what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentsup.cli.client import Client, ConnectionLost
from agentsup.cli.failure import Failed, Unreachable
from agentsup.cli.locate import Place, holder_of
from agentsup.config.home import Home

if TYPE_CHECKING:
    from agentsup.config.settings import Settings

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"
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
    "mcp": ("mcp", "mcp"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and what to do about it."""

    name: str
    result: str
    text: str
    advice: str = ""


def examine(place: Place) -> list[Check]:
    """Every check, in an order in which they can be mended."""
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _sqlite,
        _asyncio,
        lambda: _home(place.home),
        lambda: _file_system(place.home),
        lambda: _disk(place.home),
        lambda: _token(place.home),
        lambda: _config(place.home),
        lambda: _daemon(place),
        _extras,
        lambda: _engine(place),
        lambda: _programs(place.home),
        lambda: _fence(place.home),
        lambda: _servers(place.home),
        lambda: _otel(place.home),
        lambda: _store(place.home),
        lambda: _work(place.home),
    )
    return [each for check in checks for each in check()]


def _python() -> Iterator[Check]:
    version = platform.python_version()
    if sys.version_info[:2] < LEAST_PYTHON:
        yield Check("python", FAIL, version, "agentsup needs Python 3.11 or newer")
    else:
        yield Check("python", OK, f"{version} ({sys.executable})")


def _sqlite() -> Iterator[Check]:
    from agentsup.store.version import SQLITE_VERSION

    if tuple(int(part) for part in SQLITE_VERSION.split(".")) < LEAST_SQLITE:
        yield Check("sqlite", FAIL, SQLITE_VERSION, "agentsup needs SQLite 3.37 or newer")
    else:
        yield Check("sqlite", OK, SQLITE_VERSION)


def _asyncio() -> Iterator[Check]:
    from asyncio.base_subprocess import BaseSubprocessTransport as Transport

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
    """The kind of file system that `path` lies on; empty where the system does not tell."""
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
    from agentsup.cli.scripts import script_findings
    from agentsup.config.explain import validate

    found = validate(home, checks=(script_findings,))
    for one in found:
        yield Check("config", FAIL if one.is_error else WARN, str(one))
    if not found:
        yield Check("config", OK, "agents.json and config.toml are right")


def _daemon(place: Place) -> Iterator[Check]:
    if not place.home.root.is_dir() and not place.url:
        return
    try:
        client = Client.to(place)
        status = client.ask("GET", "/status", timeout_s=5.0)
        ready = client.ask("GET", "/readyz", timeout_s=5.0)
    except Unreachable:
        yield from _no_daemon(place)
        return
    except ConnectionLost as lost:
        yield Check("daemon", FAIL, str(lost), "see `agentsup logs`")
        return
    except Failed as failure:
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


def _no_daemon(place: Place) -> Iterator[Check]:
    if place.url:
        yield Check("daemon", FAIL, place.not_running())
        return
    holder = holder_of(place.home)
    if holder is not None:
        text = f"process {holder} holds the home and does not answer"
        yield Check("daemon", FAIL, text, "see `agentsup logs`; `agentsup stop` ends it")
        return
    yield Check("daemon", OK, "none runs for this home")
    yield from _port(place.home)


def _port(home: Home) -> Iterator[Check]:
    from agentsup.config.settings import parse_settings
    from agentsup.model.errors import ConfigErrors

    try:
        content = home.config_toml.read_bytes() if home.config_toml.exists() else None
        api = parse_settings(content).settings.api
    except (ConfigErrors, OSError):
        return  # told by the check of the configuration
    family = socket.AF_INET6 if ":" in api.bind else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((api.bind, api.port))
    except OSError as error:
        text = f"{api.bind}:{api.port} can't be had: {error.strerror or error}"
        yield Check("port", FAIL, text, "end what uses it, or set api.port in config.toml")
    else:
        yield Check("port", OK, f"{api.bind}:{api.port} is free")


def _extras() -> Iterator[Check]:
    missing = [extra for extra, (module, _) in _EXTRAS.items() if not _is_installed(module)]
    for extra, (_, package) in _EXTRAS.items():
        if extra not in missing:
            yield Check(f"extra {extra}", OK, f"{package} {importlib.metadata.version(package)}")
    if missing:
        told = f"not installed: {', '.join(missing)} (pip install 'agentsup[NAME]')"
        yield Check("other extras", OK, told)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # the package around it is missing
        return False


def _settings(home: Home) -> Settings | None:
    """None where they can't be read, which the check of the configuration tells."""
    from agentsup.config.settings import parse_settings
    from agentsup.model.errors import ConfigErrors

    try:
        content = home.config_toml.read_bytes() if home.config_toml.exists() else None
        return parse_settings(content).settings
    except (ConfigErrors, OSError):
        return None


def _fence(home: Home) -> Iterator[Check]:
    """Whether the kernel keeps what agents run from the home and from other agents."""
    from agentsup.cli.doctor_fence import look

    settings = _settings(home)
    for result, text, advice in look(settings.fence.mode if settings else "auto"):
        yield Check("fence", result, text, advice)


def _otel(home: Home) -> Iterator[Check]:
    """Spans that a setting sends somewhere need the library that sends them."""
    settings = _settings(home)
    if settings is None or not settings.otel.url:
        return
    otel = settings.otel
    if _is_installed(_EXTRAS["otel"][0]):
        yield Check("otel", OK, f"spans are sent to {otel.url}")
    else:
        text = f"[otel] names {otel.url}, and OpenTelemetry is not installed: nothing is sent"
        yield Check("otel", FAIL, text, "pip install 'agentsup[otel]', then restart the daemon")


def _store(home: Home) -> Iterator[Check]:
    """Whether a start will take the store, and what it can be restored from."""
    from agentsup.cli.doctor_store import look

    for is_well, text, advice in look(home, is_running=holder_of(home) is not None):
        yield Check("store", OK if is_well else FAIL, text, advice)


def _work(home: Home) -> Iterator[Check]:
    """How the work of late went, from the store."""
    from agentsup.cli.doctor_work import SUBJECTS, look
    from agentsup.model.errors import AgentsupError

    if not home.state_db.is_file():
        return
    try:
        found = look(home.state_db, is_running=holder_of(home) is not None)
    except AgentsupError as error:
        yield Check("work", FAIL, error.message)
        return
    for one in found:
        yield Check(one.subject, WARN, one.text, one.advice)
    well = [subject for subject in SUBJECTS if subject not in {one.subject for one in found}]
    if well:
        yield Check("work", OK, f"nothing amiss: {', '.join(well)}")


def _servers(home: Home) -> Iterator[Check]:
    """Whether the agents' tool servers can be opened."""
    from agentsup.cli.doctor_servers import look

    for one in look(home, os.environ):
        yield Check("tool server", OK if one.is_well else FAIL, one.text, one.advice)


def _engine(place: Place) -> Iterator[Check]:
    """What the agents think with, as the daemon says and as this shell would have it."""
    from agentsup.cli.doctor_engines import look

    for one in look(place, os.environ):
        yield Check("engine", OK if one.is_well else WARN, one.text, one.advice)


def _programs(home: Home) -> Iterator[Check]:
    """Coding agents that can be an engine; one that an entry names must be there."""
    from agentsup.cli.doctor_programs import look
    from agentsup.config.fencing import FenceSettings
    from agentsup.config.snapshot import load
    from agentsup.daemon.fencing import fencing_by
    from agentsup.model.errors import AgentsupError

    try:
        snapshot = load(home)
        fence, specs = snapshot.settings.fence, tuple(snapshot.specs.values())
    except AgentsupError:
        fence, specs = FenceSettings(), ()  # told by the check of the configuration
    fencing = fencing_by(home.root, os.environ, fence, specs)
    found = look(os.environ, {spec.engine for spec in specs}, fencing)
    for each in found:
        if each.path is None and not each.is_used:
            continue
        result = OK if each.is_well else FAIL if each.path is None else WARN
        yield Check(f"engine {each.preset.name}", result, each.text, each.advice)
    missing = [each.preset.name for each in found if each.path is None and not each.is_used]
    if missing:
        told = f"not installed, and no agent names one: {', '.join(missing)}"
        yield Check("other engines", OK, told)
