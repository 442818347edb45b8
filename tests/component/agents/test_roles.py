"""A role's ceiling over the real pipeline: what is offered, what is refused, what is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.pipeline import ceiling
from agentsup.agents.roles import read_roles
from agentsup.agents.roles.limits import bounds_of
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)


def use(name: str, **args: Any) -> Mapping[str, Any]:
    return {"match": name, "steps": [{"tool": {"name": name, "args": args}}, {"say": "$result"}]}


RULES = (
    use("fs_write", path="made.txt", content="x"),
    use("fs_list", path="."),
    use("exec", argv=["touch", "ran"]),
    use("list_agents"),
)


def put(house: VirtualDaemon, name: str, more: str) -> None:
    path = house.home.roles / name / "AGENT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\n{more}---\nBe {name}.\n", encoding="utf-8")


async def said(house: VirtualDaemon, name: str, text: str) -> str:
    message = await house.ask(name, text)
    return message.result_text


async def test_a_call_beyond_the_role_is_refused_whatever_the_agent_may(household: Open) -> None:
    house = await household(
        agent("ann", *RULES, role="reader", tools=["*"], permission_mode="bypassPermissions")
    )
    put(house, "reader", "max_tools: ['fs_list', 'fs_read**']\n")
    assert "beyond the role reader" in await said(house, "ann", "fs_write")
    assert "beyond the role reader" in await said(house, "ann", "exec")
    assert "beyond" not in await said(house, "ann", "fs_list")
    assert "beyond" not in await said(house, "ann", "list_agents")
    workspace = house.home.workspace("ann")
    assert not (workspace / "made.txt").exists()
    assert not (workspace / "ran").exists()


async def test_a_role_gives_nothing_that_the_agent_may_not(household: Open) -> None:
    house = await household(agent("ann", *RULES, role="operator", tools=["fs_list"]))
    assert "not among the tools" in await said(house, "ann", "fs_write")
    assert "not among" not in await said(house, "ann", "fs_list")


async def test_an_optional_tool_still_has_to_be_named_by_the_agent(household: Open) -> None:
    house = await household(
        agent("ann", *RULES, role="operator", permission_mode="bypassPermissions")
    )
    assert "must be named in the tools" in await said(house, "ann", "exec")


async def test_a_role_that_is_not_there_leaves_no_tool_and_is_told(household: Open) -> None:
    house = await household(agent("ann", *RULES, role="reeder"), agent("ben", *RULES))
    refused = await said(house, "ann", "list_agents")
    assert "ann has no tools, for there is no usable role reeder" in refused
    assert "ann (degraded, role reeder)" in await said(house, "ben", "list_agents")
    warnings = " ".join((await house.daemon.control.status()).warnings)
    assert "ann has no tools: there is no role 'reeder'" in warnings


def test_what_a_role_tells_is_part_of_the_prompt() -> None:
    house = read_roles(Path("/nowhere"))
    found = bounds_of(AgentSpec("ann", role="operator"), "operator", house)
    assert found.instruction.startswith("Your role is operator.")
    assert "You are in the role operator" in found.instruction
    assert bounds_of(AgentSpec("ann"), "", house).ceiling is None
    lost = bounds_of(AgentSpec("ann", tools=("*",)), "opperator", house)
    assert (lost.tools, lost.ceiling) == ((), ())
    assert "did you mean 'operator'?" in lost.instruction
    assert not ceiling.matches("exec", lost.ceiling or ())


async def test_a_session_is_switched_for_good_and_only_by_an_operator(household: Open) -> None:
    house = await household(agent("ann", *RULES), agent("ben", *RULES))
    put(house, "reader", "max_tools: [fs_list]\n")
    assert "This chat is in the role of ann: none." in (await house.command("ann", "/role")).text
    refused = await house.command("ann", "/role reader", who=EVE)
    assert (refused.ok, refused.code) == (False, "forbidden")
    assert "ben" in await said(house, "ann", "list_agents")
    assert "beyond" not in await said(house, "ann", "fs_write")

    assert (await house.command("ann", "/role READER")).ok
    assert "beyond the role reader" in await said(house, "ann", "fs_write")
    assert "in the role: reader" in (await house.command("ann", "/status")).text
    await house.restart()
    assert "beyond the role reader" in await said(house, "ann", "fs_write")
    assert "in the role: reader" in (await house.command("ann", "/role")).text

    await house.command("ann", "/new")
    assert "beyond" not in await said(house, "ann", "fs_write")


async def test_a_session_may_leave_its_agents_role_and_come_back(household: Open) -> None:
    house = await household(agent("ann", *RULES, role="chronicler"))
    assert "beyond the role chronicler" in await said(house, "ann", "fs_write")
    assert (await house.command("ann", "/role none")).ok
    assert "beyond" not in await said(house, "ann", "fs_write")
    assert (await house.command("ann", "/role -")).ok
    assert "beyond the role chronicler" in await said(house, "ann", "fs_write")
    for wanted, part in {"vualt": "did you mean 'vault'?", "vault": "none of them is here"}.items():
        reply = await house.command("ann", f"/role {wanted}")
        assert not reply.ok
        assert part in reply.text


async def test_a_role_of_its_own_session_neither_reads_nor_leaves_what_was_said(
    household: Open,
) -> None:
    house = await household(agent("ann", *RULES))
    put(house, "apart", "max_tools: [fs_list]\nsession_isolation: true\n")
    put(house, "along", "max_tools: [fs_list]\n")

    async def session_after(command: str) -> str:
        reply = await house.command("ann", command)
        assert reply.ok
        session = (await house.ask("ann", "list_agents")).session_id
        assert ("New chat started" in reply.text) is (session not in seen)
        seen.append(session)
        return session

    first = (await house.ask("ann", "list_agents")).session_id
    seen = [first]
    assert await session_after("/role along") == first
    apart = await session_after("/role apart")
    assert apart != first
    assert await session_after("/role apart") == apart
    assert await session_after("/role along") not in (first, apart)


async def test_a_text_is_routed_with_reasons(household: Open) -> None:
    house = await household(agent("ann"))
    told = (await house.command("ann", "/route read the file notes.txt")).text
    assert told.startswith("operator (one field)")
    assert "keyword “read” +2" in told
    assert "No role fits" in (await house.command("ann", "/route good morning")).text
    assert not (await house.command("ann", "/route")).ok
