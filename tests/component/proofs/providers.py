"""P2, P3 and P6 where models fail: done once, nobody else's trouble, and no attempt after the last."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agentsup.agents.recovery import breaker
from agentsup.agents.recovery.breaker import Breaker, BreakerPolicy
from agentsup.agents.tools import file_tools
from agentsup.agents.turn import engine_host, provider_wait
from agentsup.agents.turn.engine_host import TurnHost
from agentsup.agents.workspace import engine_setup
from agentsup.daemon.assembly import tool_pipeline
from agentsup.mailbox.messages import attempts
from agentsup.model.hook import CallFacts
from agentsup.model.ids import CallId
from agentsup.model.tool import Safety, Tool, ToolContext
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

once, alone, bounded = Claim("P2"), Claim("P3"), Claim("P6")
QUIET_S = 0.25
"""In virtual time a turn takes what the inline store draws for its commits: some 30 ms."""
APPEND = {"tool": {"name": "append", "args": {"text": "x"}}}


def trouble(code: str) -> dict[str, Any]:
    return {"trouble": {"code": code}}


def rule(match: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"match": match, "steps": list(steps), **more}


@contextmanager
def appending() -> Iterator[list[str]]:
    """A blind tool for all agents, its effect counted outside of the store."""
    made: list[str] = []

    async def append(context: ToolContext, args: dict[str, Any]) -> str:
        made.append(args["text"])
        return "appended"

    shape = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = Tool("append", "", shape, append, safety=Safety.SAFE)
    with mock.patch.object(tool_pipeline, "file_tools", return_value=(*file_tools(), tool)):
        yield made


async def asked_once_more_and_done_once(home: Path) -> None:
    """A turn that only used a tool is asked for its answer, once more after a kill."""
    rules = [
        rule("go", APPEND),
        rule("go", APPEND, {"sleep": 20}, {"say": "it is in"}, nudge="hint"),
    ]
    with appending() as made:
        async with ProofDaemon(home, [agent("main", rules)]) as house:
            await house.say("main", "go")
            await once.comes(lambda: made, 10, "nothing was done")
            await asyncio.sleep(5)
            await house.crash()
            await house.open()
            await once.comes(lambda: house.heard("it is in"), 60, "no answer came")
            once.holds(made == ["x"], f"it was done {len(made)} times")


async def a_switch_does_nothing_again(home: Path) -> None:
    """The primary model acts and runs out of credit; the fallback does the same and answers."""
    spare = {"rules": [rule("go", APPEND, {"say": "it is in"})]}
    main = agent(
        "main",
        [rule("go", APPEND, trouble("quota_exceeded"))],
        fallback_model="small",
        fallback_options=spare,
    )
    with appending() as made:
        async with ProofDaemon(home, [main]) as house:
            await house.say("main", "go")
            await once.comes(lambda: house.heard("it is in"), 60, "no answer came")
            once.holds(made == ["x"], f"it was done {len(made)} times")


async def a_sick_provider_hurts_no_others(home: Path) -> None:
    """One provider fails for many chats at once; an agent with another one answers as if alone."""
    sick = agent("sick", [rule(".*", trouble("server_error"))], provider="acme")
    good = agent("good", [rule("(.*)", {"say": "good $1"})], provider="fine")
    async with ProofDaemon(home, [agent("main"), sick, good]) as house:
        for number in range(8):
            await house.say("sick", "hello", f"sick-{number}")
        await asyncio.sleep(5)
        for number in range(10):
            await house.say("good", f"{number}", f"good-{number}")
            await alone.comes(
                partial(house.heard, f"good {number}"),
                QUIET_S,
                f"the neighbour was held up at {number}",
            )
            await asyncio.sleep(2)
        asked = await _failed_attempts(house)
        alone.holds(asked <= 8, f"the sick provider was asked {asked} times within 25 s")


async def one_message_opens_no_breaker(home: Path) -> None:
    """One message makes its provider fail whenever it comes; others with that provider do well."""
    odd = agent("odd", [rule("odd", trouble("server_error"))], provider="acme")
    good = agent("good", [rule("(.*)", {"say": "good $1"})], provider="acme")
    async with ProofDaemon(home, [agent("main"), odd, good]) as house:
        await house.say("odd", "odd", "odd")
        for number in range(10):
            await asyncio.sleep(1)
            await house.say("good", f"{number}", f"good-{number}")
            await alone.comes(
                partial(house.heard, f"good {number}"),
                QUIET_S,
                f"one message held up those of others at {number}",
            )


async def a_restart_begins_no_attempts_anew(home: Path) -> None:
    """A program that breaks is started once more in all, however often the daemon is killed."""
    main = agent("main", [rule("go", trouble("program_ended"))])
    async with ProofDaemon(home, [main]) as house:
        await house.say("main", "go")
        for _ in range(2):
            await asyncio.sleep(0.4)
            await house.crash()
            await house.open()
        await asyncio.sleep(120)
        tried = await _failed_attempts(house, "program_ended")
        bounded.holds(tried <= 1, f"{tried + 1} starts of a program that breaks")


async def a_long_wait_is_told_once(home: Path) -> None:
    """A provider wants long pauses, again and again, and the daemon is killed in between."""
    main = agent("main", [rule("go", {"trouble": {"code": "rate_limited", "retry_after": 60}})])
    async with ProofDaemon(home, [main]) as house:
        await house.say("main", "go")
        told = partial(house.heard, "tried again by itself")
        await once.comes(told, 20, "nobody was told of the wait")
        for _ in range(2):
            await house.crash()
            await house.open()
            await asyncio.sleep(65)
        rows = await house.database.read(
            lambda r: r.scalar("SELECT count(*) FROM outbox WHERE body LIKE '%tried again by%'")
        )
        once.holds(rows == 1, f"the same wait was told {rows} times")


async def _failed_attempts(house: ProofDaemon, code: str = "server_error") -> int:
    """Those on record; the last one of a message that fails for good is not."""
    rows = await house.database.read(
        lambda r: r.scalar("SELECT count(*) FROM attempts WHERE code = ?", (code,))
    )
    return int(rows)


# -- what is taken out -------------------------------------------------------------------------------


def _forgotten_calls(patch: pytest.MonkeyPatch) -> None:
    def again(self: TurnHost, *, is_last: bool) -> None:
        return

    patch.setattr(TurnHost, "again", again)


def _no_journal(patch: pytest.MonkeyPatch) -> None:
    """Each call is a new one."""
    numbers = itertools.count()

    def fresh(*args: Any, **more: Any) -> CallFacts:
        made = CallFacts(*args, **more)
        return replace(made, call_id=CallId(f"{made.call_id}:{next(numbers)}"))

    patch.setattr(engine_host, "CallFacts", fresh)


def _one_breaker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_setup, "provider_of", lambda *args, **more: "everybody")


def _hasty_breaker(patch: pytest.MonkeyPatch) -> None:
    def failed(breaker: Breaker, now: float, policy: BreakerPolicy, *, was_probe: bool) -> Breaker:
        return Breaker(2, now, policy.open_s)

    patch.setattr(breaker, "failed", failed)


def _no_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempts, "of_message", lambda reader, message_id: ())


def _no_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(provider_wait, "notify_wait_tx", lambda tx, message, **facts: False)


PROOFS = (
    Proof(
        "asked once more and done once",
        "P2",
        asked_once_more_and_done_once,
        Removal("calls counted on, not met", _forgotten_calls),
    ),
    Proof(
        "a switch of models does nothing again",
        "P2",
        a_switch_does_nothing_again,
        Removal("no call is met in the journal", _no_journal),
    ),
    Proof(
        "a sick provider hurts no others",
        "P3",
        a_sick_provider_hurts_no_others,
        Removal("one breaker for all providers", _one_breaker),
    ),
    Proof(
        "one message opens no breaker",
        "P3",
        one_message_opens_no_breaker,
        Removal("a breaker that opens at once", _hasty_breaker),
    ),
    Proof(
        "a restart begins no attempts anew",
        "P6",
        a_restart_begins_no_attempts_anew,
        Removal("attempts in memory only", _no_record),
    ),
    Proof(
        "a long wait is notified once",
        "P2",
        a_long_wait_is_told_once,
        Removal("nobody is notified", _no_word),
    ),
)
