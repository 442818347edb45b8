"""P9: the daemon knows when it is ill. Real time, with limits a tenth or less of the usual ones."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from agentsup.daemon.assembly import metrics
from agentsup.kit.lag import LagProbe, LagStats
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P9")
ANSWER = [{"match": "(.*)", "steps": [{"say": "answer to $1"}]}]
FED_EVERY_S = 0.1
DUMP_S = 0.6
LAG_LIMIT_S = 0.25


class Fixture:
    """A running daemon, its probes over HTTP, and what systemd hears.

    ``lag_limit_s`` is far off where lag is not the matter: the machine may be busy.
    """

    def __init__(self, home: Path, *, lag_limit_s: float = 30.0) -> None:
        self.dump = home / "stacks"
        self.fed_at_s: list[float] = []
        self._file = self.dump.open("w")
        self.house = ProofDaemon(
            home,
            [agent("main", ANSWER), agent("ann", ANSWER)],
            is_real=True,
            lag={"interval_s": 0.02, "warn_s": 0.1, "dump_s": DUMP_S, "dump_to": self._file},
            watchdog={
                "interval_s": FED_EVERY_S,
                "probe_limit_s": 0.2,
                "lag_limit_s": lag_limit_s,
                "silence_limit_s": 5.0,
                "notify": self._notify,
            },
        )

    def _notify(self, state: str) -> bool:
        if state == "WATCHDOG=1":
            self.fed_at_s.append(time.monotonic())
        return True

    async def __aenter__(self) -> Self:
        await self.house.open()
        self._client = aiohttp.ClientSession(self.house.daemon.api.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self.house.close(force=True)
        self._file.close()

    async def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        async with self._client.get(path) as response:
            return response.status, await response.json()

    async def ill(self) -> set[str]:
        """Names of the probes that are not well, by /readyz."""
        status, document = await self.ask("/readyz")
        found = {probe["name"] for probe in document["probes"] if not probe["ok"]}
        claim.holds(status == (503 if found else 200), f"/readyz says {status} with {found} ill")
        return found

    async def becomes(self, ill: set[str], limit_s: float, what: str) -> None:
        limit_s *= claim.patience
        async with asyncio.timeout(limit_s + 5):
            until_s = time.monotonic() + limit_s
            while (found := await self.ill()) != ill:
                if time.monotonic() > until_s:
                    claim.broken(f"{what}: ill are {sorted(found) or 'none'}, not {sorted(ill)}")
                await asyncio.sleep(0.02)


async def a_stopped_store_is_seen(home: Path) -> None:
    """The writer's thread stands still, as with a disk that hangs; later it goes on."""
    async with Fixture(home) as ward:
        await ward.becomes(set(), 5, "it is not well at first")
        before = {u.spec.name: u.instance_id for u in ward.house.daemon.fleet.units()}
        let_go = threading.Event()
        standing = asyncio.ensure_future(
            ward.house.database.write(lambda tx: let_go.wait(60), name="standstill")
        )
        try:
            await ward.becomes({"store"}, 2, "the store stands still unnoticed")
            fed = len(ward.fed_at_s)
            status, _ = await ward.ask("/healthz")
            claim.holds(status == 200, f"/healthz says {status}, and the loop turns")
            await asyncio.sleep(5 * FED_EVERY_S)
            claim.holds(len(ward.fed_at_s) == fed, "systemd is told that all is well")
            after = {u.spec.name: u.instance_id for u in ward.house.daemon.fleet.units()}
            claim.holds(after == before, "agents were rebuilt for the store's trouble")
        finally:
            let_go.set()
            await asyncio.wait({standing})
        await ward.becomes(set(), 5, "it does not recover by itself")
        await claim.comes(
            lambda: len(ward.fed_at_s) > fed, 5, "systemd is not told of the recovery"
        )


def _hold_up_the_loop(seconds: float) -> None:
    time.sleep(seconds)


async def a_blocked_loop_is_seen(home: Path) -> None:
    """Code holds up the loop: shortly and often, then once for long."""
    async with Fixture(home, lag_limit_s=LAG_LIMIT_S) as ward:
        await ward.becomes(set(), 5, "it is not well at first")
        for _ in range(3):
            _hold_up_the_loop(1.5 * LAG_LIMIT_S)
            await asyncio.sleep(0.03)
        await ward.becomes({"lag"}, 1, "a loop that stutters is called well")
        status, _ = await ward.ask("/healthz")
        claim.holds(status == 200, f"/healthz says {status}, and the loop turns again")
        claim.holds(not ward.dump.read_text(), "a short stall wrote stacks")
        from_s = time.monotonic()
        _hold_up_the_loop(2 * DUMP_S)
        until_s = time.monotonic()
        fed = [at for at in ward.fed_at_s if from_s < at < until_s]
        claim.holds(not fed, "systemd was told that all is well while nothing moved")
        stacks = ward.dump.read_text()
        claim.holds("_hold_up_the_loop" in stacks, "no stacks show what held up the loop")
        claim.holds(stacks.count("stands still") == 1, "the stacks were written more than once")


async def a_main_that_is_down_is_not_ready(home: Path) -> None:
    """main is told to stop working; nothing else fails."""
    async with Fixture(home) as ward:
        await ward.becomes(set(), 5, "it is not well at first")
        await ward.house.unit("main").child.stop()
        await ward.becomes({"main"}, 2, "a daemon without main is called ready")
        ward.house.unit("main").child.start()
        await ward.becomes(set(), 5, "it does not recover")


# -- removals --------------------------------------------------------------------------------------


def _constant_store_probe(patch: pytest.MonkeyPatch) -> None:
    async def well(database: object, *, clock: object) -> None:
        return None

    patch.setattr(metrics, "probe", well)


def _constant_lag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LagProbe, "stats", lambda self: LagStats())


def _main_not_asked(patch: pytest.MonkeyPatch) -> None:
    original = metrics.probes

    def probes(*args: Any, **more: Any) -> dict[str, Any]:
        return {"store": original(*args, **more)["store"], "main": _well}

    patch.setattr(metrics, "probes", probes)


async def _well() -> str | None:
    return None


PROOFS = (
    Proof(
        "a stopped store is seen",
        "P9",
        a_stopped_store_is_seen,
        Removal("the store's probe a constant", _constant_store_probe),
        is_real=True,
    ),
    Proof(
        "a blocked loop is seen",
        "P9",
        a_blocked_loop_is_seen,
        Removal("the lag a constant", _constant_lag),
        is_real=True,
    ),
    Proof(
        "a main that is down is not ready",
        "P9",
        a_main_that_is_down_is_not_ready,
        Removal("main not asked", _main_not_asked),
        is_real=True,
    ),
)
