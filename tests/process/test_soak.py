"""A long run of ordinary messages: every one answered once, and the daemon's memory stays level (P1).

Ten agents answer what sixteen callers send over HTTP and wait for; every tenth message makes its
agent ask another one. ``TEST_SOAK`` says how many messages (500; ``make soak``: 200,000). From
100,000 on, the growth of the memory that belongs to the daemon alone is bounded, too: it is the slope
of a line through samples taken after the first half.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from pathlib import Path
from typing import Any, Final

import pytest

from agentsup.kit.proctable import private_bytes
from tests.support.daemon_process import DaemonProcess, write_home

pytestmark = pytest.mark.process

MESSAGES: Final = int(os.environ.get("TEST_SOAK", "500"))
AGENTS: Final = [f"agent{number}" for number in range(10)]
CALLERS: Final = 16
GROWTH_MIB: Final = 1.0
"""The most growth for each 100,000 messages after warm-up."""
RULES: Final[list[dict[str, Any]]] = [
    {
        "match": r"pass (\w+) (\d+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "say $2"}}},
            {"say": "heard $result"},
        ],
    },
    {"match": r"say (\d+)", "steps": [{"say": "said $1"}]},
]


async def test_a_long_run_answers_each_message_once_and_keeps_its_memory(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", [{"name": name} for name in ["main", *AGENTS]], RULES)
    async with DaemonProcess(home, loaded=()) as daemon:
        numbers = iter(range(MESSAGES))
        samples: list[tuple[int, float]] = []

        async def call() -> None:
            for number in numbers:
                agent, other = AGENTS[number % 10], AGENTS[(number + 1) % 10]
                asks = number % 10 == number // 10 % 10
                text = f"pass {other} {number}" if asks else f"say {number}"
                result = await daemon.result(await daemon.send(agent, text))
                assert f"said {number}" in result["text"], result
                if number % 1000 == 999:
                    samples.append((number, private_bytes(daemon.pid) / 2**20))

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(call())
        asked = sum(number % 10 == number // 10 % 10 for number in range(MESSAGES))
        assert daemon.sql("SELECT state, attempts, count(*) AS n FROM messages GROUP BY 1, 2") == [
            {"state": "done", "attempts": 1, "n": MESSAGES + asked}
        ]
        if MESSAGES >= 100_000:
            later = samples[len(samples) // 2 :]
            slope = statistics.linear_regression(*zip(*later, strict=True)).slope * 100_000
            print(f"{samples[0][1]:.1f} MiB, {samples[-1][1]:.1f} MiB, {slope:.2f} per 100,000")
            assert slope <= GROWTH_MIB, f"{slope:.2f} MiB for 100,000 messages"
