"""A real listener over a real store, mailbox, bus and token book; small twins for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentsup.agents.served import ServedTurns
from agentsup.api.ports import ApiDeps, ApiLimits, WebDeps
from agentsup.api.server import ApiServer
from agentsup.channels.inbox import Inbox
from agentsup.daemon.tokens import TokenBook
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox.bus import Asker, DirectoryEntry, InterAgentBus
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.history import MailHistory
from agentsup.mailbox.mailbox import Completion, Mailbox, MailboxLimits
from agentsup.model.control import (
    AgentView,
    CommandContext,
    CommandInfo,
    CommandReply,
    DaemonView,
    OverridableField,
    StopReport,
)
from agentsup.model.errors import BadRequest, Gone, NotFound
from agentsup.model.event import EventType
from agentsup.model.health import HealthReport, ProbeResult
from agentsup.model.ids import AgentId
from agentsup.model.message import Lane, Lease, Outcome
from agentsup.model.principal import PersonRole, Principal
from agentsup.observe.live import LiveHub
from agentsup.store.database import Database, Tx
from agentsup.store.events import EventLog, append
from agentsup.tasks.folders import Folders
from agentsup.tasks.hub import TaskHub
from agentsup.tasks.runs import Runs
from agentsup.testing.fresh_store import lay_store

OPERATOR_TOKEN = "operator-token-of-the-test"
PEOPLE = {
    "vera": PersonRole.VIEWER,
    "uwe": PersonRole.USER,
    "ute": PersonRole.USER,
    "otto": PersonRole.OPERATOR,
}


class TwinDirectory:
    """Agents by name, case-insensitively; removed ones are gone."""

    def __init__(self) -> None:
        self.entries: dict[str, DirectoryEntry] = {}
        self.removed: set[str] = set()

    def add(self, name: str, status: str = "running", last_reason: str = "") -> str:
        entry = DirectoryEntry(AgentId(f"agt_{name}"), name, status, last_reason)
        self.entries[name] = entry
        return entry.agent_id

    def set_status(self, name: str, status: str, reason: str = "") -> None:
        self.entries[name] = replace(self.entries[name], status=status, last_reason=reason)

    def lookup(self, name: str) -> DirectoryEntry:
        for entry in self.entries.values():
            if entry.name.casefold() == name.casefold():
                return entry
        if name in self.removed:
            raise Gone(f"agent {name} was removed", agent=name)
        raise NotFound(f"there is no agent {name}", agent=name, did_you_mean=self.names()[:1])

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return next((e for e in self.entries.values() if e.agent_id == agent_id), None)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.entries))


class TwinControl:
    """Changes the directory's states and keeps what it was asked."""

    def __init__(self, directory: TwinDirectory) -> None:
        self._directory = directory
        self.is_draining = False
        self.calls: list[tuple[str, str, str]] = []
        self.healthy = True
        self.models: dict[str, str | None] = {}

    @property
    def draining(self) -> bool:
        return self.is_draining

    def _view(self, entry: DirectoryEntry) -> AgentView:
        return AgentView(
            name=entry.name,
            agent_id=entry.agent_id,
            instance_id=f"ins_{entry.name}",
            status=entry.status,
            desired="up",
            role="",
            engine="scripted",
            model="",
            uptime_s=1.5 if entry.status == "running" else None,
            restarts=2,
            last_reason=entry.last_reason,
            last_crash_error=entry.last_reason,
            next_retry_at=None,
            queued=0,
            running=0,
            parked=0,
            is_main=entry.name == "main",
        )

    async def agents(self) -> tuple[AgentView, ...]:
        return tuple(self._view(e) for e in self._directory.entries.values())

    async def agent(self, name: str) -> AgentView:
        return self._view(self._directory.lookup(name))

    async def _change(self, verb: str, name: str, status: str, by: Principal) -> AgentView:
        entry = self._directory.lookup(name)
        self.calls.append((verb, entry.name, by.label))
        self._directory.set_status(entry.name, status)
        return await self.agent(name)

    async def start_agent(self, name: str, by: Principal) -> AgentView:
        return await self._change("start", name, "running", by)

    async def stop_agent(self, name: str, by: Principal) -> AgentView:
        return await self._change("stop", name, "stopped", by)

    async def restart_agent(self, name: str, by: Principal) -> AgentView:
        return await self._change("restart", name, "running", by)

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        self.calls.append(("stop", scope, by.label))
        return StopReport(scope, 1, 2, 3, processes=4, agents=5, elapsed_ms=6.5, names=("main",))

    async def cancel(self, message_id: str, by: Principal) -> None:
        del message_id, by

    async def interrupt(self, session_id: str, by: Principal) -> StopReport:
        return StopReport(session_id, 0, 0, 0, processes=0, agents=0, elapsed_ms=0.0)

    async def diff(self) -> dict[str, Any]:
        return {"pending": []}

    async def explain(self, name: str) -> list[dict[str, Any]]:
        self._directory.lookup(name)
        return [{"field": "engine", "value": "scripted", "origin": "agents.json"}]

    async def overridable(self, name: str) -> tuple[OverridableField, ...]:
        entry = self._directory.lookup(name)
        value = self.models.get(entry.name)
        origin = "override" if value else "built-in"
        return (OverridableField(entry.name, "model", value, origin, "live", "Its model."),)

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        entry = self._directory.lookup(name)
        self.calls.append((f"{field}={value!r}", entry.name, by.label))
        if field != "model":
            raise BadRequest(f"there is no field {field!r}", field=field)
        before = self.models.get(entry.name)
        self.models[entry.name] = value
        return replace((await self.overridable(name))[0], before=before)

    async def status(self) -> DaemonView:
        return DaemonView(
            version="0.test",
            boot_id="boot",
            node_id="node",
            pid=1,
            home="/home",
            started_at=1,
            uptime_s=1.0,
            state="draining" if self.is_draining else "running",
            url="http://127.0.0.1",
            agents_up=1,
            agents_total=1,
        )

    async def health(self) -> HealthReport:
        return HealthReport(self.healthy, (ProbeResult("store", self.healthy, "last commit"),))

    async def drain(self, by: Principal) -> None:
        self.calls.append(("drain", "", by.label))
        self.is_draining = True

    async def exit(self, code: int, by: Principal) -> None:
        self.calls.append(("exit", str(code), by.label))


class TwinCommands:
    """A slash makes a command; `/hold`, or what is in `held`, runs until it is let go."""

    def __init__(self) -> None:
        self.held = {"/hold"}
        self.let_go = asyncio.Event()
        self.ran: list[str] = []

    def is_command(self, text: str) -> bool:
        return text.startswith("/")

    async def run(self, text: str, context: CommandContext) -> CommandReply:
        if text in self.held:
            await self.let_go.wait()
        self.ran.append(text)
        return CommandReply(f"ran {text} for {context.principal.label}", ok=text != "/wrong")

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        del agent_id, language
        return (
            CommandInfo("hold", "", "runs until it is let go", operator=False),
            CommandInfo("stop", "", "ends what runs", operator=False),
            CommandInfo("stop_all", "", "ends everything", operator=True),
        )


@dataclass
class Rig:
    """One listener and what stands behind it."""

    database: Database
    mailbox: Mailbox
    directory: TwinDirectory
    control: TwinControl
    commands: TwinCommands
    live: LiveHub
    tokens: TokenBook
    deps: ApiDeps
    server: ApiServer
    client: aiohttp.ClientSession
    aborted: list[str]
    people: dict[str, PersonRole]
    served: ServedTurns
    askers: dict[str, Asker]
    """The running turn of an agent that asks, by the agent's id."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    not_allowed: set[str] = field(default_factory=set)
    """Conversations of people whom no agent may talk to any more."""

    @property
    def url(self) -> str:
        return self.server.url

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        token: str | None = OPERATOR_TOKEN,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, parsed document (or text) and headers."""
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        sent.update(headers or {})
        async with self.client.request(
            method, self.url + path, json=json, data=data, headers=sent
        ) as response:
            is_json = response.content_type.endswith("json")
            document = await response.json(content_type=None) if is_json else await response.text()
            return response.status, document, response.headers

    async def lease(self, name: str) -> Lease:
        """The next message of an agent, claimed as its stack would."""
        entry = self.directory.lookup(name)
        free = dict.fromkeys(Lane, 1)
        woken = asyncio.Event()
        unlisten = self.database.listen(f"agent:{entry.agent_id}", woken.set)
        try:
            while True:
                woken.clear()
                leases = (await self.mailbox.claim(entry.agent_id, f"ins_{name}", free)).leases
                if leases:
                    return leases[0]
                await woken.wait()
        finally:
            unlisten()

    async def finish(self, lease: Lease, text: str = "", *, error: str = "") -> None:
        outcome = Outcome.FAILED if error else Outcome.OK
        completion = Completion(
            outcome, text=text, error_code="engine_failed" if error else "", error_text=error
        )
        await self.mailbox.complete(lease, completion)

    async def until_open(self, kind: str, count: int) -> None:
        """Until so many of a kind are open; that a client has left is noticed at a heartbeat."""
        while self.server.connections[kind] != count:
            await asyncio.sleep(0.01)

    async def tell(self, agent: str, text: str, conversation: str = "console:local") -> int:
        """A delivered answer, as the relay records it."""
        at = self.deps.clock.now_ms()

        def write(tx: Tx) -> int:
            return append(
                tx,
                EventType.CHAT_OUT,
                at=at,
                agent_id=self.directory.lookup(agent).agent_id,
                conversation=conversation,
                data={"text": text},
            )

        return await self.database.write(write)


LIMITS = ApiLimits(
    event_streams=2,
    sockets=3,
    waiting=4,
    heartbeat_s=0.2,
    stall_s=5.0,
    hello_s=2.0,
    close_s=1.0,
)


@pytest.fixture
def limits() -> ApiLimits:
    """Bounds of the listener; a test module may override them."""
    return LIMITS


@pytest.fixture
async def rig(tmp_path: Path, limits: ApiLimits) -> AsyncIterator[Rig]:
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    database = await Database.open(lay_store(tmp_path / "state.db"), clock=clock)
    mailbox = Mailbox(database, clock, entropy, boot_id="boot", limits=MailboxLimits(queue_limit=5))
    directory = TwinDirectory()
    for name in ("main", "Scout", "worker"):
        directory.add(name)
    tokens = TokenBook(entropy, OPERATOR_TOKEN)
    control, commands, live = TwinControl(directory), TwinCommands(), LiveHub()
    events = EventLog(database)
    people = dict(PEOPLE)
    aborted: list[str] = []

    async def abort_turn(message_id: str) -> None:
        aborted.append(message_id)

    def hex_digits(count: int) -> str:
        return "a" * count

    async def metrics() -> bytes:
        return b"agentsup_up 1\n"

    served, askers, not_allowed = ServedTurns(), dict[str, Asker](), set[str]()
    tasks = tmp_path / "tasks"
    hub = TaskHub(
        mailbox=mailbox,
        database=database,
        clock=clock,
        entropy=entropy,
        directory=directory,
        runs=Runs(mailbox, database, abort=abort_turn),
        folders=Folders(tasks, lambda task_id: tasks / task_id),
        abort=abort_turn,
    )
    bus = InterAgentBus(
        mailbox=mailbox, database=database, directory=directory, hex_digits=hex_digits
    )
    deps = ApiDeps(
        control=control,
        tokens=tokens,
        bus=bus,
        post=Dispatcher(mailbox=mailbox, database=database, directory=directory, bus=bus),
        letters=MailHistory(database, clock),
        directory=directory,
        mailbox=mailbox,
        events=events,
        inbox=Inbox(
            mailbox=mailbox,
            events=events,
            directory=directory,
            commands=commands,
            hex_digits=hex_digits,
        ),
        live=live,
        metrics=metrics,
        abort_turn=abort_turn,
        asker_of=lambda identity: askers.get(identity.agent_id),
        is_allowed=lambda agent, channel, place, person: place not in not_allowed,
        served=served.find,
        tasks=hub,
        clock=clock,
        entropy=entropy,
        version="0.test",
        web=WebDeps(
            database=database,
            people=lambda: people,
            operator_key=tokens.operator_key,
            node_id="node",
            workspace=lambda name: tmp_path / "agents" / name / "workspace",
            log_file=tmp_path / "agentsup.log",
            offered=commands.offered,
        ),
        allowed_hosts=("agents.example", "other.example:9000"),
        limits=limits,
    )
    server = ApiServer(deps, port=0)
    await server.start()
    async with aiohttp.ClientSession() as client:
        rig = Rig(
            database,
            mailbox,
            directory,
            control,
            commands,
            live,
            tokens,
            deps,
            server,
            client,
            aborted,
            people,
            served,
            askers,
            not_allowed=not_allowed,
        )
        for name in directory.names():
            agent_id = directory.lookup(name).agent_id
            rig.agent_tokens[name] = tokens.issue_agent(agent_id, name)
        yield rig
        await server.close()
    await database.close()
