"""Tokens die with what they stand for; the roster keeps ids, wishes and overrides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.config import Override
from agentsup.daemon.runtime.roster import Roster, RosterDirectory
from agentsup.daemon.runtime.tokens import TokenRegistry, operator_token
from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigError, Gone, NotFound
from agentsup.model.health import Desired
from agentsup.model.principal import OPERATOR, PrincipalKind
from agentsup.store import Database, StoreOptions
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock


def book() -> TokenRegistry:
    return TokenRegistry(SystemEntropy(SystemClock()), "operators-own-token")


def test_who_a_token_stands_for() -> None:
    tokens = book()
    found = tokens.identify("operators-own-token")
    assert found is not None
    assert found.principal == OPERATOR
    run = tokens.identify(token := tokens.issue_run("agt_1", "ann", "msg_1"))
    assert run is not None
    assert (run.principal.kind, run.agent_id, run.message_id) == (
        PrincipalKind.RUN,
        "agt_1",
        "msg_1",
    )
    tokens.revoke(token)
    assert tokens.identify(token) is None
    assert tokens.identify("") is None


def test_an_agents_tokens_end_together() -> None:
    tokens = book()
    earlier = tokens.issue_run("agt_1", "ann", "msg_0")
    run = tokens.issue_run("agt_1", "ann", "msg_1")
    other = tokens.issue_run("agt_2", "ben", "msg_2")
    tokens.revoke_agent("agt_1")
    assert [tokens.identify(each) is None for each in (earlier, run, other)] == [True, True, False]


def test_no_token_is_kept_in_the_clear() -> None:
    tokens = book()
    token = tokens.issue_run("agt_1", "ann", "msg_1")
    assert token not in repr(vars(tokens))
    assert "operators-own-token" not in repr(vars(tokens))


def test_the_operators_token_file(tmp_path: Path) -> None:
    path, entropy = tmp_path / "api.token", SystemEntropy(SystemClock())
    token, is_new = operator_token(path, entropy)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (operator_token(path, entropy), is_new) == ((token, False), False)
    path.write_text("short")
    with pytest.raises(ConfigError, match="too short"):
        operator_token(path, entropy)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o000])
def test_a_token_that_others_could_read_is_replaced(tmp_path: Path, mode: int) -> None:
    path, entropy = tmp_path / "api.token", SystemEntropy(SystemClock())
    token, _ = operator_token(path, entropy)
    path.chmod(mode)
    other, is_new = operator_token(path, entropy)
    assert is_new
    assert other != token
    assert path.stat().st_mode & 0o777 == 0o600
    assert operator_token(path, entropy) == (other, False)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    clock = LoopClock()
    path = tmp_path / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0.0)
    options = StoreOptions(reserve_bytes=0, slow_ms=10_000)
    database = await Database.open(lay_store(path), clock=clock, runner=runner, options=options)
    yield database
    await database.close()


async def roster_of(store: Database, *names: str) -> Roster:
    clock = LoopClock()
    roster = Roster(store, clock, SeededEntropy(clock, 3))
    await roster.load()
    await roster.take_over({name: AgentSpec(name) for name in ("main", *names)})
    return roster


@pytest.mark.virtual
async def test_a_name_keeps_its_id_in_any_case(store: Database) -> None:
    roster = await roster_of(store, "Ann")
    ann = roster.entry("ANN").agent_id
    await roster.take_over({"main": AgentSpec("main")})
    with pytest.raises(Gone):
        roster.entry("Ann")
    assert roster.by_id(ann) is None
    assert roster.name_of(ann) == "Ann"
    again = await roster_of(store, "ann")
    assert (again.entry("Ann").agent_id, again.entry("Ann").name) == (ann, "ann")
    assert again.names() == ("main", "ann")


@pytest.mark.virtual
async def test_wishes_and_overrides_are_durable_and_end_with_a_removal(store: Database) -> None:
    roster = await roster_of(store, "ann")
    await roster.set_desired("ann", Desired.DOWN)
    await roster.set_overrides("ann", {"model": Override("m", "base")})
    again = await roster_of(store, "ann")
    assert again.entry("ann").desired is Desired.DOWN
    assert again.overrides() == {"ann": {"model": Override("m", "base")}}
    assert not again.is_wanted_up(again.entry("ann"))
    await again.take_over({"main": AgentSpec("main")})
    await again.take_over({name: AgentSpec(name) for name in ("main", "ann")})
    assert again.entry("ann").desired is Desired.UP
    assert again.is_wanted_up(again.entry("ann"))


@pytest.mark.virtual
async def test_an_unknown_name_is_told_with_the_closest(store: Database) -> None:
    roster = await roster_of(store, "coder", "writer")
    with pytest.raises(NotFound, match="Did you mean coder") as found:
        roster.entry("codr")
    assert found.value.facts["did_you_mean"] == "coder"


@pytest.mark.virtual
async def test_the_directory_makes_an_entry_anew_with_each_change_and_only_then(
    store: Database,
) -> None:
    roster = await roster_of(store, "ann")
    status, problem = ["running", ""], [""]
    directory = RosterDirectory(
        roster, lambda agent_id: (status[0], status[1]), lambda role: problem[0]
    )
    role = {"main": AgentSpec("main"), "ann": AgentSpec("ann", role="writer")}

    async def declare() -> None:
        await roster.take_over(role)

    async def refuse_role() -> None:
        problem[0] = "it has no file"

    async def fail() -> None:
        status[:] = ["failed", "no model"]

    async def stop() -> None:
        await roster.set_desired("ann", Desired.DOWN)

    seen = [directory.lookup("ann")]
    for change in (declare, refuse_role, fail, stop):
        assert directory.lookup("ANN") is directory.by_id(seen[-1].agent_id) is seen[-1]
        await change()
        seen.append(directory.lookup("ann"))
    facts = [(each.role, each.role_problem, each.status, each.is_wanted_up) for each in seen]
    assert facts == [
        ("", "", "running", True),
        ("writer", "", "running", True),
        ("writer", "it has no file", "running", True),
        ("writer", "it has no file", "failed", True),
        ("writer", "it has no file", "failed", False),
    ]
