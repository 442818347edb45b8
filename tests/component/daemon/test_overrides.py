"""Fields that an operator sets without the files: checked, applied as the field says, cleared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentsup.daemon.runtime import overrides
from agentsup.model.control import CommandContext
from agentsup.model.errors import BadRequest, Forbidden
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

EVE = Principal(PrincipalKind.PERSON, "eve", "eve")
BYPASS = "bypassPermissions"


def program(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """An agent whose engine is a program that is there."""
    command = [str(tmp_path / "answer")]
    Path(command[0]).write_text("#!/bin/sh\necho hi\n")
    Path(command[0]).chmod(0o755)
    return {
        "name": "ann",
        "engine": "command",
        "engine_options": {"command": command, "output": "text", **options},
    }


@pytest.mark.parametrize(
    "field, text, value",
    [
        ("permission_mode", BYPASS, BYPASS),
        ("permission_mode", "default", "default"),
        ("turn_timeout_s", "600", 600),
        ("idle_timeout_s", "12.5", 12.5),
        ("streaming.mode", "off", "off"),
    ],
)
async def test_a_live_field_is_set_shown_and_cleared_in_chat(
    household: Open, field: str, text: str, value: Any
) -> None:
    house = await household(agent("ann", permission_mode="plan"))
    before = {row["field"]: row for row in await house.daemon.control.explain("ann")}[field]
    built = house.instances()
    reply = await house.command("ann", f"/set {field} {text}")
    assert (reply.ok, f"{field} of ann is {text} from now on." in reply.text) == (True, True)
    rows = {row["field"]: row for row in await house.daemon.control.explain("ann")}
    assert (rows[field]["value"], rows[field]["origin"]) == (value, "override")
    assert (await house.daemon.control.diff())["overrides"] == [f"ann: {field} = {value!r}"]
    assert f"is {text} (from: override)" in (await house.command("ann", f"/set {field}")).text
    reply = await house.command("ann", f"/set {field} -")
    assert "as in the files again" in reply.text
    rows = {row["field"]: row for row in await house.daemon.control.explain("ann")}
    assert rows[field] == before
    assert house.instances() == built


async def test_a_rebuild_field_builds_the_agent_anew(household: Open, tmp_path: Path) -> None:
    entry = {**program(tmp_path), "engine": "scripted"}
    house = await household(entry, agent("ben"))
    before = house.instances()
    reply = await house.command("ann", "/set engine command")
    assert "ann is rebuilt for it" in reply.text
    await house.settled()
    view = await house.daemon.control.agent("ann")
    assert (view.engine, house.unit("ann").spec.engine) == ("command", "command")
    assert house.instances()["ann"] != before["ann"]
    assert house.instances()["ben"] == before["ben"]
    await house.command("ann", "/set engine default")
    await house.settled()
    assert (await house.daemon.control.agent("ann")).engine == "scripted"


async def test_an_override_lasts_until_its_field_is_edited(household: Open) -> None:
    house = await household(agent("ann", permission_mode="plan"))
    await house.command("ann", "/set permission_mode default")
    await house.restart(kill=True)
    assert house.unit("ann").spec.permission_mode == "default"
    await house.save([agent("ann", permission_mode="plan", description="another field")])
    assert house.unit("ann").spec.permission_mode == "default"
    await house.save([agent("ann", permission_mode="dontAsk")])
    assert house.unit("ann").spec.permission_mode == "dontAsk"
    ended = "The override of permission_mode of ann ended: the field was edited in a file."
    await house.until(lambda: ended in house.texts())


class Log:
    """Keeps what is logged, by its level."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append(("info", facts))

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append(("warning", facts))


async def test_what_asks_less_is_told_and_logged(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(overrides, "_log", log)
    house = await household(agent("ann", permission_mode=BYPASS))
    for text in (f"/set permission_mode {BYPASS}", "/set permission_mode -"):
        lower = await house.command("ann", "/set permission_mode plan")
        assert "without asking" not in lower.text
        raised = await house.command("ann", text)
        assert "ann may now do more without asking than before (plan)." in raised.text
    assert [level for level, _ in log.lines] == ["info", "warning"] * 2
    assert {facts["by"] for _, facts in log.lines} == {"operator"}


@pytest.mark.parametrize(
    "who",
    [
        EVE,
        Principal(PrincipalKind.AGENT, "agt_1", "ann", PersonRole.MANAGER),
        Principal(PrincipalKind.RUN, "run_1", "ann", PersonRole.MANAGER),
    ],
)
async def test_nobody_but_an_operator_overrides(household: Open, who: Principal) -> None:
    house = await household(agent("ann"))
    with pytest.raises(Forbidden, match="operator"):
        await house.daemon.control.set_override("ann", "permission_mode", BYPASS, who)
    with pytest.raises(Forbidden, match="operator"):
        await house.daemon.control.set_override("ann", "permission_mode", None, who)
    assert house.unit("ann").spec.permission_mode is None


async def test_set_is_an_operators_command(household: Open) -> None:
    house = await household(agent("ann"))
    for text in ("/set", "/set permission_mode plan", "/effort high"):
        reply = await house.command("ann", text, who=EVE)
        assert (reply.ok, reply.code) == (False, "forbidden")


@pytest.mark.parametrize(
    "field, value, told",
    [
        ("modle", "x", "did you mean 'model'"),
        ("streaming.mod", "off", "did you mean 'streaming.mode'"),
        ("telegram_token", "1:x", "secret"),
        ("description", "x", "agents.json"),
        ("permission_mode", "bypasPermissions", f"did you mean '{BYPASS}'"),
        ("turn_timeout_s", "long", "expected a number"),
        ("turn_timeout_s", -1, "more than 0"),
        ("engine", "gpt", "is not one of"),
        ("model", 5, "expected a text"),
        ("streaming", {"mode": "off"}, "streaming.mode"),
    ],
)
async def test_wrong_fields_and_values_are_refused_and_leave_nothing(
    household: Open, field: str, value: Any, told: str
) -> None:
    house = await household(agent("ann"))
    with pytest.raises(BadRequest) as refused:
        await house.daemon.control.set_override("ann", field, value, OPERATOR)
    assert told in refused.value.message
    assert "1:x" not in refused.value.message
    assert (await house.daemon.control.diff())["overrides"] == []


async def test_clearing_an_unknown_field_says_so(household: Open) -> None:
    house = await household(agent("ann"))
    with pytest.raises(BadRequest, match="did you mean 'model'"):
        await house.daemon.control.set_override("ann", "modle", None, OPERATOR)


@pytest.mark.parametrize(
    "command, told",
    [
        ("/model small", "uses no model"),
        ("/set model small", "uses no model"),
        ("/effort high", "has no setting for how long to think"),
        ("/set provider openai", "no choice of provider"),
        ("/set engine command", "engine_options.rules of the engine command"),
        ("/set engine llm", "engine_options.rules of the engine llm"),
        ("/set model_tier fallback", "no fallback"),
        ("/set role nosuch", "nosuch"),
    ],
)
async def test_what_would_have_no_effect_is_refused_with_the_reason(
    household: Open, command: str, told: str
) -> None:
    house = await household(agent("ann"))
    before = house.instances()
    reply = await house.command("ann", command)
    assert (reply.ok, reply.code) == (False, "conflict")
    assert told in reply.text
    assert (await house.daemon.control.diff())["overrides"] == []
    assert house.instances() == before


async def test_a_model_that_auto_could_not_use_is_refused(household: Open) -> None:
    house = await household({"name": "ann", "engine": "auto"})
    reply = await house.command("ann", "/model gpt-9")
    assert not reply.ok
    assert "OPENAI_API_KEY" in reply.text


async def test_the_program_of_an_engine_must_hear_the_model(
    household: Open, tmp_path: Path
) -> None:
    house = await household(program(tmp_path, input="text"))
    reply = await house.command("ann", "/model small")
    assert (reply.ok, "engine_options.input" in reply.text) == (False, True)
    await house.save([program(tmp_path)])
    await house.settled()
    assert (await house.command("ann", "/model small")).ok
    assert house.unit("ann").spec.model == "small"


async def test_two_at_once_both_hold(household: Open) -> None:
    house = await household(agent("ann"))
    control = house.daemon.control
    await asyncio.gather(
        control.set_override("ann", "turn_timeout_s", 5, OPERATOR),
        control.set_override("ann", "streaming.mode", "off", OPERATOR),
    )
    spec = house.unit("ann").spec
    assert (spec.turn_timeout_s, spec.streaming.mode) == (5, "off")


async def test_all_fields_are_listed_in_both_languages(household: Open) -> None:
    house = await household(agent("ann"))
    agent_id = house.roster.entry("ann").agent_id
    for code, head in (("", "What can be set"), ("de", "Was sich für ann ohne die Dateien")):
        context = CommandContext(agent_id, "ann", "console", "local", OPERATOR, language=code)
        listed = await house.daemon.inbox._commands.run("/set", context)
        assert head in listed.text
        for each in await house.daemon.control.overridable("ann"):
            assert f"{each.field}: " in listed.text
        assert "/set" in (await house.daemon.inbox._commands.run("/help", context)).text
        one = await house.daemon.inbox._commands.run("/set permission_mode", context)
        presses = {each.command: each for row in one.buttons for each in row}
        assert presses[f"/set permission_mode {BYPASS}"].confirm
        assert not presses["/set permission_mode plan"].confirm
