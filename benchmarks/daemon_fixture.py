"""A whole daemon in this process: its agents, its API, a home of its own; engines can be added."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsup.config import ConfigFiles, Home
from agentsup.daemon.runtime import boot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.reconcile import first_snapshot
from agentsup.daemon.runtime.roster import Roster
from agentsup.daemon.runtime.tokens import TokenRegistry, operator_token
from agentsup.engines.registry import EngineRegistry, default_registry
from agentsup.kit import prctl
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.loading import settled
from agentsup.kit.tasks import TaskOwner
from agentsup.model.ids import AgentId, BootId
from agentsup.model.message import DeliverTo, LaneName, MessageKind, NewMessage, text_parts
from agentsup.model.principal import OPERATOR
from agentsup.observe import Redactor, setup_logging
from agentsup.store import Database
from tests.support.daemon_parts import Daemon, build_daemon

Agents = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class BenchDaemon:
    """A running daemon and how to speak to it."""

    daemon: Daemon
    database: Database
    roster: Roster
    home: Path
    token: str

    def id_of(self, name: str) -> AgentId:
        return self.roster.entry(name).agent_id

    def message(self, name: str, text: str, *, session: str = "bench") -> NewMessage:
        """A message of the operator whose answer stays in the store."""
        return NewMessage(
            agent_id=self.id_of(name),
            session_key=session,
            parts=text_parts(text),
            principal=OPERATOR,
            kind=MessageKind.CHAT,
            lane=LaneName.INTERACTIVE,
            deliver_to=DeliverTo("store"),
            silent=True,
        )

    def chat(self, name: str, text: str, conversation: str) -> NewMessage:
        """A message of a person in a console conversation."""
        agent_id = self.id_of(name)
        return NewMessage(
            agent_id=agent_id,
            session_key=f"chat:console:{conversation}",
            parts=text_parts(text),
            principal=OPERATOR,
            deliver_to=DeliverTo(
                "chat", agent_id=agent_id, channel="console", conversation=conversation
            ),
        )


def write_home(home: Path, agents: Agents, files: Mapping[str, str] | None = None) -> None:
    """A home with these agents, an offline main and no open port of a default."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "agents.json").write_text(json.dumps(list(agents), indent=1), encoding="utf-8")
    (home / "config.toml").write_text('[main]\nengine = "scripted"\n', encoding="utf-8")
    for name, text in (files or {}).items():
        (home / name).write_text(text, encoding="utf-8")


@asynccontextmanager
async def household(
    home: Path,
    agents: Agents,
    *,
    files: Mapping[str, str] | None = None,
    engines: Callable[[EngineRegistry], None] = lambda registry: None,
) -> AsyncIterator[BenchDaemon]:
    """Start the daemon of a new home and wait until every agent runs; end it afterwards."""
    write_home(home, agents, files)
    place = Home(home)
    place.create()
    prctl.become_subreaper()
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    registry = default_registry(clock, os.environ)
    engines(registry)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        log = setup_logging(
            level="info",
            json=True,
            file=place.logs / "agentsup.log",
            redactor=Redactor(),
            stream=nowhere,
        )
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        database = await Database.open(place.state_db, clock=clock)
        roster = Roster(database, clock, entropy)
        token, _ = operator_token(place.api_token, entropy)
        await roster.load()
        snapshot, complaint = await first_snapshot(place, roster.overrides(), ConfigFiles())
        await roster.take_over(snapshot.specs)
        ground = BootContext(
            home=place,
            database=database,
            clock=clock,
            entropy=entropy,
            boot=await boot.begin(database, clock, BootId(entropy.new_id("boot")), entropy),
            endings={},
            roster=roster,
            snapshot=snapshot,
            first_complaint=complaint,
            tokens=TokenRegistry(entropy, token),
            redactor=Redactor(),
            environ=os.environ,
            port=0,
            engines=registry,
            after_imports=gc.freeze,
        )
        settled()
        daemon = build_daemon(ground)
        await daemon.mailbox.load()
        owner = TaskOwner("household")
        running = owner.spawn(daemon.supervisor.run(), name="household:daemon")
        try:
            await _until_up(daemon, running)
            yield BenchDaemon(daemon, database, roster, home, token)
        finally:
            daemon.ending.end(0, "measured")
            daemon.ending.force()
            await asyncio.wait({running}, timeout=60)
            await registry.close()
            await database.close()
            log.close()


async def _until_up(daemon: Daemon, running: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(60):
        while True:
            if running.done():
                running.result()
                raise RuntimeError("the daemon ended at its start")
            states = {unit.child.state.value for unit in daemon.fleet.units()}
            if daemon.ending.state == "running" and states <= {"running", "degraded"}:
                return
            await asyncio.sleep(0.01)
