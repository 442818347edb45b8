"""A real daemon as a child process, and raw clients for it: for proofs that kill and restart it.

Nothing here uses agentsup's own client or store code: requests are plain HTTP, chats plain
WebSocket frames, and the store is read with ``sqlite3``, so that what is proved is what a stranger
sees. Readiness and ends are waited for as events (the service manager's READY=1, a pidfd).

    async with DaemonProcess(home) as daemon:
        answer = await daemon.post("/interagent/send", {"to": "main", "message": "hello"})
        daemon.kill()
        await daemon.ended()
        await daemon.start()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from agentsup.kit.proctable import read_row
from tests.support.bound import BOUND_S
from tests.support.chat_client import Chat
from tests.support.fork_server import ADDRESS, INHERITED, Cage
from tests.support.ports import free_port
from tests.support.preloaded_process import LoadedProcess, Process, modules_of
from tests.support.socket_folder import socket_folder

_STEP_S: Final = 0.02


def write_home(
    home: Path,
    agents: Sequence[Mapping[str, Any]],
    rules: Sequence[Mapping[str, Any]] = (),
    config: str = "",
) -> Path:
    """Write a home: ``agents.json``, ``rules.yaml`` for entries without an engine, ``config.toml``.

    Entries without ``engine`` get the scripted one with these rules (JSON is YAML). Returns ``home``.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "rules.yaml").write_text(json.dumps(list(rules)))
    scripted = {"engine": "scripted", "engine_options": {"script": "file:rules.yaml"}}
    (home / "agents.json").write_text(
        json.dumps([entry if "engine" in entry else {**scripted, **entry} for entry in agents])
    )
    if config:
        (home / "config.toml").write_text(config)
    return home


def group_members(pgid: int) -> list[int]:
    """Living (non-zombie) pids of a process group, by /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):  # below them it would raise for one that ends
        with contextlib.suppress(OSError):
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == pgid and fields[0] != "Z":
                found.append(int(place.name))
    return found


def marked_by(lives: Collection[int], *, now: int = 0) -> list[int]:
    """Living processes that were started by one of these daemons, by the mark in their environment.

    ``now`` is the daemon of now: what is younger is its own, though its number may be that of an
    ended one. Numbers come again within some thousand processes.
    """
    born = read_row(now) if now else None
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for pair in (place / "environ").read_bytes().split(b"\0"):
                name, _, value = pair.partition(b"=")
                if name == b"AGENTSUP_GROUP" and int(value.split(b".")[0]) in lives:
                    found.append(int(place.name))
    if born is None:
        return found
    rows = [row for pid in found if (row := read_row(pid)) is not None]
    return [row.pid for row in rows if row.started_ticks < born.started_ticks]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; ``body`` is the parsed JSON, or the text where it is none."""

    status: int
    body: Any
    headers: Mapping[str, str]


class DaemonProcess:
    """One home and the daemon that runs on it, through any number of starts."""

    def __init__(
        self,
        home: Path,
        *,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = ("-m", "agentsup"),
        loaded: Sequence[str] | None = None,
        cage: Cage = Cage(),  # noqa: B008 - a frozen value
    ) -> None:
        """``command`` is what Python runs, before ``--home``; another one may prepare something first.

        ``env`` is added to the few variables that each life inherits. With the notify socket the
        daemon sees a service manager above it: set ``restart_in_place`` where that matters. Where
        ``loaded`` names modules, lives are forks of one process that has loaded them; left out,
        they are
        so where a fork server runs. An empty one has each life load everything itself. ``cage`` shuts
        each life in, and its programs: 1024 descriptors are what a machine gives, which a daemon may
        raise; with fewer it has to do."""
        self._cage = cage
        self.home = home
        self._env = dict(env or {})
        self._command = tuple(command)
        if loaded is None:
            can_fork = ADDRESS in os.environ and self._command[0] in {"-m", "-c"}
            loaded = modules_of(home) if can_fork else ()
        self.loaded = tuple(loaded)
        """May be changed between lives; none of them: the next life loads everything itself."""
        self._parent: LoadedProcess | None = None
        self._process: subprocess.Popen[bytes] | Process | None = None
        self._end: asyncio.Future[int] | None = None
        self._http: aiohttp.ClientSession | None = None
        self._chats: list[Chat] = []
        self._notify: socket.socket | None = None
        self._notify_dir = ""
        self.port = free_port()
        """Of all its lives, as an operator's daemon keeps its own: pages are signed in by it."""
        self.output = home.parent / f"{home.name}.out"
        """Standard output and error of all starts."""

    # -- life --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self, *, timeout_s: float = BOUND_S, **env: str) -> None:
        """Start and wait until it says READY=1. Raises ``RuntimeError`` if it ends before."""
        self.launch(**env)
        await self.ready(timeout_s)

    def launch(self, *arguments: str, **env: str) -> None:
        """Start without waiting; ``env`` is added for this life, ``arguments`` to those of ``run``."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._listen()
        given = {name: os.environ[name] for name in INHERITED if name in os.environ}
        # Each thread's heap would take its part of the address space.
        given |= {"MALLOC_ARENA_MAX": "2", "NOTIFY_SOCKET": self._notify_path, **self._env, **env}
        line = ["--home", str(self.home), "run", "--port", str(self.port), *arguments]
        self._process = self._begin(line, given)
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        descriptor = os.pidfd_open(self._process.pid)
        process, end = self._process, self._end

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            code = process.wait()
            if not end.done():
                end.set_result(code)

        loop.add_reader(descriptor, ended)

    def _begin(
        self, line: Sequence[str], env: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Process:
        if self.loaded:
            if self._parent is None:
                self._parent = LoadedProcess(
                    self.loaded, self._command, env, self.output, self._cage
                )
            return self._parent.launch(line, env, self.output)
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *self._command, *line],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
                preexec_fn=self._cage.close,  # noqa: PLW1509 - system calls, no locks
            )

    async def ready(self, timeout_s: float = BOUND_S) -> None:
        """Wait for the next READY=1 (a re-execution in place says it again)."""
        assert self._notify is not None
        assert self._end is not None
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            while True:
                receiving = asyncio.ensure_future(loop.sock_recv(self._notify, 4096))
                first: set[asyncio.Future[Any]] = {receiving, self._end}
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    raise RuntimeError(
                        f"the daemon ended with {self._end.result()} before it was ready:\n"
                        f"{self.tail()}"
                    )
                if b"READY=1" in receiving.result():
                    return

    def kill(self) -> None:
        """SIGKILL to the daemon alone, as the kernel or a person would."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    async def ended(self, timeout_s: float = BOUND_S) -> int:
        """Wait for the end; the exit code (negative: a signal)."""
        assert self._end is not None
        async with asyncio.timeout(timeout_s):
            code = await asyncio.shield(self._end)
        await self.leave()
        return code

    async def stop(self, timeout_s: float = BOUND_S) -> int:
        """SIGTERM and wait."""
        self.signal(signal.SIGTERM)
        return await self.ended(timeout_s)

    async def close(self) -> None:
        """End whatever runs and let go of everything."""
        if self._process is not None and self._end is not None and not self._end.done():
            self.kill()
            await self.ended()
        await self.leave()
        if self._parent is not None:
            self._parent.close()
            self._parent = None
        if self._notify is not None:
            self._notify.close()
            self._notify = None
        if self._notify_dir:
            shutil.rmtree(self._notify_dir)
            self._notify_dir = ""

    async def leave(self) -> None:
        """Close the clients of a life that is over."""
        chats, self._chats = self._chats, []
        for chat in chats:
            await chat.close()
        if self._http is not None:
            await self._http.close()
            self._http = None

    @property
    def is_running(self) -> bool:
        return self._end is not None and not self._end.done()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tail(self, size: int = 4000) -> str:
        """The end of what it printed."""
        return self.output.read_bytes()[-size:].decode(errors="replace")

    def log(self) -> list[dict[str, Any]]:
        """The daemon's log file, parsed."""
        path = self.home / "logs" / "agentsup.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    # -- talking -----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        address = json.loads((self.home / "daemon.json").read_text())
        return str(address["url"]).rstrip("/")

    @property
    def token(self) -> str:
        return (self.home / "api.token").read_text().strip()

    def http(self) -> aiohttp.ClientSession:
        """The client of this life, with the operator's token. Raises ``ConnectionError`` once this life
        is over: a client made then would keep the old address for all of the next life."""
        if not self.is_running:
            raise ConnectionError("this life of the daemon is over")
        if self._http is None:
            self._http = aiohttp.ClientSession(
                self.url,
                headers={"Authorization": f"Bearer {self.token}"},
                connector=aiohttp.TCPConnector(limit=0),
            )
        return self._http

    async def request(
        self, method: str, path: str, *, timeout_s: float = BOUND_S, **options: Any
    ) -> Answer:
        """One request; ``options`` are aiohttp's (``json``, ``data``, ``headers``). Raises
        ``ConnectionError`` once this life is over."""
        limit, http = aiohttp.ClientTimeout(total=timeout_s), self.http()
        if http.closed:
            raise ConnectionError("this life of the daemon is over")
        async with http.request(method, path, timeout=limit, **options) as response:
            try:
                text = await response.text()
            except RuntimeError as error:
                # aiohttp's, where the client was closed between two reads of a body
                raise ConnectionError(f"{method} {path}: {error}") from error
            try:
                body = json.loads(text)
            except ValueError:
                body = text
            return Answer(response.status, body, dict(response.headers))

    async def get(self, path: str, **options: Any) -> Any:
        """GET that must answer 200; the body."""
        answer = await self.request("GET", path, **options)
        assert answer.status == 200, (path, answer)
        return answer.body

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.request("POST", path, json={} if body is None else body, **options)

    async def send(self, to: str, text: str, **fields: Any) -> str:
        """send_async; the id."""
        answer = await self.post("/interagent/send_async", {"to": to, "message": text, **fields})
        assert answer.status == 202, answer
        return str(answer.body["task_id"])

    async def result(self, message_id: str, wait_s: float = BOUND_S) -> dict[str, Any]:
        """The result document, after at most ``wait_s``."""
        path = f"/interagent/results/{message_id}?wait={wait_s}"
        return dict(await self.get(path, timeout_s=wait_s + 5))

    async def agents(self) -> dict[str, dict[str, Any]]:
        """GET /agents by name."""
        return {view["name"]: view for view in (await self.get("/agents"))["agents"]}

    async def until(
        self, name: str, *states: str, timeout_s: float = BOUND_S, **members: Any
    ) -> dict[str, Any]:
        """Wait until agent ``name`` is in one of ``states`` and has ``members``; its view."""
        end_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            view = (await self.agents()).get(name)
            fits = view is not None and view["status"] in states
            if view is not None and fits and all(view.get(k) == v for k, v in members.items()):
                return view
            if asyncio.get_running_loop().time() > end_s:
                raise TimeoutError(f"{name} is not {states} {members}: {view}")
            await asyncio.sleep(0.05)

    async def events(self, **query: str | int) -> AsyncGenerator[dict[str, Any], None]:
        """The event stream (``after``, ``agent``, ``types``); first one empty event once it is open."""
        limit = aiohttp.ClientTimeout(total=None)
        async with self.http().get("/events", params=query, timeout=limit) as response:
            assert response.status == 200, response.status
            yield {}
            async for line in response.content:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    async def chat(
        self, agent: str = "main", conversation: str = "local", after: int | None = None
    ) -> Chat:
        """Open a conversation and wait for its welcome."""
        opened = await self.http().ws_connect("/ws", heartbeat=None)
        hello = {"type": "hello", "agent": agent, "conversation": conversation}
        if after is not None:
            hello |= {"after": after}  # type: ignore[dict-item]  # JSON knows both
        await opened.send_str(json.dumps(hello))
        chat = Chat(opened, f"{agent}/{conversation}")
        self._chats.append(chat)
        await chat.frame(type="welcome")
        return chat

    # -- the file ----------------------------------------------------------------------------------

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of ``state.db``, read with plain sqlite3 (also while the daemon runs).

        Reading only: another connection would fold a killed daemon's log into the file."""
        address = f"file:{self.home / 'state.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5.0)) as file:
            file.row_factory = sqlite3.Row
            return [dict(row) for row in file.execute(query, parameters)]

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _notify_path(self) -> str:
        assert self._notify_dir
        return f"{self._notify_dir}/notify"

    def _listen(self) -> None:
        """A fresh notify socket, so that nothing an earlier life said is heard."""
        if self._notify is not None:
            self._notify.close()
        if not self._notify_dir:
            self._notify_dir = socket_folder("agentsup-notify-")
        Path(self._notify_path).unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.setblocking(False)
        self._notify.bind(self._notify_path)
