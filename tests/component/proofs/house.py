"""A whole daemon in this process, wired by its own composition root, through several boots.

In virtual time it has an inline store, no listener and no file watch (edits are told to it); in
real time it is what runs in production, with shorter intervals where the proof asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from agentsup.api.server import ApiServer
from agentsup.channels.core.receiving import ChatOrigin
from agentsup.config import ConfigFiles, Home
from agentsup.daemon.assembly import agents as agent_step
from agentsup.daemon.assembly import borders as border_step
from agentsup.daemon.assembly import children
from agentsup.daemon.runtime import boot as boots
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fleet import FleetUnit
from agentsup.daemon.runtime.reconcile import first_snapshot, keep_applied
from agentsup.daemon.runtime.roster import Roster
from agentsup.daemon.runtime.tokens import TokenRegistry
from agentsup.engines.registry import EngineRegistry
from agentsup.engines.scripted.engine import ScriptedEngine
from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.lag import LagProbe
from agentsup.mailbox.messages import unchanged
from agentsup.model.ids import BootId
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.observe import Redactor
from agentsup.store import Database, StoreOptions
from agentsup.supervision import Watchdog
from tests.support.daemon_parts import Daemon, build_daemon
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.recording_channel import RecordingChannel

OPERATOR_TOKEN = "operator-token-of-the-proofs"
EVA = Principal(PrincipalKind.PERSON, "eva", "Eva", PersonRole.OPERATOR)
QUICK_CONFIG = "[limits]\ndrain_s = 5\nready_timeout_s = 10\n"
Rules = Sequence[Mapping[str, Any]]


def agent(name: str, rules: Rules = (), **fields: Any) -> dict[str, Any]:
    """An entry of agents.json with a scripted engine."""
    return {
        "name": name,
        "engine": "scripted",
        "engine_options": {"rules": list(rules)},
        **fields,
    }


class _NoListener(ApiServer):
    """The API without its socket, which has no place in virtual time."""

    async def start(self) -> int:
        return 0

    async def close(self) -> None:
        return None


class ProofDaemon:
    """``async with House(home, [agent("main"), …]) as house:`` runs until the block ends."""

    def __init__(
        self,
        home: Path,
        agents: Sequence[Mapping[str, Any]],
        *,
        config: str = QUICK_CONFIG,
        is_real: bool = False,
        channel: RecordingChannel | None = None,
        engines: Mapping[str, Callable[[], Any]] | None = None,
        environ: Mapping[str, str] | None = None,
        lag: Mapping[str, Any] | None = None,
        watchdog: Mapping[str, Any] | None = None,
        is_listed: bool = False,
        more_channels: Sequence[str] = (),
    ) -> None:
        """``lag`` and ``watchdog`` replace arguments that the composition root gives to the two. People
        have the rights that ``[people]`` gives them now if ``is_listed``, else those they spoke with.
        They talk in ``more_channels`` beside the console.
        """
        self._is_listed = is_listed
        self.home = Home(home / "home")
        self.home.create()
        self.home.config_toml.write_text(config)
        self.write_agents(agents)
        self.clock: Clock = SystemClock() if is_real else LoopClock()
        self.channel = channel or RecordingChannel("console", idempotent=True)
        self.more_channels = {
            name: RecordingChannel(name, idempotent=True) for name in more_channels
        }
        self.redactor = Redactor()
        self.watches = 0
        self.edit_seen: Callable[[set[str]], Awaitable[None]] | None = None
        """How the running watch would tell of an edit; None while nothing watches."""
        self._is_real = is_real
        self._engines = dict(engines or {})
        self._environ = dict(environ or {"PATH": "/usr/bin:/bin"})
        self._lag = {"watches_from_thread": is_real, **(lag or {})}
        self._watchdog = dict(watchdog or {})
        self._boots = 0
        self._pending_texts = 0
        self._runner: InlineRunner | None = None
        self._running: asyncio.Task[Any] | None = None

    # -- life --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(force=error is not None)

    async def open(self) -> None:
        """Boot, as the entry point does, and wait until it serves."""
        self._boots += 1
        entropy = SeededEntropy(self.clock, self._boots)
        self.database = await self._open_store(entropy)
        roster = Roster(self.database, self.clock, entropy)
        await roster.load()
        snapshot, complaint = await first_snapshot(self.home, roster.overrides(), ConfigFiles())
        await roster.take_over(snapshot.specs)
        if complaint is None:
            await asyncio.to_thread(keep_applied, self.home, snapshot)
        self.tokens = TokenRegistry(entropy, OPERATOR_TOKEN)
        boot_id = BootId(f"boot-{self._boots}")
        ground = BootContext(
            home=self.home,
            database=self.database,
            clock=self.clock,
            entropy=entropy,
            boot=await boots.begin(self.database, self.clock, boot_id, entropy),
            endings=await boots.load_endings(self.database),
            roster=roster,
            snapshot=snapshot,
            first_complaint=complaint,
            tokens=self.tokens,
            redactor=self.redactor,
            environ=self._environ,
            port=0,
            engines=EngineRegistry(
                {"scripted": lambda: ScriptedEngine(self.clock), **self._engines}
            ),
            channels={"console": self.channel, **self.more_channels},
            role_now=None if self._is_listed else unchanged,
        )
        self.daemon = self._build(ground)
        await self.daemon.mailbox.load()
        self._running = asyncio.create_task(self.daemon.supervisor.run(), name="daemon")
        while self.daemon.ending.state == "starting" and not self._running.done():
            await asyncio.sleep(0.01)
        if self._running.done():
            await self._running

    async def _open_store(self, entropy: SeededEntropy) -> Database:
        options = StoreOptions(reserve_bytes=0, slow_ms=3_600_000)
        if not self._is_real:
            self._runner = InlineRunner(self.home.state_db, clock=self.clock, entropy=entropy)
        return await Database.open(
            lay_store(self.home.state_db), clock=self.clock, runner=self._runner, options=options
        )

    def _build(self, boot_context: BootContext) -> Daemon:
        def lag(*args: Any, **given: Any) -> LagProbe:
            return LagProbe(*args, **{**given, **self._lag})

        def watchdog(*args: Any, **given: Any) -> Watchdog:
            return Watchdog(*args, **{**given, **self._watchdog})

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(agent_step, "LagProbe", lag))
            stack.enter_context(mock.patch.object(agent_step, "Watchdog", watchdog))
            if not self._is_real:
                stack.enter_context(mock.patch.object(border_step, "ApiServer", _NoListener))
            daemon = build_daemon(boot_context)
        if not self._is_real:
            self._watch_patch = mock.patch.object(children, "watch", self._watch)
            self._watch_patch.start()
        return daemon

    async def _watch(
        self,
        _paths: object,
        *,
        on_change: Callable[[set[str]], Awaitable[None]],
        stop: asyncio.Event,
        **_rest: object,
    ) -> None:
        """In place of the file watch, which sleeps in a thread."""
        self.watches += 1
        self.edit_seen = on_change
        try:
            await stop.wait()
        finally:
            self.edit_seen = None

    async def crash(self) -> None:
        """``kill -9`` as the store sees it: from now on nothing this life does is kept."""
        assert self._runner is not None, "a crash is for virtual time"
        self._runner.kill()
        await self.close(force=True)

    async def close(self, *, force: bool = False) -> None:
        """End in order; ``force`` skips the drain. Harmless when repeated."""
        running, self._running = self._running, None
        if running is None:
            return
        self.daemon.ending.end(0, "the proof is over")
        if force:
            self.daemon.ending.force()
        await asyncio.wait({running})
        if not self._is_real:
            self._watch_patch.stop()
        await self.daemon.engines.close()
        with contextlib.suppress(Exception):  # a killed store can't be closed in order
            await self.database.close()
        running.result()

    def use_engine(self, name: str, factory: Callable[[], Any]) -> None:
        """Another engine under this name, from the next boot on."""
        self._engines[name] = factory

    # -- people ------------------------------------------------------------------------------------

    def write_agents(self, agents: Sequence[Mapping[str, Any]]) -> None:
        """Save agents.json; nobody is told."""
        self.home.agents_json.write_text(json.dumps(list(agents), indent=1))

    async def edit(self, agents: Sequence[Mapping[str, Any]] | str) -> None:
        """Save agents.json (a text as it is) and let the watch tell of it."""
        if isinstance(agents, str):
            self.home.agents_json.write_text(agents)
        else:
            self.write_agents(agents)
        assert self.edit_seen is not None, "nothing watches the files"
        await self.edit_seen({"agents.json"})

    async def say(self, name: str, text: str, conversation: str = "c1") -> str:
        """A person's text to an agent; the id of the message."""
        self._pending_texts += 1
        reply = await self.daemon.inbox.say(
            agent_name=name,
            where=ChatOrigin("console", conversation),
            text=text,
            principal=EVA,
            external_id=f"say-{self._boots}-{self._pending_texts}",
        )
        assert reply.message is not None, f"{text!r} was taken for a command"
        return reply.message.message_id

    def unit(self, name: str) -> FleetUnit:
        return next(u for u in self.daemon.fleet.units() if u.spec.name == name)

    def state(self, name: str) -> str:
        return self.unit(name).child.state.value

    def heard(self, text: str, conversation: str | None = None) -> bool:
        """Whether a person has a part with this text in it."""
        return any(text in each for each in self.channel.texts(conversation))

    async def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Rows as the database has them."""
        return await self.database.read(
            lambda reader: [tuple(row) for row in reader.all(query, params)]
        )
