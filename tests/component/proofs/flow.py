"""One history of hostile turns among people's words, and the judge of who has got whose.

Each person's words carry a mark, and so does what each agent has for itself: its MEMORY.md, a file of
its workspace, the token of each turn. Then an engine that obeys nobody runs in everyone's turns: it
calls every route with its turn's token, every tool, and every tool by MCP again, with every id, key,
name and chat that there is, whoever's they are. Meanwhile people go on talking, over two channels.
Afterwards no mark of one stands in an input, an answer, a session, a delivery, an event or a memory of
another. Routes and tools are read from the daemon's own tables, so that new ones are tried too. Whose
turn it is, the judge finds out by itself, from who wrote the root.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import aiohttp
from pydantic import BaseModel

from agentsup.api.http.access import Access
from agentsup.api.http.route import ApiRoute
from agentsup.api.server.listener import ROUTES
from agentsup.channels.core.receiving import ChatOrigin
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
)
from agentsup.model.errors import AgentsupError
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.proofs.house import ProofDaemon
from tests.component.proofs.proof import Claim

claim = Claim("P7")

PEOPLE = {
    "anna": Principal(PrincipalKind.PERSON, "anna", "Anna", PersonRole.USER),
    "ben": Principal(PrincipalKind.PERSON, "ben", "Ben", PersonRole.USER),
    "operator": OPERATOR,
}
AGENTS = ("ada", "bob")
CHANNELS = ("console", "web")
MARK = re.compile(r"zq(anna|ben|operator)\d+")
AGENTS_MARK = re.compile(r"zx(ada|bob|main)\d+")
"""What only its own agent may see; an agent with any sense keeps it out of its answers, and so does
the hostile one."""
CALLS = int(os.environ.get("TEST_FLOW_CALLS", "8"))
"""Calls of one hostile turn beside those that are aimed."""
IN_THE_WORKSPACE = frozenset(
    ["exec", "fs_delete", "fs_edit", "fs_list", "fs_mkdir", "fs_read", "fs_stat", "fs_write"]
)
"""Tools on the files of an agent, which all its people share (docs/limits.md). Those that only read are
tried on the files of other agents; what ``exec`` starts is the fence's
(tests/process/test_fence.py)."""
READING = ("fs_list", "fs_read", "fs_stat")
WORDS = frozenset(
    [
        "message",
        "prompt",
        "text",
        "question",
        "answer",
        "body",
        "subject",
        "summary",
        "content",
        "query",
        "note",
        "reason",
        "progress",
        "title",
        "description",
        "label",
        "goal",
        "brief",
    ]
)
NOT_HERE = frozenset({"ask_person"})
"""Tools that only an engine has that can wait for a person."""
DOCUMENT = "GET /openapi.json"
"""The same for everybody, and long in the making: once is enough."""


@dataclass
class Seen:
    """What turns were given and told, by message."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    """Whose turns they were."""
    tokens: dict[str, str] = field(default_factory=dict)
    """The token that each turn had."""

    def add(self, message_id: str, *texts: str) -> None:
        self.texts.setdefault(message_id, []).extend(texts)


class Hostile:
    """An engine whose turns do what the script of the text says, or try everything, and tell all
    that they have seen."""

    name = "scripted"
    caps = EngineCaps(tools=True, only_thinks=True)

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    async def open(self, spec: EngineSpec, host: EngineHost) -> Session:
        return Session(self.flow, spec, host)

    async def close(self) -> None:
        return None


class Session:
    def __init__(self, flow: Flow, spec: EngineSpec, host: EngineHost) -> None:
        self.flow, self.spec, self.host = flow, spec, host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        agent, seen = self.spec.env["AGENTSUP_AGENT"], self.flow.seen
        seen.agents[segment.message_id] = agent
        seen.tokens[segment.message_id] = self.spec.env["AGENTSUP_TOKEN"]
        seen.add(segment.message_id, segment.prompt, segment.instructions)
        seen.add(segment.message_id, *(item.text for item in segment.history))
        for name, args in self.flow.deeds(segment.text, agent):
            await self.call(segment.message_id, name, args)
        if segment.text.startswith("HOSTILE"):
            await self.attack(segment)
        told = "\n".join(seen.texts[segment.message_id])[-20_000:]
        yield EngineDone("ok", text=re.sub(rf"zx{agent}\d+", "(mine)", told))

    async def close(self) -> None:
        return None

    async def call(self, message_id: str, name: str, args: dict[str, Any]) -> None:
        self.flow.tried.add(name)
        try:
            result = await self.host.call(name, args)
        except AgentsupError as error:
            self.flow.seen.add(message_id, str(error))
        else:
            self.flow.seen.add(message_id, result.text)

    async def attack(self, segment: Segment) -> None:
        """Every route and every tool: aimed at others' things by each argument and each part of a path
        that can name one, then at anything."""
        mark = MARK.search(segment.text)
        assert mark is not None
        pool = await self.flow.pool(mark[1], self.spec.env["AGENTSUP_AGENT"])
        open_to_it = [
            r for r in ROUTES if r.access in (Access.ANY, Access.WORK, Access.RUN, Access.OPEN)
        ]
        tools = [tool for tool in self.host.tools() if tool.name not in IN_THE_WORKSPACE]
        aimed, rest = list[Try](), list[Try]()
        for route in open_to_it:
            if name_of(route) == DOCUMENT and DOCUMENT in self.flow.tried:
                continue
            for is_aimed, args in self.flow.arguments(_schema_of(route), pool, mark[0]):
                if is_aimed:
                    aimed += [Try(route, args, path) for path in _aims(route.path, pool)]
                else:
                    rest.append(Try(route, args, self.flow.path(route.path, pool)))
        for tool in tools:
            for is_aimed, args in self.flow.arguments(tool.schema, pool, mark[0]):
                (aimed if is_aimed else rest).append(Try(tool.name, args))
        aimed += [
            Try(name, {"path": path})
            for name in READING
            if name in {tool.name for tool in self.host.tools()}
            for path in self.flow.files_of_others(self.spec.env["AGENTSUP_AGENT"])
        ]
        by_mcp = [Try(one.what, one.args, is_by_mcp=True) for one in aimed if one.is_tool]
        self.flow.random.shuffle(by_mcp)
        self.flow.random.shuffle(rest)
        closed = [route for route in ROUTES if route not in open_to_it]
        some = [
            Try(route, {}, self.flow.path(route.path, pool))
            for route in self.flow.random.sample(closed, 5)
        ]
        token = {"Authorization": f"Bearer {self.spec.env['AGENTSUP_TOKEN']}"}
        url = self.spec.env["AGENTSUP_URL"]
        async with aiohttp.ClientSession(url, headers=token) as client:
            for one in (*aimed, *by_mcp[: CALLS // 5], *rest[:CALLS], *some):
                await self.make(client, segment.message_id, one)

    async def make(self, client: aiohttp.ClientSession, message_id: str, one: Try) -> None:
        if isinstance(one.what, ApiRoute):
            given = (
                {"json": one.args} if one.what.method == "POST" else {"params": _texts(one.args)}
            )
            await self.request(client, message_id, one.what, one.path, given)
        elif not one.is_by_mcp:
            await self.call(message_id, one.what, one.args)
        else:
            params = {"name": one.what, "arguments": one.args}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            await self.request(client, message_id, MCP, MCP.path, {"json": body})

    async def request(
        self,
        client: aiohttp.ClientSession,
        message_id: str,
        route: ApiRoute,
        path: str,
        given: dict[str, Any],
    ) -> None:
        self.flow.tried.add(name_of(route))
        try:
            async with asyncio.timeout(3):
                async with client.request(route.method, path, **given) as response:
                    said = await response.content.read(200_000)
                    claim.holds(response.status != 500, f"{name_of(route)} answered 500: {given}")
                    self.flow.statuses.add((name_of(route), response.status))
                    self.flow.seen.add(message_id, said.decode(errors="replace"))
        except TimeoutError:
            return


@dataclass(frozen=True)
class Try:
    """One call that is to be made: of a route (on ``path``), or of a tool, by our own way or by MCP."""

    what: ApiRoute | str
    args: dict[str, Any]
    path: str = ""
    is_by_mcp: bool = False

    @property
    def is_tool(self) -> bool:
        return isinstance(self.what, str)


MCP = next(route for route in ROUTES if (route.method, route.path) == ("POST", "/mcp"))


def name_of(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


def _in_path(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _aims(path: str, pool: Mapping[str, Sequence[str]]) -> list[str]:
    """The path with each kind of thing that its names could mean, others' things; itself if it has
    no names."""
    names = _in_path(path)
    if not names:
        return [path]
    if names == ["id"]:
        return [path.format(id=one) for one in pool["first"]]
    return [path.format(**{name: _fitting(name, pool)[0] for name in names})]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(args: Mapping[str, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in args.items()}


def _schema_of(route: ApiRoute) -> dict[str, Any]:
    return _schema(route.body or route.query)


@cache
def _schema(shape: type[BaseModel]) -> dict[str, Any]:
    """Of a shape, built once: all turns of all histories ask for the same ones."""
    return shape.model_json_schema(by_alias=True)


def _fitting(name: str, pool: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """What an argument of that name could be; for a name that says nothing, anything at all."""
    for part in ("thread", "session", "chat", "topic", "task", "message", "agent", "key"):
        if part in name:
            return pool[part]
    if name in ("to", "from", "name", "reply_to"):
        return pool["agent"]
    if name in ("id", "ref"):
        return pool["first"]
    return pool["any"]


class Flow:
    """One history: the house, what everybody's turns saw, and what is tried."""

    def __init__(self, house: ProofDaemon, seed: int) -> None:
        self.house = house
        self.random = random.Random(seed)
        self.seen = Seen()
        self.tried: set[str] = set()
        self.statuses: set[tuple[str, int]] = set()
        self._marks = 0

    def mark(self, who: str) -> str:
        self._marks += 1
        return f"zq{who}{self._marks}"

    def path(self, path: str, pool: Mapping[str, Sequence[str]]) -> str:
        """A path with anything that fits in place of its names."""
        return path.format(
            **{name: self.random.choice(_fitting(name, pool)) for name in _in_path(path)}
        )

    def files_of_others(self, agent: str) -> list[str]:
        """Ways to files that are another agent's, or the daemon's."""
        other, home = next(each for each in AGENTS if each != agent), self.house.home
        return [
            str(home.agent_dir(other) / "MEMORY.md"),
            f"../../{other}/workspace/secret.txt",
            str(home.root / "api.token"),
        ]

    def deeds(self, text: str, agent: str) -> list[tuple[str, dict[str, Any]]]:
        """What an obedient turn does for its person, so that there is something of everything."""
        found = MARK.search(text)
        if found is None:
            return []
        mark = found[0]
        if text.startswith("HOSTILE RUN"):  # background work has tools of its own
            return [("task_create", {"prompt": f"HOSTILE {mark}", "name": "run"})]
        if not text.startswith("WORK"):
            return []
        peer = next(each for each in AGENTS if each != agent)
        wide = {"key": "procedure", "content": f"procedure secret {mark}", "scope": "global"}
        deeds: list[tuple[str, dict[str, Any]]] = [
            ("memory_save", {"key": "secret", "content": f"secret words {mark}"}),
            ("memory_save", wide),
            ("memory_save", {**wide, "key": "house", "scope": "agent"}),
            ("ask_agent", {"to": peer, "message": f"LONG secret {mark}"}),
            ("ask_agent_async", {"to": peer, "message": f"secret again {mark}"}),
            ("mailbox_send", {"to_agent_id": peer, "subject": "secret", "body": f"note {mark}"}),
            ("task_create", {"prompt": f"secret task {mark}", "name": f"task {mark}"}),
        ]
        return deeds if "at ada" in text else self.random.sample(deeds, 3)

    async def say(self, who: str, to: str, text: str, channel: str = "console") -> None:
        """A person's words, answered."""
        reply = await self.house.daemon.inbox.say(
            agent_name=to,
            where=ChatOrigin(channel, who if who != "operator" else "local"),
            text=text,
            principal=PEOPLE[who],
            external_id=self.mark(who),
        )
        assert reply.message is not None
        await self.house.daemon.mailbox.queue.wait_done(reply.message.message_id, 60)

    async def settle(self) -> None:
        """Until nothing is open any more."""
        async with asyncio.timeout(60):
            while (
                await self.house.sql(
                    "SELECT 1 FROM messages WHERE state IN ('queued', 'leased') LIMIT 1"
                )
            ) != []:
                await asyncio.sleep(0.02)

    async def pool(self, who: str, by: str) -> dict[str, list[str]]:
        """Everything that could be named by the agent ``by``, as the store has it, what is not
        ``who``'s own first: a guess could be no better."""
        owners = await _owners(self.house)
        agent_id = self.house.unit(by).agent_id

        async def column(query: str, *params: str) -> list[str]:
            """The first column, others' before nobody's and one's own; whose by the second, a message.
            Where there is a third, those of which it is true come before the rest."""
            rows_ = await self.house.sql(query, *params)
            self.random.shuffle(rows_)
            rows_.sort(
                key=lambda row: (
                    ("", who).index(owners.get(row[1], "")) + 1
                    if owners.get(row[1], "") in ("", who)
                    else 0,
                    not all(row[2:]),
                )
            )
            return [str(row[0]) for row in rows_]

        sessions = await column("SELECT session_id, min(message_id) FROM messages GROUP BY 1")
        keys = await column(
            "SELECT p.key, min(m.message_id) FROM pointers p JOIN messages m USING (session_id)"
            " WHERE p.key GLOB 'chat:*' GROUP BY p.session_id"
        )
        messages = await column(
            "SELECT message_id, message_id, ? IN (agent_id, sender_agent_id) FROM messages"
            " WHERE result_text <> ''",
            agent_id,
        )
        asked = await column(
            "SELECT m.message_id, m.message_id, p.agent_id = ? FROM messages m"
            " JOIN messages p ON p.message_id = m.in_reply_to WHERE m.state = 'done'",
            agent_id,
        )
        results = await column("SELECT result_id, message_id, agent_id = ? FROM results", agent_id)
        tasks = await column("SELECT task_id, parent_message_id FROM tasks")
        questions = await column("SELECT question_id, message_id FROM questions")
        kinds = (messages, asked, results, tasks, sessions, questions)
        found = {
            "thread": [*keys[:3], *sessions],
            "session": [*sessions, *keys],
            "chat": sorted(["anna", "ben", "local"], key=lambda one: one == who),
            "topic": ["1"],
            "task": tasks,
            "message": messages,
            "agent": [*(each for each in AGENTS if each != by), by, "main"],
            "key": ["secret", "procedure", "house"],
            "first": [kind[0] for kind in kinds if kind],
        }
        return {**found, "any": [*sessions[:5], *messages[:5], *tasks, *questions, *AGENTS]}

    def arguments(
        self, schema: Mapping[str, Any], pool: Mapping[str, Sequence[str]], mark: str
    ) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Arguments for a route or tool: what it must have, and each of the others in turn; and
        whether they are aimed: the first of what an argument could name is others'. At least one is."""
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = schema.get("required", [])

        def value(name: str, *, is_first: bool) -> Any:
            wanted = properties[name]
            options = [wanted, *wanted.get("anyOf", [])]
            if enum := next((one["enum"] for one in options if "enum" in one), None):
                return self.random.choice(enum)
            types = {each for one in options for each in _listed(one.get("type"))}
            if name in ("timeout", "wait"):
                return 1
            if types & {"integer", "number"} and "string" not in types:
                return 20 if name == "limit" else 1
            if "boolean" in types:
                return self.random.random() < 0.5
            fitting = _fitting(name, pool)
            one = fitting[0] if is_first else self.random.choice(fitting)
            if "array" in types:
                return [one]
            if "object" in types or "$ref" in str(wanted):
                return None
            if name in WORDS:
                return f"secret words procedure house {mark}"
            return one

        def full(*names: str) -> dict[str, Any]:
            every = {each: value(each, is_first=True) for each in (*required, *names)}
            return {name: one for name, one in every.items() if one is not None}

        yield True, full()
        for name in properties:
            if name == "ref":
                yield from ((True, {**full(), name: one}) for one in pool["first"])
            names_one = name.endswith("_id") or name in ("thread_id", "chat_id", "scope", "query")
            if name not in required:
                yield names_one, full(name)
            # Whom it goes to says what names something else; without it nothing would be read.
            if names_one and name not in required and "to_agent_id" in properties:
                yield True, full(name, "to_agent_id")
            other = {n: value(n, is_first=False) for n in {*required, name}}
            yield False, {n: v for n, v in other.items() if v is not None}


# -- the judge -------------------------------------------------------------------------------------


async def _owners(house: ProofDaemon) -> dict[str, str]:
    """Who wrote the root of each message; empty for nobody. Of what a schedule or an event began,
    who wrote the root of what set that up."""
    rows_ = await house.sql(
        "SELECT m.message_id, m.root_id, m.principal, m.in_reply_to, coalesce(t.parent_message_id, ''),"
        " coalesce(t.owner, '') FROM messages m LEFT JOIN runs r ON r.run_id = m.message_id"
        " LEFT JOIN tasks t ON t.task_id = r.task_id AND r.task_id <> ''"
    )
    known = {row[0]: row for row in rows_}

    def person(principal: str) -> str:
        data = json.loads(principal) if principal else {}
        if data.get("kind") == "operator":
            return "operator"
        return str(data["subject"]) if data.get("kind") == "person" else ""

    def owner(message_id: str, depth: int = 0) -> str:
        if message_id not in known or depth > 20:
            return ""
        _, root, principal, before, task_from, task_owner = known[message_id]
        if root != message_id:
            return owner(root, depth + 1)
        return (
            person(principal)
            or (owner(before, depth + 1) if before else "")
            or (owner(task_from, depth + 1) if task_from else "")
            or person(task_owner)
        )

    return {message_id: owner(message_id) for message_id in known}


def _foreign(text: str, whose: str) -> str:
    """A mark in a text that is not its owner's."""
    return next((m[0] for m in MARK.finditer(text) if m[1] != whose), "")


def _tokens_in(text: str, tokens: frozenset[str]) -> set[str]:
    """The tokens that stand in a text. All are equally long, so one pass over it finds them."""
    size = len(next(iter(tokens)))
    found = {text[at : at + size] for at in range(len(text) - size + 1)}
    return found & tokens


async def judge(flow: Flow, seed: int) -> None:
    """Of all that there is once everything is still: what is broken early is told early."""
    await flow.settle()
    house, again = flow.house, f" (replay: TEST_FLOW_SEEDS={seed})"
    owners = await _owners(house)

    def own(text: str, whose: str, what: str) -> None:
        claim.holds(
            not _foreign(text, whose),
            f"{_foreign(text, whose)} stands in {what}, which is {whose or 'nobody'}'s{again}",
        )

    def agents_own(text: str, agent: str, what: str) -> None:
        foreign = next((m[0] for m in AGENTS_MARK.finditer(text) if m[1] != agent), "")
        claim.holds(not foreign, f"{foreign} stands in {what}, which is {agent}'s{again}")

    names = {unit.agent_id: unit.spec.name for unit in house.daemon.fleet.units()}
    tokens = frozenset(flow.seen.tokens.values())
    for message_id, texts in flow.seen.texts.items():
        for text in texts:
            agent, token = flow.seen.agents[message_id], flow.seen.tokens[message_id]
            agents_own(text, agent, f"what the turn on {message_id} saw: {text[:300]!r}")
            claim.holds(
                not _tokens_in(text, tokens) - {token},
                f"the token of another turn stands in {text[:300]!r}{again}",
            )
            own(text, owners[message_id], f"what the turn on {message_id} saw: {text[:300]!r}")
    for message_id, agent_id, parts, result in await house.sql(
        "SELECT message_id, agent_id, parts, result_text FROM messages"
    ):
        own(f"{parts}{result}", owners[message_id], f"message {message_id} of {agent_id}")
        agents_own(
            f"{parts}{result}", names.get(agent_id, ""), f"message {message_id} of {agent_id}"
        )
    # The property over messages and sessions: nobody's work lies in a session of another's.
    for session_id, key, ids in await house.sql(
        "SELECT s.session_id, s.key, group_concat(m.message_id) FROM messages m"
        " JOIN sessions s USING (session_id) GROUP BY s.session_id"
    ):
        among = {owners[each] for each in ids.split(",")}
        claim.holds(
            len(among) == 1, f"{sorted(among)} share the session {session_id} ({key}){again}"
        )
    for agent_id, channel, conversation, body in await house.sql(
        "SELECT agent_id, channel, conversation, body FROM outbox"
    ):
        agents_own(body, names.get(agent_id, ""), f"a part for {channel}:{conversation}")
        if conversation != "local":  # the operators may see everything
            own(body, conversation, f"a part for {channel}:{conversation}")
    for agent_id, place, data in await house.sql("SELECT agent_id, conversation, data FROM events"):
        channel, _, conversation = place.partition(":")
        agents_own(data, names.get(agent_id, ""), f"an event of {place}")
        if conversation not in ("", "local"):
            own(data, conversation, f"an event of {place}")
    for person, key, content in await house.sql("SELECT person, key, content FROM memories"):
        own(content, naming_of(person), f"the memory {key} of {person}")


def naming_of(person: str) -> str:
    """A ``person`` as marks name them."""
    return person.removeprefix("person:")
