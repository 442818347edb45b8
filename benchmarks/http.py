"""``POST /interagent/send_async`` with a token, beside the same server whose bus keeps nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

from agentsup.api.server import ApiServer
from agentsup.mailbox.mail.bus import Asker, BusReply, BusRequest, InterAgentBus
from agentsup.model.ids import MessageId, SessionId
from agentsup.model.message import Accepted, MessageState
from agentsup.model.principal import OPERATOR, Principal
from benchmarks.bare import BODY
from benchmarks.daemon_fixture import household
from benchmarks.figure import BenchContext, Figure, median

CALLERS = 16


class MemoryBus:
    """Answers as the bus does, without a mailbox."""

    def __init__(self) -> None:
        self._count = 0

    async def send(
        self,
        request: BusRequest,
        *,
        caller: Principal,
        timeout_s: float = 1.0,
        asker: Asker | None = None,
    ) -> BusReply:
        raise NotImplementedError

    async def send_async(
        self, request: BusRequest, *, caller: Principal, asker: Asker | None = None
    ) -> Accepted:
        self._count += 1
        return Accepted(
            MessageId(f"msg_{self._count:026}"), SessionId("ses_0"), MessageState.QUEUED
        )


async def _load(server: ApiServer, token: str, *, callers: int, seconds: float) -> dict[str, Any]:
    body = json.dumps({"to": "clerk", "message": BODY, "silent": True})
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        str(server.port),
        str(callers),
        str(seconds),
        token,
        "/interagent/send_async",
        body,
    ]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    said: dict[str, Any] = json.loads(done.stdout)
    if said["refused"]:
        raise RuntimeError(f"{said['refused']} requests were refused")
    return said


async def measure(boot_context: BenchContext) -> list[Figure]:
    """The clerk is stopped, so that requests are only stored; rounds of disk and memory in turn."""
    seconds = 0.1 if boot_context.tiny else 1.5
    agents = [{"name": "clerk", "engine": "scripted", "queue_limit": 1_000_000}]
    async with boot_context.fresh("http") as folder, household(folder, agents) as home:
        await home.daemon.control.stop_agent("clerk", OPERATOR)
        disk = home.daemon.api
        bus = cast("InterAgentBus", MemoryBus())
        memory = ApiServer(replace(disk._deps, bus=bus), port=0)
        await memory.start()
        found: dict[tuple[int, bool], list[dict[str, Any]]] = {}
        for _ in range(boot_context.size(5, 1)):
            for callers in (1, CALLERS):
                for server in (disk, memory):
                    said = await _load(server, home.token, callers=callers, seconds=seconds)
                    found.setdefault((callers, server is disk), []).append(said)
        await memory.close()

    def mid(callers: int, key: str, *, on_disk: bool) -> float:
        return median(said[key] for said in found[callers, on_disk])

    shares = [
        a["per_s"] / b["per_s"]
        for a, b in zip(found[CALLERS, True], found[CALLERS, False], strict=True)
    ]
    raw_is = "the same server without disk"
    return [
        Figure(
            "share of the diskless rate, 16 callers",
            median(shares),
            "",
            0.33,
            at_most=False,
            note="rounds in pairs",
        ),
        Figure(
            "send_async, 16 callers",
            mid(CALLERS, "per_s", on_disk=True),
            "/s",
            raw=mid(CALLERS, "per_s", on_disk=False),
            raw_is=raw_is,
        ),
        Figure(
            "send_async, 16 callers, p50",
            mid(CALLERS, "p50_ms", on_disk=True),
            "ms",
            raw=mid(CALLERS, "p50_ms", on_disk=False),
            raw_is=raw_is,
        ),
        Figure(
            "send_async, 16 callers, p99",
            mid(CALLERS, "p99_ms", on_disk=True),
            "ms",
            raw=mid(CALLERS, "p99_ms", on_disk=False),
            raw_is=raw_is,
        ),
        Figure(
            "send_async, 1 caller, p50",
            mid(1, "p50_ms", on_disk=True),
            "ms",
            raw=mid(1, "p50_ms", on_disk=False),
            raw_is=raw_is,
        ),
    ]
