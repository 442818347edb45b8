"""A whole daemon in virtual time: the real composition over a real store, without socket and watcher.

People speak through the real inbox, agents think with the scripted engine, and what is delivered is
in ``channel``. A restart or a death of the daemon is one call, and hours pass in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentsup.channels.core.receiving import ChatOrigin, InboxReply
from agentsup.config import ConfigFiles, Home
from agentsup.daemon.assembly import children
from agentsup.daemon.runtime import ScriptCheck, boot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fleet import FleetUnit
from agentsup.daemon.runtime.reconcile import first_snapshot, keep_applied
from agentsup.daemon.runtime.roster import Roster
from agentsup.daemon.runtime.tokens import TokenRegistry
from agentsup.engines.registry import EngineRegistry, default_registry
from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import unchanged
from agentsup.mailbox.work import Handler
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigErrors
from agentsup.model.hook import Approver
from agentsup.model.ids import BootId
from agentsup.model.message import Message
from agentsup.model.principal import OPERATOR, Principal
from agentsup.observe import Redactor
from agentsup.store import Database, StoreOptions
from agentsup.supervision import Grace, SupervisedChild
from tests.support.daemon_parts import Daemon, build_daemon
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.recording_channel import RecordingChannel
from tests.support.simloop import VirtualLoop

HandlerOf = Callable[[AgentSpec, Mailbox], Handler | None]
OPERATOR_TOKEN = "token-of-the-operator"
_QUICK = Grace(drain_s=0.0, cancel_s=0.5, kill_s=0.5)


def agent(name: str, *rules: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """An entry of agents.json: a scripted agent with these rules."""
    return {"name": name, "engine": "scripted", "engine_options": {"rules": rules}, **fields}


def bar_workspace(root: Path, name: str) -> Path:
    """Put a file where the agent's workspace would be, so that its start fails while it is there."""
    path = Home(root).workspace(name)
    path.parent.mkdir(parents=True)
    path.touch()
    return path


class VirtualDaemon:
    """One home and the daemon that runs on it now."""

    def __init__(self, root: Path, environ: Mapping[str, str] | None = None) -> None:
        self.home = Home(root)
        self.environ = dict(environ or {})
        self.clock = LoopClock()
        self.entropy = SeededEntropy(self.clock, 11)
        self.channel = RecordingChannel("console", idempotent=True)
        self.redactor = Redactor()
        self.approver: Approver | None = None
        """Who says whether a call may happen, from the next boot on."""
        self.is_listed = False
        """Whether people have the rights that ``[people]`` gives them now, from the next boot on;
        else those that they spoke with."""
        self.handler_of: HandlerOf = lambda spec, mailbox: None
        self.boots = 0
        self.registry: EngineRegistry
        self.daemon: Daemon
        self.db: Database
        self.roster: Roster
        self.tokens: TokenRegistry
        self.boot: boot.Boot
        self._runner: InlineRunner
        self._relay: SupervisedChild

    @classmethod
    async def open(
        cls,
        root: Path,
        agents: Sequence[Mapping[str, Any]] = (),
        *,
        config: str = "",
        environ: Mapping[str, str] | None = None,
        approver: Approver | None = None,
        handler_of: HandlerOf | None = None,
        is_listed: bool = False,
        roles: Sequence[str] = (),
    ) -> Self:
        """Write the home, with ``roles`` that allow all tools, and start the daemon; returns when
        every agent that is wanted is up."""
        house = cls(root, environ)
        house.approver, house.handler_of = approver, handler_of or house.handler_of
        house.is_listed = is_listed
        house.home.create()
        house.write(agents)
        for role in roles:
            house.put_role(role, 'max_tools: ["*"]')
        if config:
            house.home.config_toml.write_text(config, encoding="utf-8")
        await house.start()
        return house

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The next boot on this home."""
        complaint = await self.assemble()
        self._relay.start()
        self.daemon.reconciler.converge_all()
        if complaint is not None:
            await self.daemon.reconciler.complain(complaint)
        await self.settled()

    async def assemble(self) -> ConfigErrors | None:
        """Open the store and wire the next boot; nothing runs yet."""
        self.boots += 1
        self._runner = InlineRunner(
            self.home.state_db,
            clock=self.clock,
            entropy=SeededEntropy(self.clock, self.boots),
            max_delay_s=0.0,
        )
        options = StoreOptions(reserve_bytes=0, slow_ms=3_600_000)
        self.db = await Database.open(
            lay_store(self.home.state_db), clock=self.clock, runner=self._runner, options=options
        )
        self.roster = Roster(self.db, self.clock, self.entropy)
        await self.roster.load()
        scripts = ScriptCheck()
        snapshot, complaint = await first_snapshot(
            self.home, self.roster.overrides(), ConfigFiles(), scripts
        )
        await self.roster.take_over(snapshot.specs)
        if complaint is None:
            keep_applied(self.home, snapshot)
        self.tokens = TokenRegistry(self.entropy, OPERATOR_TOKEN)
        self.registry = default_registry(self.clock, self.environ)
        boot_id = BootId(f"boot-{self.boots}")
        self.boot = await boot.begin(self.db, self.clock, boot_id, self.entropy)
        self.daemon = build_daemon(
            BootContext(
                home=self.home,
                database=self.db,
                clock=self.clock,
                entropy=self.entropy,
                boot=self.boot,
                endings=await boot.load_endings(self.db),
                roster=self.roster,
                snapshot=snapshot,
                first_complaint=complaint,
                tokens=self.tokens,
                redactor=self.redactor,
                environ=self.environ,
                engines=self.registry,
                scripts=scripts,
                channels={"console": self.channel},
                approver=self.approver,
                handler_of=self.handler_of,
                role_now=None if self.is_listed else unchanged,
            )
        )
        await self.daemon.mailbox.load()
        self._relay = SupervisedChild(
            children.relay_spec(self.daemon.relay),
            clock=self.clock,
            entropy=self.entropy,
            record=self.daemon.board.record,
        )
        return complaint

    async def stop(self, grace: Grace | None = None) -> None:
        """An orderly end, as on SIGTERM."""
        self.daemon.ending.end(0, "the test is over")
        await self.daemon.fleet.stop_all(grace)
        await self._end()
        await self.db.close()

    async def die(self) -> None:
        """``kill -9``: from here on nothing of this boot reaches the store."""
        self._runner.kill()
        self.daemon.ending.end(0, "the test is over")
        await self.daemon.fleet.stop_all(_QUICK)
        await self._end()
        await self.db.close()

    async def _end(self) -> None:
        await self._relay.stop(_QUICK)
        await self.daemon.tasks.close(1.0)
        await self.registry.close()

    async def restart(self, *, kill: bool = False) -> None:
        """The next boot after this one."""
        await (self.die() if kill else self.stop())
        await self.start()

    # -- edits -------------------------------------------------------------------------------------

    def write(self, agents: Sequence[Mapping[str, Any]] | str) -> None:
        """Save agents.json, entries or any text, without telling the daemon."""
        text = agents if isinstance(agents, str) else json.dumps(list(agents), indent=1)
        self.home.agents_json.write_text(text, encoding="utf-8")

    def put_role(self, name: str, front: str = "") -> Path:
        """Write the AGENT.md of a role and return its path; ``front`` is more of its front matter."""
        path = self.home.roles / name / "AGENT.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\n{front}\n---\nBe {name}.\n", encoding="utf-8")
        return path

    async def save(self, agents: Sequence[Mapping[str, Any]] | str) -> bool:
        """Save agents.json and let the daemon read it, as its watcher would."""
        self.write(agents)
        return await self.daemon.reconciler.reload()

    # -- people ------------------------------------------------------------------------------------

    async def say(
        self,
        name: str,
        text: str,
        *,
        conversation: str = "local",
        who: Principal = OPERATOR,
        external_id: str = "",
        is_shared: bool = False,
    ) -> InboxReply:
        """A person writes to an agent."""
        return await self.daemon.inbox.say(
            agent_name=name,
            where=ChatOrigin("console", conversation, is_shared=is_shared),
            text=text,
            principal=who,
            external_id=external_id or self.entropy.new_id("ext"),
        )

    async def said(self, name: str, text: str, **more: Any) -> str:
        """A person writes to an agent; the id of the accepted message."""
        reply = await self.say(name, text, **more)
        assert reply.message is not None, reply
        return str(reply.message.message_id)

    async def ask(self, name: str, text: str, **more: Any) -> Message:
        """A person writes to an agent and waits for the end of that message."""
        return await self.daemon.mailbox.queue.wait_done(
            await self.said(name, text, **more), 3600.0
        )

    async def command(self, name: str, text: str, **more: Any) -> InboxReply:
        """A person gives a command in an agent's chat."""
        reply = await self.say(name, text, **more)
        assert reply.message is None, reply
        return reply

    # -- looking -----------------------------------------------------------------------------------

    def unit(self, name: str) -> FleetUnit:
        """The agent as the daemon runs it now."""
        found = self.daemon.fleet.get(self.roster.entry(name).agent_id)
        assert found is not None, f"{name} is not in the fleet"
        return found

    def unit_of_any(self, name: str) -> FleetUnit:
        """As ``unit``, also for an agent that is removed and drains."""
        return next(unit for unit in self.daemon.fleet.units() if unit.spec.name == name)

    def state(self, name: str) -> str:
        return self.unit(name).child.state.value

    def instances(self) -> dict[str, str]:
        """The instance of every agent that runs now."""
        return {
            unit.spec.name: unit.instance_id
            for unit in self.daemon.fleet.units()
            if unit.stack is not None
        }

    async def until(
        self, is_so: Callable[[], bool | Awaitable[bool]], within_s: float = 900.0
    ) -> None:
        """Let virtual time pass until ``is_so()``; ``AssertionError`` after ``within_s``."""
        end = self.clock.monotonic() + within_s
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            assert self.clock.monotonic() < end, f"not so within {within_s:g} s"
            loop = asyncio.get_running_loop()
            idle_s = loop.idle_s() if isinstance(loop, VirtualLoop) else 0.0
            await self.clock.sleep(max(0.05, min(idle_s, end - self.clock.monotonic())))

    async def settled(self) -> None:
        """Until every agent is where it is wanted, or has failed."""

        def is_settled() -> bool:
            for entry in self.roster.present():
                unit = self.daemon.fleet.get(entry.agent_id)
                if unit is None:
                    return False
                state, wanted = unit.child.state.value, self.daemon.reconciler.is_wanted_up(unit)
                resting = ("running", "degraded", "failed") if wanted else ("stopped",)
                if state not in resting or self.daemon.reconciler.rebuild_fields(unit):
                    return False
            present = {entry.agent_id for entry in self.roster.present()}
            return all(unit.agent_id in present for unit in self.daemon.fleet.units())

        await self.until(is_settled)

    async def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Rows as the store has them."""
        return await self.db.read(lambda reader: [tuple(row) for row in reader.all(query, params)])

    async def state_of(self, message_id: str) -> str:
        return (await self.daemon.mailbox.messages.get(message_id)).state.value

    def texts(self, conversation: str = "local") -> list[str]:
        """What people have in front of them."""
        return self.channel.texts(conversation)
