"""Thoughts that a coding agent or a program passes on in its text are no part of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsup.engines.acp.mapping import AcpTurnState
from agentsup.engines.claude.stream import ClaudeTurnState
from agentsup.engines.thoughts import AnswerText
from agentsup.model.engine import EngineEvent, ThinkingDelta, ToolStarted
from tests.contract.engines.conftest import (
    EngineFixture,
    Say,
    collect,
    done,
    spoken,
)
from tests.contract.engines.test_odd_models import CUTS, SECRET, TEXTS, THOUGHTS, pieces
from tests.support.engine_host import MemoryHost, segment

OPENED = sorted(name for name in THOUGHTS if "template" not in name)


def acp_chunk(text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content}


def acp_call(status: str, kind: str = "tool_call") -> dict[str, Any]:
    return {"sessionUpdate": kind, "toolCallId": "c", "kind": "read", "status": status}


class Acp:
    """What a turn of an agent shows and answers."""

    def __init__(self) -> None:
        self.state = AcpTurnState()
        self.events: list[EngineEvent] = []

    def take(self, *updates: dict[str, Any]) -> None:
        for update in updates:
            self.events += self.state.take(update)

    def say(self, *texts: str) -> None:
        self.take(*map(acp_chunk, texts))

    def end(self) -> tuple[str, str]:
        self.events += self.state.close()
        return spoken(self.events), self.state.said


class Claude:
    """The same of Claude: a text block in deltas."""

    def __init__(self) -> None:
        self.state = ClaudeTurnState(api_retries=1)
        self.events: list[EngineEvent] = []

    def _hear(self, **event: Any) -> None:
        self.events += self.state.hear({"type": "stream_event", "event": event})

    def say(self, *texts: str) -> None:
        self._hear(type="content_block_start", content_block={"type": "text"})
        for text in texts:
            delta = {"type": "text_delta", "text": text}
            self._hear(type="content_block_delta", delta=delta)
        self._hear(type="content_block_stop")

    def end(self) -> tuple[str, str]:
        self.events += self.state.hear({"type": "result"})
        return spoken(self.events), self.state.text


AGENTS = st.sampled_from((Acp, Claude))


@given(AGENTS, st.sampled_from(sorted(THOUGHTS)), CUTS)
def test_a_thought_is_no_answer_wherever_chunks_end(
    agent: type[Acp | Claude], name: str, cuts: list[int]
) -> None:
    text, answer = THOUGHTS[name]
    turn = agent()
    turn.say(*pieces(text, cuts))
    shown, whole = turn.end()
    assert whole == answer
    if name in OPENED:
        assert shown == answer


@given(AGENTS, st.sampled_from(TEXTS), CUTS)
def test_a_text_about_tags_is_shown_as_it_is(
    agent: type[Acp | Claude], text: str, cuts: list[int]
) -> None:
    turn = agent()
    turn.say(*pieces(text, cuts))
    assert turn.end() == (text, text)


@given(st.sampled_from(OPENED), CUTS, st.integers(0, 100))
@example("plain", list(range(30)), 3)
@example("after code", [78], 1)
def test_news_of_a_call_amid_a_thought_opens_nothing(name: str, cuts: list[int], at: int) -> None:
    turn = Acp()
    turn.take(acp_call("in_progress"))
    updates = [acp_chunk(piece) for piece in pieces(THOUGHTS[name][0], cuts)]
    updates.insert(at % (len(updates) + 1), acp_call("completed", "tool_call_update"))
    turn.take(*updates)
    shown, whole = turn.end()
    assert SECRET not in shown + whole


def test_each_response_of_a_turn_has_its_own_thoughts() -> None:
    turn = Acp()
    turn.say("I look <thi")
    turn.take(acp_call("in_progress"), acp_call("completed", "tool_call_update"))
    turn.say("<think>", SECRET)
    turn.take({**acp_call("in_progress"), "toolCallId": "d"})
    turn.say(SECRET, "</think>", "Done.")
    *_, whole = turn.end()
    assert whole == "I look <thi\n\nDone."
    kinds = [type(event) for event in turn.events]
    assert kinds.index(ToolStarted) > 1, "the rest of a text comes before the call"
    assert "<thi" in spoken(turn.events[: kinds.index(ToolStarted)])
    assert ThinkingDelta(SECRET) in turn.events


TEXT = f"<think>{SECRET} 1</think>Four."


@pytest.mark.parametrize("chunks", [(TEXT,), tuple(TEXT), (f"{SECRET}</thi", "nk>Four.")])
async def test_no_agent_answers_with_what_its_model_thought(
    rig: EngineFixture, chunks: tuple[str, ...]
) -> None:
    if rig.name == "scripted":
        pytest.skip("no model writes its text")
    rig.play(Say(chunks))
    session = await rig.open(MemoryHost())
    events = await collect(session, segment())
    await session.close()
    assert (done(events).outcome, done(events).text) == ("ok", "Four.")
    if "".join(chunks) == TEXT:
        assert spoken(events) == "Four."


async def test_a_thought_that_a_template_opens_is_shown_in_one_turn_at_most(
    rig: EngineFixture,
) -> None:
    if rig.name == "scripted" or rig.name.startswith("llm"):
        pytest.skip("no program writes its text")
    for number in range(3):
        rig.play(Say((SECRET, " still", "</thi", "nk>Fo", "ur."), every_s=0.01))
        session = await rig.open(MemoryHost())
        events = await collect(session, segment())
        await session.close()
        assert done(events).text == "Four."
        if number:
            assert spoken(events) == "Four."


@given(st.sampled_from(sorted(THOUGHTS)), CUTS, st.booleans())
def test_an_agent_that_is_known_to_open_thoughts_shows_none(
    name: str, cuts: list[int], has_news: bool
) -> None:
    text, answer = THOUGHTS[name]
    turn = Acp()
    turn.state = AcpTurnState(answer=AnswerText({"ada"}, "ada"))
    turn.take(acp_call("in_progress"))
    for piece in pieces(text, cuts):
        turn.say(piece)
        if has_news:
            turn.take(acp_call("in_progress", "tool_call_update"))
    shown, whole = turn.end()
    assert SECRET not in shown + whole
    if not has_news:
        assert (shown, whole) == (answer, answer)
