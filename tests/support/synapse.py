"""A real Synapse as a child process: the Matrix server of live tests.

SQLite, loopback, plain HTTP, no federation, no rate limits unless a test wants some. Its packages
stand in an environment of their own (``make synapse``). It dies with the process that started it.

    async with Synapse(folder) as synapse:
        await synapse.register("ann", "secret")
        await synapse.kill()
        await synapse.start()  # same port, same data
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.support.ports import free_port

SERVER_NAME: Final = "localhost"
START_S: Final = 40.0
_STEP_S: Final = 0.05
_STOP_S: Final = 15.0
_UNLIMITED: Final[Mapping[str, Any]] = {"per_second": 100_000, "burst_count": 100_000}
_LIMITS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        (
            *("rc_message", "rc_registration", "rc_admin_redaction", "rc_joins_per_room"),
            *("rc_3pid_validation", "rc_media_create", "rc_presence_per_user", "rc_reports"),
            *("rc_registration_token_validity", "rc_room_creation"),
        ),
        _UNLIMITED,
    ),
    "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), _UNLIMITED),
    "rc_joins": dict.fromkeys(("local", "remote"), _UNLIMITED),
    "rc_invites": dict.fromkeys(("per_room", "per_user", "per_issuer"), _UNLIMITED),
    "rc_presence": {"per_user": _UNLIMITED},
}
# Ends with its parent, so that a killed test run leaves no server behind.
_BOOTSTRAP: Final = (
    "import ctypes, os, runpy, signal, sys\n"
    "parent, sys.argv = int(sys.argv[1]), ['synapse', *sys.argv[2:]]\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "if os.getppid() != parent: sys.exit(1)\n"
    "runpy.run_module('synapse.app.homeserver', run_name='__main__')\n"
)


class SynapseMissing(RuntimeError):
    """Synapse is not installed; the text says what to do."""


class Synapse:
    """One homeserver with its folder, through any number of starts."""

    def __init__(
        self, folder: Path, *, python: Path | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        """``more`` goes over the top level of its configuration, such as real rate limits.

        ``python`` is the interpreter that has Synapse; by default that of ``make synapse``.
        """
        self.folder = folder
        self.port = 0
        self._python = python or _installed()
        self._more = dict(more or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is; the same after a restart."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        """What all starts printed and logged."""
        return self.folder / "synapse.out"

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout_s: float = START_S) -> None:
        """Start and wait until it answers. Raises ``RuntimeError`` with its output if it doesn't."""
        if self.is_running:
            raise RuntimeError("it runs already")
        config = self.folder / "homeserver.json"
        if self.port == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.port = free_port()
            config.write_text(json.dumps(self._config()))
            keys = self._spawned(config, "--generate-keys")
            if await asyncio.to_thread(keys.wait, timeout_s) != 0:
                raise RuntimeError(f"Synapse did not make its keys:\n{self.tail()}")
        self._process = self._spawned(config)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as http:
                while self._process.poll() is None:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with http.get(f"{self.url}/_matrix/client/versions") as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(_STEP_S)
        await self.kill()
        raise RuntimeError(f"Synapse did not start within {timeout_s} s:\n{self.tail()}")

    async def kill(self) -> None:
        """SIGKILL; the folder keeps what was committed."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM and wait for the end."""
        await self._end(signal.SIGTERM)

    async def restart(self) -> None:
        """Kill if it runs, then start."""
        await self.kill()
        await self.start()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill."""
        await self.kill()

    async def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        try:
            await asyncio.to_thread(process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    def _spawned(self, config: Path, *arguments: str) -> subprocess.Popen[bytes]:
        # Not in a thread: the child is tied to the life of the thread that makes it.
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [
                    *(str(self._python), "-c", _BOOTSTRAP, str(os.getpid())),
                    *("--config-path", str(config), *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def tail(self, size: int = 4000) -> str:
        """The end of what it printed."""
        return self.output.read_bytes()[-size:].decode(errors="replace")

    # -- accounts ----------------------------------------------------------------------------------

    def user_id(self, name: str) -> str:
        """The Matrix id of a local name."""
        return f"@{name}:{SERVER_NAME}"

    async def register(self, name: str, password: str) -> str:
        """Make an account; its Matrix id. Registering leaves no session behind."""
        body = {
            "username": name,
            "password": password,
            "inhibit_login": True,
            "auth": {"type": "m.login.dummy"},
        }
        url = f"{self.url}/_matrix/client/v3/register"
        async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
            document = await answer.json()
            if answer.status != 200:
                raise RuntimeError(f"{name} can't be registered: {document}")
            return str(document["user_id"])

    # -- configuration -----------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        folder = self.folder
        logging = {
            "version": 1,
            "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
            "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "plain"}},
            "root": {"level": "WARNING", "handlers": ["out"]},
            "disable_existing_loggers": False,
        }
        (folder / "logging.json").write_text(json.dumps(logging))
        return {
            "server_name": SERVER_NAME,
            "pid_file": str(folder / "synapse.pid"),
            "listeners": [
                {
                    "port": self.port,
                    "tls": False,
                    "type": "http",
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"]}],
                }
            ],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "server.db")}},
            "log_config": str(folder / "logging.json"),
            "media_store_path": str(folder / "media"),
            "signing_key_path": str(folder / "signing.key"),
            "macaroon_secret_key": "loopback only",
            "form_secret": "loopback only",
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "report_stats": False,
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "bcrypt_rounds": 4,
            "filter_timeline_limit": 10_000,
            "suppress_key_server_warning": True,
            **_LIMITS,
            **self._more,
        }


def _installed() -> Path:
    """The interpreter of the environment that ``make synapse`` makes. Raises ``SynapseMissing``."""
    named = os.environ.get("TEST_SYNAPSE_PYTHON")
    python = Path(named or Path(__file__).parents[2] / ".venv-synapse/bin/python")
    if not python.exists():
        raise SynapseMissing(f"no Synapse: {python} is missing; run `make synapse`")
    return python
