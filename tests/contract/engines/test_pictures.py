"""A picture of a message reaches the model in the form of each engine, or the person reads why not."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.acp.engine import AcpEngine
from agentsup.engines.guard import open_guarded
from agentsup.engines.llm import LlmEngine, history
from agentsup.engines.process import ProcessLauncher
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.model.engine import EngineNotice, EngineSpec, Picture
from tests.contract.engines.conftest import LlmHarness, ProgramHarness, Say, collect, done
from tests.support import acp_agent
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import ModelServer, Reply

PICTURES = (Picture("inbox/a.jpg", b"\xff\xd8one"), Picture("inbox/b.jpg", b"\xff\xd8two"))
DATA = [b64encode(each.data).decode() for each in PICTURES]


def user_content(body: dict[str, Any]) -> list[Any]:
    """The content of the last message of the person in a request."""
    found: list[Any] = [m["content"] for m in body["messages"] if m["role"] == "user"][-1]
    return found


def pictures_in(body: dict[str, Any]) -> list[str]:
    """The pictures of a request as base64, in either dialect."""
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "image_url":
                head, _, data = block["image_url"]["url"].partition(",")
                assert head == "data:image/jpeg;base64"
                found.append(data)
            elif block["type"] == "image":
                assert block["source"]["media_type"] == "image/jpeg"
                found.append(block["source"]["data"])
    return found


async def test_a_model_is_shown_the_pictures_after_the_text(llm: LlmHarness) -> None:
    llm.play(Say(("two cats",)))
    session = await llm.open(MemoryHost())
    end = done(await collect(session, segment("what is it?", pictures=PICTURES)))
    assert end.outcome == "ok", end.error
    body = llm.server.asked[0].body
    assert pictures_in(body) == DATA
    texts = [block["text"] for block in user_content(body) if block["type"] == "text"]
    assert texts == ["what is it?", "[picture inbox/a.jpg:]", "[picture inbox/b.jpg:]"]
    await session.close()


async def test_the_next_turn_sees_them_again_as_far_as_the_state_has_room(llm: LlmHarness) -> None:
    big = Picture("inbox/big.jpg", b"\xff\xd8" + bytes(history.MAX_PICTURE_BYTES - 2))
    llm.play(Say(("both",)), Say(("the left one",)))
    session = await llm.open(MemoryHost())
    end = done(await collect(session, segment(pictures=(big, PICTURES[0]))))
    assert end.engine_state is not None
    assert len(end.engine_state) < history.MAX_STATE_BYTES
    await collect(session, segment("which?", engine_state=end.engine_state))
    first, second = (pictures_in(asked.body) for asked in llm.server.asked)
    assert len(first) == 2
    assert len(second) == 1
    await session.close()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as each:
        yield each


async def asked_of(server: ModelServer, **options: Any) -> list[Any]:
    engine = LlmEngine(env={})
    given = {"base_url": server.base_url, "api_key": "sk-loopback-0123", **options}
    session = await open_guarded(engine, EngineSpec("llm", model="m", options=given), MemoryHost())
    events = await collect(session, segment(pictures=PICTURES))
    await session.close()
    await engine.close()
    return events


async def test_a_blind_model_is_shown_none_and_the_person_reads_it(server: ModelServer) -> None:
    server.add(Reply(("no idea",)))
    events = await asked_of(server, pictures=False)
    assert pictures_in(server.asked[0].body) == []
    assert EngineNotice(history.BLIND) in events
    assert "a picture, which can't be shown to you]" in json.dumps(server.asked[0].body)


async def test_a_refusal_of_pictures_names_the_option(server: ModelServer) -> None:
    server.add(Reply(status=400, error="this model has no eyes"))
    end = done(await asked_of(server))
    assert end.code == "request_rejected"
    assert "engine_options.pictures to false" in end.error


async def test_claude_is_shown_the_pictures_after_the_text(claude: ProgramHarness) -> None:
    claude.play({"do": "look", "what": "received"}, Say(("$result",)))
    session = await claude.open(MemoryHost())
    end = done(await collect(session, segment(pictures=PICTURES)))
    shown = json.loads(end.text)["pictures"]
    assert [each["data"] for each in shown] == DATA
    assert {each["media_type"] for each in shown} == {"image/jpeg"}
    await session.close()


@pytest.mark.parametrize("sees", [True, False])
async def test_an_acp_agent_is_shown_pictures_if_it_takes_them(
    tmp_path: Path, *, sees: bool
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [[{"say": "seen"}]], "sees": sees}))
    (tmp_path / "agent" / "workspace").mkdir(parents=True)
    engine = AcpEngine(ProcessLauncher(SystemClock()), {}, None)
    spec = EngineSpec(
        engine.name,
        options={"command": [sys.executable, "-S", acp_agent.__file__, str(script)]},
        workspace=str(tmp_path / "agent" / "workspace"),
        env=child_env(),
        agent="ada",
    )
    session = await open_guarded(engine, spec, MemoryHost())
    events = await collect(session, segment("look", pictures=PICTURES))
    assert done(events).outcome == "ok", done(events).error
    notes = [json.loads(line) for line in script.with_suffix(".journal").read_text().splitlines()]
    (asked,) = [note["params"] for note in notes if note.get("method") == "session/prompt"]
    shown = [block["data"] for block in asked["prompt"] if block["type"] == "image"]
    notices = [event.text for event in events if isinstance(event, EngineNotice)]
    assert shown == (DATA if sees else [])
    assert ("can't be shown to you]" in json.dumps(asked)) is not sees
    assert any("can't be shown pictures" in text for text in notices) is not sees
    await session.close()
    await engine.close()
