"""Trouble on demand: what goes wrong, for whom, how often.

A fault is a document; the first one that fits a call and still has tries left is applied. Chance
comes from a seed kept with the fault, so that a run repeats.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from agentsup.fakes.telegram.refusals import bad
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.world import Json, World

KINDS: Final = {
    "flood": "429 with retry_after; not applied",
    "edit_penalty": "429 on edits whose retry_after grows with each edit that comes too early",
    "error": "an error document with status and description; not applied",
    "server_error": "a status (502) with an HTML body; not applied",
    "hang": "no answer for seconds or until it is taken back, then the connection is cut; not applied",
    "slow": "applied, the answer drips in pieces of bytes, one every seconds",
    "cut_before": "the connection is cut; not applied",
    "cut_after": "applied, the connection is cut without an answer",
    "late": "applied at once, answered after seconds or once it is taken back",
    "malformed": "applied, answered with broken JSON",
}
_DEFAULTS: Final[Json] = {
    "token": None,
    "method": None,
    "chat_id": None,
    "count": None,
    "probability": 1.0,
    "seed": 0,
    "skip": 0,
    "retry_after": 3,
    "status": 502,
    "description": "Internal Server Error",
    "body": "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    "seconds": 1.0,
    "bytes": 1,
    "grow": 2.0,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that hits one call."""

    kind: str
    facts: Json

    def number(self, name: str) -> float:
        """A numeric property."""
        return float(self.facts[name])


def add(world: World, kind: str, **facts: Any) -> str:
    """Set a fault; returns its id. Raises ``Refused`` for unknown kinds and properties."""
    if kind not in KINDS:
        raise bad(f"no fault is called {kind!r}; there are {', '.join(KINDS)}")
    unknown = sorted(set(facts) - set(_DEFAULTS))
    if unknown:
        raise bad(f"a fault has no {', '.join(unknown)}")
    fault_id = f"fault{world.number('fault')}"
    document = {"fault_id": fault_id, "kind": kind, **_DEFAULTS, **facts}
    document |= {"hits": 0, "seen": 0, "penalty_s": 0.0, "until_ms": 0}
    world.put("fault", fault_id, document)
    return fault_id


def remove(world: World, fault_id: str | None = None) -> None:
    """Remove one fault, or all."""
    for fault in world.journal.all("fault"):
        if fault_id in {None, fault["fault_id"]}:
            world.journal.drop("fault", fault["fault_id"])
    world.wake()


async def lasts(world: World, fault: Fault) -> None:
    """Return when its seconds have passed, or when it was taken back."""
    with suppress(TimeoutError):
        async with asyncio.timeout(fault.number("seconds")):
            while world.journal.get("fault", fault.facts["fault_id"]) is not None:
                await world.next_change()


def pick(world: World, bot: Json, call: Call, counts_as: str) -> Fault | None:
    """The fault that hits this call, its tries counted down."""
    for fault in world.journal.all("fault"):
        if not _fits(fault, bot, call, counts_as):
            continue
        fault["seen"] += 1
        draw = Random(f"{fault['seed']}/{fault['seen']}").random()
        hit = fault["seen"] > fault["skip"] and draw < fault["probability"]
        if hit and fault["kind"] == "edit_penalty":
            hit = _penalty(world, fault)
        if hit:
            fault["hits"] += 1
        world.put("fault", fault["fault_id"], fault)
        if hit:
            return Fault(fault["kind"], dict(fault))
    return None


def _fits(fault: Json, bot: Json, call: Call, counts_as: str) -> bool:
    if fault["count"] is not None and fault["hits"] >= fault["count"]:
        return False
    if fault["token"] is not None and fault["token"] != bot["token"]:
        return False
    if fault["chat_id"] is not None and str(fault["chat_id"]) != call.chat_id:
        return False
    if fault["kind"] == "edit_penalty" and counts_as != "edit":
        return False
    wanted = fault["method"]
    if wanted is None:
        return call.method != "getupdates" or fault["kind"] not in {"flood", "edit_penalty"}
    names = wanted if isinstance(wanted, list) else [wanted]
    return call.method in {str(name).lower() for name in names}


def _penalty(world: World, fault: Json) -> bool:
    """An edit before the time is refused and the next wait is longer; one in time resets nothing
    but passes and starts a new wait."""
    now_ms = world.now_ms()
    if now_ms >= fault["until_ms"]:
        if fault["penalty_s"]:
            fault["penalty_s"] = max(0.0, fault["penalty_s"] - float(fault["retry_after"]))
        wait_s = max(float(fault["seconds"]), fault["penalty_s"])
        fault["until_ms"] = now_ms + round(wait_s * 1000)
        return False
    grown = fault["penalty_s"] * float(fault["grow"])
    fault["penalty_s"] = min(300.0, max(float(fault["retry_after"]), grown))
    fault["until_ms"] = now_ms + round(fault["penalty_s"] * 1000)
    fault["retry_after_now"] = int(fault["penalty_s"])
    return True
