"""The tool servers of one agent over a real store, and real servers to have: well and sick ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentsup.agents.mcp import AgentServers
from agentsup.agents.mcp.services import McpServices, ServerLocation, ServerProcesses
from agentsup.agents.workspace import ProcessTable
from agentsup.config import build_spec
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.pool import BoundedPool
from agentsup.model.ids import CallId
from agentsup.model.tool import ToolContext
from agentsup.store import Database, StoreOptions
from tests.support.bound import BOUND_S
from tests.support.turns import lease_of

PROGRAM = ["-m", "tests.support.mcp_server"]
SECRET = "a-very-secret-key-of-the-proof"
ENVIRON = {"THE_KEY": SECRET}


class ToolServersFixture:
    """One agent's servers over a real store, and what their tools did."""

    def __init__(
        self, root: Path, database: Database, processes: ProcessTable, servers: AgentServers
    ) -> None:
        self.root, self.database, self.processes = root, database, processes
        self.servers = servers
        self.effects = root / "effects"

    def proof(self, *options: str, **more: Any) -> dict[str, Any]:
        """The entry of a real server."""
        args = [*PROGRAM, "--effects", str(self.effects), *options]
        return {"command": sys.executable, "args": args, **more}

    def have(self, **servers: dict[str, Any]) -> None:
        self.servers.apply(protected(servers))

    def document(self, name: str) -> dict[str, Any]:
        return next(one for one in self.servers.documents() if one["name"] == name)

    async def is_state(self, name: str, *states: str, within_s: float = BOUND_S) -> dict[str, Any]:
        await until(lambda: self.document(name)["state"] in states, within_s)
        return self.document(name)

    async def call(self, tool_name: str, /, **args: Any) -> str:
        tool = self.servers.get(tool_name)
        assert tool is not None, f"{tool_name} is not offered"
        return await tool.run(CONTEXT, args)

    def done(self, what: str) -> list[str]:
        if not self.effects.exists():
            return []
        rows = map(json.loads, self.effects.read_text().splitlines())
        return [text for kind, text in rows if kind == what]

    async def groups(self) -> list[int]:
        return await self.database.read(
            lambda r: [row["pgid"] for row in r.all("SELECT pgid FROM processes")]
        )


class _Slot:
    def released(self) -> Any:
        raise NotImplementedError


CONTEXT = ToolContext(
    lease_of("agt_1", "msg_1", "ses_1"), _Slot(), agent_name="ada", call_id=CallId("call_1")
)


def protected(servers: dict[str, Any]) -> Any:
    values: dict[str, Any] = {"name": "ada", "mcp": servers}
    return build_spec(values).mcp


async def until(is_so: Callable[[], Any], within_s: float = BOUND_S) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def town_of(
    root: Path, programs: ServerProcesses | None = None, files: BoundedPool | None = None
) -> AsyncIterator[ToolServersFixture]:
    clock = SystemClock()
    workspace = root / "agents" / "ada" / "workspace"
    workspace.mkdir(parents=True)
    database = await Database.open(
        root / "state.db", clock=clock, options=StoreOptions(reserve_bytes=0)
    )
    services = McpServices(
        clock=clock,
        entropy=SystemEntropy(clock),
        processes=ProcessTable(database, clock, "boot-1"),
        home=root,
        environ=ENVIRON,
        child_env=child_env,
        programs=programs or ServerProcesses(),
        files=files or BoundedPool("files"),
    )
    servers = AgentServers(ServerLocation("agt_1", "ada", workspace), services)
    servers.open({})
    try:
        yield ToolServersFixture(root, database, services.processes, servers)
    finally:
        await servers.close()
        await database.close()
