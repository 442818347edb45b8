"""A real listener over a real store, mailbox, bus and token book; small twins for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from agentsup.agents.budget import CostReport
from agentsup.agents.memory import AgentMemory
from agentsup.agents.roles import LiveRoleRegistry, RoleCatalog
from agentsup.agents.turn.services import TurnEndpoints
from agentsup.api.http import ApiDependencies, ApiLimits, WebDependencies
from agentsup.api.server import ApiServer
from agentsup.approvals import DecisionRecorder, Grants
from agentsup.channels.core.receiving import Inbox
from agentsup.daemon.runtime.tokens import TokenRegistry
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentMailbox, Asker, DirectoryEntry, Dispatcher, InterAgentBus
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.usage.budget import BudgetScope, Limit, ScopeKind
from agentsup.model.chat_model import ChatModel
from agentsup.model.control import (
    AgentView,
    CommandContext,
    CommandInfo,
    CommandReply,
    DaemonView,
    ModelPrice,
    OfferedModels,
    OverridableField,
    RemainingSchedule,
    StopReport,
)
from agentsup.model.errors import BadRequest, Gone, NotFound
from agentsup.model.event import EventType
from agentsup.model.health import HealthReport, ProbeResult
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName, Lease, MessageOutcome
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.tool import Tool
from agentsup.observe import LiveHub
from agentsup.store import Database, EventLog, Tx, append
from agentsup.tasks import Folders, Runs, TaskHub
from tests.support.empty_store import lay_store
from tests.support.task_fixture import no_zone, offer_nothing

if TYPE_CHECKING:
    import openai

_DAY, _MONTH = ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH
OPERATOR_TOKEN = "operator-token-of-the-test"
PEOPLE = {
    "vera": PersonRole.VIEWER,
    "uwe": PersonRole.USER,
    "ute": PersonRole.USER,
    "otto": PersonRole.OPERATOR,
}


class FakeDirectory:
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


class FakeChatModels:
    """Keeps what was chosen for chats."""

    def __init__(self) -> None:
        self.chosen: dict[str, ChatModel] = {}

    async def of(self, name: str) -> tuple[ChatModel, ...]:
        return tuple(self.chosen.values())

    async def here(self, name: str, chat: str) -> ChatModel | None:
        return self.chosen.get(chat)

    async def set(self, name: str, chat: str, model: str | None, by: Principal) -> ChatModel | None:
        if model is None:
            return self.chosen.pop(chat, None) and None
        self.chosen[chat] = ChatModel(name, chat, model, by.label, 1)
        return self.chosen[chat]


class FakeControl:
    """Changes the directory's states and keeps what it was asked."""

    def __init__(self, directory: FakeDirectory) -> None:
        self._directory = directory
        self.is_draining = False
        self.calls: list[tuple[str, str, str]] = []
        self.healthy = True
        self.chosen: dict[str, str | None] = {}
        self.chat_models = FakeChatModels()

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
        stays = (RemainingSchedule("task_1", "nightly", 1),)
        return StopReport(
            scope, 1, 2, 3, processes=4, agents=5, elapsed_ms=6.5, names=("main",), schedules=stays
        )

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
        value = self.chosen.get(entry.name)
        origin = "override" if value else "built-in"
        return (OverridableField(entry.name, "model", value, origin, "live", "Its model."),)

    async def models(self, name: str, by: Principal) -> OfferedModels:
        return OfferedModels("http://127.0.0.1:1/v1", ("one", "two"))

    async def model_prices(self, name: str, models: Sequence[str]) -> tuple[ModelPrice | None, ...]:
        return (None,) * len(models)

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        entry = self._directory.lookup(name)
        self.calls.append((f"{field}={value!r}", entry.name, by.label))
        if field != "model":
            raise BadRequest(f"there is no field {field!r}", field=field)
        before = self.chosen.get(entry.name)
        self.chosen[entry.name] = value
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


class FakeCommands:
    """A slash makes a command; ``/hold``, or what is in ``held``, runs until it is let go."""

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


class FakeTraces:
    """Nothing is sent."""

    def counts(self) -> Mapping[str, int]:
        return {}

    def excerpt(self, text: str) -> str:
        return text


@dataclass
class ApiFixture:
    """One listener and what stands behind it."""

    database: Database
    mailbox: Mailbox
    directory: FakeDirectory
    control: FakeControl
    commands: FakeCommands
    live: LiveHub
    tokens: TokenRegistry
    deps: ApiDependencies
    server: ApiServer
    client: aiohttp.ClientSession
    aborted: list[str]
    people: dict[str, PersonRole]
    served: TurnEndpoints
    askers: dict[str, Asker]
    """The running turn of an agent that asks, by the agent's id."""
    agent_tokens: dict[str, str] = field(default_factory=dict)
    not_allowed: set[str] = field(default_factory=set)
    """Conversations of people whom no agent may talk to any more."""
    tools: dict[str, Tool] = field(default_factory=dict)
    """The registered tools by name; changed arguments of calls are checked against theirs."""

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
        free = dict.fromkeys(LaneName, 1)
        woken = asyncio.Event()
        unlisten = self.database.listen(f"agent:{entry.agent_id}", woken.set)
        try:
            while True:
                woken.clear()
                leases = (
                    await self.mailbox.leases.claim(entry.agent_id, f"ins_{name}", free)
                ).leases
                if leases:
                    return leases[0]
                await woken.wait()
        finally:
            unlisten()

    async def finish(self, lease: Lease, text: str = "", *, error: str = "") -> None:
        outcome = MessageOutcome.FAILED if error else MessageOutcome.OK
        completion = Completion(
            outcome, text=text, error_code="engine_failed" if error else "", error_text=error
        )
        await self.mailbox.leases.complete(lease, completion)

    async def until_open(self, kind: str, count: int) -> None:
        """Until so many of a kind are open; that a client has left is noticed at a heartbeat."""
        while self.server.connections[kind] != count:
            await asyncio.sleep(0.01)

    def count_reads(self, patch: pytest.MonkeyPatch, prefix: str) -> list[str]:
        """The names of ended reads that begin with ``prefix``, from now on."""
        names, read = [], self.database.read

        async def counting(fn: Any, *args: Any, name: str = "") -> Any:
            try:
                return await read(fn, *args, name=name)
            finally:
                names.extend([name] if name.startswith(prefix) else [])

        patch.setattr(self.database, "read", counting)
        return names

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
async def rig(tmp_path: Path, limits: ApiLimits) -> AsyncIterator[ApiFixture]:
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    database = await Database.open(lay_store(tmp_path / "state.db"), clock=clock)
    tools: dict[str, Tool] = {}
    mailbox = Mailbox(
        database,
        clock,
        entropy,
        boot_id="boot",
        limits=MailboxLimits(queue_limit=5),
        question_observers=(DecisionRecorder(tools.get),),
    )
    directory = FakeDirectory()
    for name in ("main", "Scout", "worker"):
        directory.add(name)
    tokens = TokenRegistry(entropy, OPERATOR_TOKEN)
    control, commands, live = FakeControl(directory), FakeCommands(), LiveHub()
    events = EventLog(database)
    people = dict(PEOPLE)
    aborted: list[str] = []

    async def abort_turn(message_id: str) -> None:
        aborted.append(message_id)

    def hex_digits(count: int) -> str:
        return "a" * count

    def no_servers(agent: str) -> dict[str, Any]:
        return {"agent": directory.lookup(agent).name, "servers": []}

    def limits_of(agent_id: str, at: int) -> list[Limit]:
        return [Limit(BudgetScope(kind, agent_id)) for kind in (_DAY, _MONTH)]

    async def metrics() -> bytes:
        return b"agentsup_up 1\n"

    served, askers, not_allowed = TurnEndpoints(), dict[str, Asker](), set[str]()
    tasks = tmp_path / "tasks"
    hub = TaskHub(
        Runs(mailbox, database, abort_turn),
        directory,
        Folders(tasks, lambda task_id: tasks / task_id),
        no_zone,
        offer_nothing,
    )
    bus = InterAgentBus(mailbox=mailbox, directory=directory, hex_digits=hex_digits)
    deps = ApiDependencies(
        control=control,
        tokens=tokens,
        bus=bus,
        dispatcher=Dispatcher(mailbox=mailbox, directory=directory, bus=bus),
        mail=AgentMailbox(database, mailbox.context),
        directory=directory,
        mailbox=mailbox,
        memory=AgentMemory(database, clock, entropy),
        grants=Grants(database, clock),
        database=database,
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
        delegating_turn_of=lambda identity: askers.get(identity.agent_id),
        is_allowed=lambda agent, channel, place, person: place not in not_allowed,
        served=served.find,
        hooks=tuple,
        roles=RoleCatalog(LiveRoleRegistry(tmp_path / "roles", tools.values)),
        traces=FakeTraces(),
        mcp=no_servers,
        cost=CostReport(database, clock, directory, boot_id="boot", limits=limits_of),
        boot_id="boot",
        tasks=hub,
        clock=clock,
        entropy=entropy,
        version="0.test",
        web=WebDependencies(
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
        rig = ApiFixture(
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
            tools=tools,
        )
        for name in directory.names():
            agent_id = directory.lookup(name).agent_id
            rig.agent_tokens[name] = tokens.issue_run(agent_id, name, "")
        yield rig
        await server.close()
    await database.close()


@pytest.fixture
async def client(rig: ApiFixture) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client of the OpenAI API, as the operator uses it."""
    import openai

    async with openai.AsyncOpenAI(
        api_key=OPERATOR_TOKEN, base_url=f"{rig.url}/v1", max_retries=0, timeout=10
    ) as made:
        yield made


@pytest.fixture
async def work() -> AsyncIterator[TaskOwner]:
    owner = TaskOwner("test")
    yield owner
    await owner.close(1.0)
