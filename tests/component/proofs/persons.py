"""P7: whose words are whose. What one person has said or had done reaches nobody else.

Each person's words carry a mark. Then an engine that obeys nobody runs in everyone's turns: it calls
every route with its turn's token and every tool, with every id, key, name and chat that there is,
whoever's they are. Afterwards no mark of one stands in an input, an answer, a session, a delivery, an
event or a memory of another. Routes and tools are read from the daemon's own tables, so that new
ones are tried too. Whose turn it is, the judge finds out by itself, from who wrote the root.
"""

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import BaseModel

from agentsup.agents.memory import ranking, rows
from agentsup.api import task_orders
from agentsup.api.access import Access
from agentsup.api.app import ROUTES
from agentsup.api.route import Route
from agentsup.mailbox import naming, notices
from agentsup.model.engine import Done, EngineCaps, EngineEvent, EngineHost, EngineSpec, Segment
from agentsup.model.errors import AgentsupError
from agentsup.model.message import DeliverTo
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.store.database import Reader
from agentsup.tasks import rights
from tests.component.proofs.house import House, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P7")

PEOPLE = {
    "anna": Principal(PrincipalKind.PERSON, "anna", "Anna", PersonRole.USER),
    "ben": Principal(PrincipalKind.PERSON, "ben", "Ben", PersonRole.USER),
    "operator": OPERATOR,
}
AGENTS = ("ada", "bob")
MARK = re.compile(r"zq(anna|ben|operator)\d+")
SEEDS = [int(each) for each in os.environ.get("AGENTSUP_FLOW_SEEDS", "7").split(",")]
"""Long runs give many: ``AGENTSUP_FLOW_SEEDS=1,2,3``. A failure names the one to replay."""
CALLS = int(os.environ.get("AGENTSUP_FLOW_CALLS", "25"))
"""Calls of one hostile turn beside those that are aimed."""
ROUNDS = int(os.environ.get("AGENTSUP_FLOW_ROUNDS", "1"))
"""Hostile turns of each person."""
IN_THE_WORKSPACE = frozenset({"terminal", "exec", "read_file", "write_file", "fetch_page"})
"""Tools on the files of an agent, which all its people share, and on the web: docs/limits.md."""
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


@dataclass
class Seen:
    """What turns were given and told, by message."""

    texts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, message_id: str, *texts: str) -> None:
        self.texts.setdefault(message_id, []).extend(texts)


class Hostile:
    """An engine whose turns do what the script of the text says, or try everything, and tell all
    that they have seen."""

    name = "scripted"
    caps = EngineCaps(tools=True, only_thinks=True)

    def __init__(self, flow: "Flow") -> None:
        self.flow = flow

    async def open(self, spec: EngineSpec, host: EngineHost) -> "Session":
        return Session(self.flow, spec, host)

    async def close(self) -> None:
        return None


class Session:
    def __init__(self, flow: "Flow", spec: EngineSpec, host: EngineHost) -> None:
        self.flow, self.spec, self.host = flow, spec, host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        given = [segment.prompt, segment.system, *(item.text for item in segment.history)]
        self.flow.seen.add(segment.message_id, *given)
        for name, args in self.flow.deeds(segment.text):
            await self.call(segment.message_id, name, args)
        if segment.text.startswith("HOSTILE"):
            await self.attack(segment)
        yield Done("ok", text="\n".join(self.flow.seen.texts[segment.message_id])[-20_000:])

    async def close(self) -> None:
        return None

    async def call(self, message_id: str, name: str, args: dict[str, Any]) -> None:
        try:
            result = await self.host.call(name, args)
        except AgentsupError as error:
            self.flow.seen.add(message_id, str(error))
        else:
            self.flow.seen.add(message_id, result.text)

    async def attack(self, segment: Segment) -> None:
        """Every route and every tool: aimed at others' things by each argument that can name one,
        then at anything."""
        mark = MARK.search(segment.text)
        assert mark is not None
        pool = await self.flow.pool(mark[1], self.spec.env["AGENTSUP_AGENT"])
        open_to_it = [r for r in ROUTES if r.access in (Access.ANY, Access.RUN, Access.OPEN)]
        tools = [tool for tool in self.host.tools() if tool.name not in IN_THE_WORKSPACE]
        tries: list[tuple[str, Any, dict[str, Any]]] = []
        for kind, what, schema in (
            *(("route", route, _schema_of(route)) for route in open_to_it),
            *(("tool", tool.name, tool.parameters) for tool in tools),
        ):
            tries += [(kind, what, args) for args in self.flow.arguments(schema, pool, mark[0])]
        self.flow.tried |= {one[1] if one[0] == "tool" else _name(one[1]) for one in tries}
        aimed = [one for one in tries if one[2].pop("", None)]
        rest = [one for one in tries if one not in aimed]
        self.flow.random.shuffle(rest)
        closed = [route for route in ROUTES if route not in open_to_it]
        some: list[tuple[str, Any, dict[str, Any]]] = [
            ("route", route, {}) for route in self.flow.random.sample(closed, 5)
        ]
        token = {"Authorization": f"Bearer {self.spec.env['AGENTSUP_TOKEN']}"}
        url = self.spec.env["AGENTSUP_URL"]
        async with aiohttp.ClientSession(url, headers=token) as client:
            for kind, what, args in (*aimed, *rest[:CALLS], *some):
                if kind == "tool":
                    await self.call(segment.message_id, what, args)
                else:
                    await self.request(client, segment.message_id, what, args, pool)

    async def request(
        self,
        client: aiohttp.ClientSession,
        message_id: str,
        route: Route,
        args: dict[str, Any],
        pool: Mapping[str, Sequence[str]],
    ) -> None:
        names = {n: self.flow.random.choice(_fitting(n, pool)) for n in _in_path(route.path)}
        given = {"json": args} if route.method == "POST" else {"params": _texts(args)}
        try:
            async with asyncio.timeout(3):
                async with client.request(
                    route.method, route.path.format(**names), **given
                ) as response:
                    said = await response.content.read(200_000)
                    claim.holds(response.status != 500, f"{_name(route)} answered 500: {args}")
                    self.flow.statuses.add((_name(route), response.status))
                    self.flow.seen.add(message_id, said.decode(errors="replace"))
        except TimeoutError:
            return


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def _in_path(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(args: Mapping[str, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in args.items()}


def _schema_of(route: Route) -> dict[str, Any]:
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
    return pool["any"]


class Flow:
    """One history: the house, what everybody's turns saw, and what is tried."""

    def __init__(self, house: House, seed: int) -> None:
        self.house = house
        self.random = random.Random(seed)
        self.seen = Seen()
        self.tried: set[str] = set()
        self.statuses: set[tuple[str, int]] = set()
        self._marks = 0

    def mark(self, who: str) -> str:
        self._marks += 1
        return f"zq{who}{self._marks}"

    def deeds(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """What an obedient turn does for its person, so that there is something of everything."""
        found = MARK.search(text)
        if found is None:
            return []
        mark = found[0]
        if text.startswith("HOSTILE RUN"):  # background work has tools of its own
            return [("task_create", {"prompt": f"HOSTILE {mark}", "name": "run"})]
        if not text.startswith("WORK"):
            return []
        peer = "bob" if "at ada" in text else "ada"
        wide = {"key": "procedure", "content": f"procedure secret {mark}", "scope": "global"}
        return [
            ("memory_save", {"key": "secret", "content": f"secret words {mark}"}),
            ("memory_save", wide),
            ("memory_save", {**wide, "key": "house", "scope": "agent"}),
            ("ask_agent", {"to": peer, "message": f"secret {mark}"}),
            ("ask_agent_async", {"to": peer, "message": f"secret again {mark}"}),
            ("mailbox_send", {"to_agent_id": peer, "subject": "secret", "body": f"note {mark}"}),
            ("task_create", {"prompt": f"secret task {mark}", "name": f"task {mark}"}),
        ]

    async def say(self, who: str, to: str, text: str) -> None:
        """A person's words, answered."""
        reply = await self.house.daemon.inbox.say(
            agent_name=to,
            channel="console",
            conversation=who if who != "operator" else "local",
            text=text,
            principal=PEOPLE[who],
            external_id=self.mark(who),
        )
        assert reply.message is not None
        await self.house.daemon.mailbox.wait_done(reply.message.message_id, 60)

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

        async def column(query: str) -> list[str]:
            """The first column, others' before one's own; whose by the second, a message."""
            found = [(str(row[0]), row[1]) for row in await self.house.sql(query)]
            self.random.shuffle(found)
            return [one for one, _ in sorted(found, key=lambda one: owners.get(one[1]) == who)]

        sessions = await column("SELECT session_id, min(message_id) FROM messages GROUP BY 1")
        keys = await column(
            "SELECT p.key, min(m.message_id) FROM pointers p JOIN messages m USING (session_id)"
            " WHERE p.key GLOB 'chat:*' GROUP BY p.session_id"
        )
        messages = await column("SELECT message_id, message_id FROM messages")
        tasks = await column("SELECT task_id, parent_message_id FROM tasks")
        questions = await column("SELECT question_id, message_id FROM questions")
        found = {
            "thread": [*keys[:3], *sessions],
            "session": [*sessions, *keys],
            "chat": sorted(["anna", "ben", "local"], key=lambda one: one == who),
            "topic": ["1"],
            "task": tasks,
            "message": messages,
            "agent": [*(each for each in AGENTS if each != by), by, "main"],
            "key": ["secret", "procedure", "house"],
        }
        return {**found, "any": [*sessions[-5:], *messages[-5:], *tasks, *questions, *AGENTS]}

    def arguments(
        self, schema: Mapping[str, Any], pool: Mapping[str, Sequence[str]], mark: str
    ) -> Iterator[dict[str, Any]]:
        """Arguments for a route or tool: what it must have, and each of the others in turn. With
        the key "" those that are aimed: the first of what an argument could name is others'."""
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

        for name in properties or [""]:
            least = {each: value(each, is_first=True) for each in required}
            names_one = name.endswith("_id") or name in ("thread_id", "chat_id", "scope", "query")
            if name and name not in required:
                least[name] = value(name, is_first=True)
            full = {n: v for n, v in least.items() if v is not None}
            yield {**full, "": True} if names_one or name == "" else full
            if name:
                other = {n: value(n, is_first=False) for n in {*required, name}}
                yield {n: v for n, v in other.items() if v is not None}


# -- the judge -------------------------------------------------------------------------------------


async def _owners(house: House) -> dict[str, str]:
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


async def _judge(flow: Flow, seed: int) -> None:
    """Of all that there is once everything is still: what is broken early is told early."""
    await flow.settle()
    house, again = flow.house, f" (replay: AGENTSUP_FLOW_SEEDS={seed})"
    owners = await _owners(house)

    def own(text: str, whose: str, what: str) -> None:
        claim.holds(
            not _foreign(text, whose),
            f"{_foreign(text, whose)} stands in {what}, which is {whose or 'nobody'}'s{again}",
        )

    for message_id, texts in flow.seen.texts.items():
        for text in texts:
            own(text, owners[message_id], f"what the turn on {message_id} saw: {text[:300]!r}")
    for message_id, agent_id, parts, result in await house.sql(
        "SELECT message_id, agent_id, parts, result_text FROM messages"
    ):
        own(f"{parts}{result}", owners[message_id], f"message {message_id} of {agent_id}")
    # The property over messages and sessions: nobody's work lies in a session of another's.
    for session_id, key, ids in await house.sql(
        "SELECT s.session_id, s.key, group_concat(m.message_id) FROM messages m"
        " JOIN sessions s USING (session_id) GROUP BY s.session_id"
    ):
        among = {owners[each] for each in ids.split(",")}
        claim.holds(
            len(among) == 1, f"{sorted(among)} share the session {session_id} ({key}){again}"
        )
    for channel, conversation, body in await house.sql(
        "SELECT channel, conversation, body FROM outbox"
    ):
        if conversation != "local":  # the operators may see everything
            own(body, conversation, f"a part for {channel}:{conversation}")
    for place, data in await house.sql("SELECT conversation, data FROM events"):
        channel, _, conversation = place.partition(":")
        if conversation not in ("", "local"):
            own(data, conversation, f"an event of {place}")
    for person, key, content in await house.sql("SELECT person, key, content FROM memories"):
        own(content, naming_of(person), f"the memory {key} of {person}")


def naming_of(person: str) -> str:
    """A `person` as marks name them."""
    return person.removeprefix("person:")


async def no_words_of_one_reach_another(home: Path) -> None:
    """Work of three people, then an engine that tries everything for each of them, then more work."""
    for seed in SEEDS:
        await _history(home / str(seed), seed)


async def _history(home: Path, seed: int) -> None:
    home.mkdir()
    flows: list[Flow] = []
    house = House(home, _entries(), is_real=True, engines={"scripted": lambda: Hostile(flows[0])})
    flow = Flow(house, seed)
    flows.append(flow)
    async with house:
        tools = [tool.name for tool in house.daemon.calls.tools.all()]
        await _equip(house, tools)
        for who in PEOPLE:
            await flow.say(who, "ada", f"WORK at ada: secret {flow.mark(who)}")
        await _judge(flow, seed)
        for number in range(ROUNDS):
            at = flow.random.sample(list(PEOPLE), len(PEOPLE))
            turns = [(who, AGENTS[(n + number) % 2]) for n, who in enumerate(at)]
            await asyncio.gather(
                *(flow.say(who, to, f"HOSTILE {flow.mark(who)}") for who, to in turns)
            )
            await _judge(flow, seed)
        await flow.say("ben", "ada", f"HOSTILE RUN {flow.mark('ben')}")
        await _judge(flow, seed)
        for who in PEOPLE:
            for to in AGENTS:
                await flow.say(who, to, f"tell me of the secret procedure house {flow.mark(who)}")
        await _judge(flow, seed)
        wanted = {_name(r) for r in ROUTES if r.access in (Access.ANY, Access.RUN)}
        wanted |= set(tools) - IN_THE_WORKSPACE - NOT_HERE
        claim.holds(wanted <= flow.tried, f"not tried: {sorted(wanted - flow.tried)}")
        claim.holds(
            all(("POST " + path, 200) in flow.statuses for path in ("/tasks/create",))
            and ("POST /interagent/send_async", 202) in flow.statuses,
            f"the hostile engine got nowhere: {sorted(flow.statuses)}",
        )


async def _equip(house: House, tools: Sequence[str]) -> None:
    """Let every agent have the optional tools too, which must be named."""
    house.write_agents(_entries(tools))
    async with asyncio.timeout(20):
        while any(house.unit(name).spec.tools is None for name in AGENTS):
            await asyncio.sleep(0.02)


def _entries(tools: Sequence[str] = ()) -> list[dict[str, Any]]:
    more: dict[str, Any] = {"permission_mode": "bypassPermissions"}
    if tools:
        more["tools"] = list(tools)
    return [
        agent("main", **more),
        agent("ada", **more),
        agent("bob", subscriptions=["ada:finished"], **more),
    ]


# -- removals --------------------------------------------------------------------------------------


def _raw_threads(patch: pytest.MonkeyPatch) -> None:
    def key(caller: Principal, *, sender_id: str, name: str, person: str, thread: str) -> str:
        del caller, sender_id
        return thread or naming.peer_key(name, person)

    patch.setattr(naming, "session_key", key)


def _one_session_per_peer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(naming, "own_key", lambda base, person: base)


def _any_chat(patch: pytest.MonkeyPatch) -> None:
    async def named(call: Any, agent: str, chat_id: str, topic_id: str) -> DeliverTo | None:
        del agent, topic_id
        if not chat_id:
            return None
        own = call.who.agent_id
        return DeliverTo("chat", agent_id=own, channel="console", conversation=chat_id)

    patch.setattr(task_orders, "named_chat", named)


def _memory_of_the_agent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ranking, "_word_of_person", lambda owner: f"p{owner.agent_id}")


def _shared_by_saving(patch: pytest.MonkeyPatch) -> None:
    original = ranking.audience
    patch.setattr(rows, "audience", partial(original, is_shared=True))


def _all_work_of_the_agent(patch: pytest.MonkeyPatch) -> None:
    for module in (naming, rights):
        patch.setattr(module, "is_of_work", lambda person, whose: True)


def _told_in_the_latest_chat(patch: pytest.MonkeyPatch) -> None:
    def latest(reader: Reader, agent_id: str, person: str) -> tuple[str, str] | None:
        del person
        row = reader.one(
            "SELECT channel, conversation FROM conversations WHERE agent_id = ?"
            " ORDER BY last_at DESC LIMIT 1",
            (agent_id,),
        )
        return None if row is None else (row["channel"], row["conversation"])

    patch.setattr(notices, "_latest", latest)


PROOFS = (
    Proof(
        "no words of one reach another",
        "P7",
        no_words_of_one_reach_another,
        (
            Removal("a thread that an agent names is any key", _raw_threads),
            Removal("one session per peer for everybody's work", _one_session_per_peer),
            Removal("an agent names any chat", _any_chat),
            Removal("memory belongs to the agent", _memory_of_the_agent),
            Removal("what is saved as global is shared at once", _shared_by_saving),
            Removal("a turn may use all work of its agent", _all_work_of_the_agent),
            Removal("notices go where somebody talked last", _told_in_the_latest_chat),
        ),
        is_real=True,
    ),
)
