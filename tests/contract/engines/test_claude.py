"""What the engine claude keeps beyond the contract of all engines."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.guard import SegmentLimits
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineNotice,
    HistoryItem,
    Permission,
    PermissionRequest,
    Resume,
    Segment,
    TextDelta,
    Usage,
)
from tests.contract.engines.conftest import (
    Hang,
    ProgramHarness,
    Say,
    Use,
    allowing_for_start,
    collect,
    done,
)
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment


def wants(**args: Any) -> dict[str, Any]:
    return {"do": "permit", "tool": "Bash", "args": args}


def look(what: str = "received") -> dict[str, Any]:
    return {"do": "look", "what": what}


def message(**fields: Any) -> dict[str, Any]:
    return {"do": "message", "message": fields}


async def answered(
    rig: ProgramHarness, host: MemoryHost, given: Segment | None = None
) -> EngineDone:
    session = await rig.open(host)
    end = done(await collect(session, given or segment()))
    await session.close()
    return end


async def events_of(rig: ProgramHarness, given: Segment | None = None) -> list[EngineEvent]:
    session = await rig.open(MemoryHost())
    events = await collect(session, given or segment())
    await session.close()
    return events


# -- leave -----------------------------------------------------------------------------------------


async def test_an_allowed_call_is_made_as_asked(claude: ProgramHarness, tmp_path: Path) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        return Permission(True)

    trace = str(tmp_path / "trace")
    claude.play(wants(path=trace), Say(("made with $result",)))
    host = MemoryHost(permit=permit)
    end = await answered(claude, host)
    assert end.text == "made with " + json.dumps({"path": trace})
    assert Path(trace).read_text() == "once\n"
    (asked,) = host.permission_requests
    assert (asked.request_id, asked.tool, asked.args) == ("call_1", "Bash", {"path": trace})


async def test_edited_arguments_are_those_that_count(
    claude: ProgramHarness, tmp_path: Path
) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        return Permission(True, args={"path": str(tmp_path / "safe")})

    claude.play(wants(path=str(tmp_path / "risky")), Say(("ok",)))
    await answered(claude, MemoryHost(permit=permit))
    assert (tmp_path / "safe").exists()
    assert not (tmp_path / "risky").exists()


async def test_a_denied_call_is_not_made_and_the_model_reads_why(
    claude: ProgramHarness, tmp_path: Path
) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        return Permission(False, "not on a Sunday")

    claude.play(wants(path=str(tmp_path / "trace")), Say(("I hear: $result",)))
    session = await claude.open(MemoryHost(permit=permit))
    events = await collect(session, segment())
    await session.close()
    assert done(events).text == "I hear: not on a Sunday"
    assert not (tmp_path / "trace").exists()
    assert not any(isinstance(event, EngineNotice) for event in events)


async def test_without_a_word_nothing_is_allowed(claude: ProgramHarness, tmp_path: Path) -> None:
    claude.play(wants(path=str(tmp_path / "trace")), Say(("$result",)))
    assert "denied" in (await answered(claude, MemoryHost())).text
    assert not (tmp_path / "trace").exists()


async def test_a_call_that_claude_denies_itself_is_told(claude: ProgramHarness) -> None:
    denials = [{"tool_name": "Write", "tool_use_id": "x"}]
    claude.play(
        message(
            type="result",
            subtype="success",
            result="done, I say",
            permission_denials=denials,
            total_cost_usd=0.5,
        )
    )
    events = await events_of(claude)
    assert done(events).text == "done, I say"
    assert [event.text for event in events if isinstance(event, EngineNotice)] == [
        "Claude was not allowed to use Write, by its own settings."
    ]


async def test_a_program_that_waits_for_a_person_is_held_and_takes_no_time_of_the_turn(
    claude: ProgramHarness,
) -> None:
    berths = claude.children.process_slots

    async def permit(request: PermissionRequest) -> Permission:
        assert berths.running == 1
        async with asyncio.timeout(BOUND_S):
            while not berths.paused:
                await asyncio.sleep(0.02)
        assert (berths.running, berths.paused) == (0, 1)
        await asyncio.sleep(hard_s)
        return Permission(True)

    hard_s = await allowing_for_start(claude, 2.0)
    claude.play(wants(), Say(("thanks",)))
    limits = SegmentLimits(idle_s=hard_s, hard_s=hard_s)
    session = await claude.open(MemoryHost(permit=permit), limits)
    assert done(await collect(session, segment())).text == "thanks"
    await session.close()
    assert (berths.running, berths.paused) == (0, 0)


async def test_a_cancelled_wait_for_leave_ends_at_once(
    claude: ProgramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def permit(request: PermissionRequest) -> Permission:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    claude.play(wants(), Say(("never",)))
    host = MemoryHost(permit=permit)
    session = await claude.open(host)
    task = asyncio.create_task(collect(session, segment()))
    await asked.wait()
    session.cancel(within_s=BOUND_S / 2)
    async with asyncio.timeout(BOUND_S):
        end = done(await task)
    assert end.outcome == "cancelled"
    assert "left behind" not in caplog.text
    assert host.groups == {}
    await session.close()


# -- its session -----------------------------------------------------------------------------------


async def test_the_session_goes_on_in_the_next_turn(claude: ProgramHarness) -> None:
    claude.play(look(), Say(("$result",)), look(), Say(("$result",)))
    first = await answered(claude, MemoryHost(), segment(system="Be kind."))
    received = json.loads(first.text)
    assert received["system"] == "Be kind."
    second = json.loads(
        (await answered(claude, MemoryHost(), segment(engine_state=first.engine_state))).text
    )
    assert second["flags"]["--resume"] == received["flags"]["--session-id"]


async def test_a_session_that_is_gone_begins_anew_with_the_transcript(
    claude: ProgramHarness,
) -> None:
    state = json.dumps({"v": 1, "engine": "claude", "session": "0a-gone"}).encode()
    claude.play(look("prompt"), Say(("$result",)))
    given = segment(
        "and now?", engine_state=state, history=(HistoryItem("user", "my name is Ada"),)
    )
    end = await answered(claude, MemoryHost(), given)
    prompt = json.loads(end.text)
    assert "my name is Ada" in prompt
    assert prompt.endswith("and now?")
    assert end.engine_state is not None
    assert b"0a-gone" not in end.engine_state


async def test_a_turn_that_was_killed_finds_its_session_again(claude: ProgramHarness) -> None:
    claude.play({"do": "say", "chunks": ["half"], "last_words": False}, {"do": "kill"})
    claude.play(look(), Say(("$result",)), look("prompt"), Say(("$result",)))
    assert (await answered(claude, MemoryHost())).outcome == "failed"
    received = json.loads((await answered(claude, MemoryHost(), segment(resume=Resume()))).text)
    assert "--resume" in received["flags"]
    again = json.loads((await answered(claude, MemoryHost(), segment(resume=Resume()))).text)
    assert "interrupted" in again


async def test_a_turn_that_is_tried_again_finds_its_session_taken(claude: ProgramHarness) -> None:
    claude.play(Say(("one",)), look(), Say(("$result",)))
    await answered(claude, MemoryHost())
    received = json.loads((await answered(claude, MemoryHost())).text)
    assert "--resume" in received["flags"]


@pytest.mark.parametrize("state", [b"", b"junk", b'{"engine":"llm","v":1}', b'{"session":"--x"}'])
async def test_a_foreign_state_begins_a_session(claude: ProgramHarness, state: bytes) -> None:
    claude.play(look(), Say(("$result",)))
    received = json.loads((await answered(claude, MemoryHost(), segment(engine_state=state))).text)
    assert "--session-id" in received["flags"]


# -- how it is called ------------------------------------------------------------------------------


async def test_limits_and_choices_become_flags(claude: ProgramHarness) -> None:
    claude.spec = {
        "model": "sonnet",
        "permission_mode": "plan",
        "reasoning_effort": "high",
        "max_steps": 7,
        "max_usd": 0.5,
    }
    claude.options = {"allowed_tools": ["Read", "Glob"], "fallback_model": "haiku"}
    claude.play(look(), Say(("$result",)))
    flags = json.loads((await answered(claude, MemoryHost())).text)["flags"]
    wanted = {
        "--model": "sonnet",
        "--permission-mode": "plan",
        "--effort": "high",
        "--max-turns": "7",
        "--max-budget-usd": "0.5",
        "--allowed-tools": "Read,Glob",
        "--fallback-model": "haiku",
        "--setting-sources": "",
    }
    assert wanted.items() <= flags.items()


async def test_mcp_servers_come_in_a_file_for_nobody_else(claude: ProgramHarness) -> None:
    token = "Bearer run-token-1"
    server = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": token}}
    claude.spec = {"mcp_servers": {"agentsup": server}}
    claude.play(look(), Say(("$result",)))
    received = json.loads((await answered(claude, MemoryHost())).text)
    assert received["mcp"] == {"mcpServers": {"agentsup": server}}
    assert received["mcp_mode"] == "0o600"
    file = Path(received["flags"]["--mcp-config"])
    assert not file.exists()
    assert not file.is_relative_to(claude.home), "parallel turns can share a home"


async def test_files_of_turns_that_a_kill_has_left_are_taken_away(claude: ProgramHarness) -> None:
    left = claude.workspace.parent / "engine-turns" / "mcp-of-an-earlier-life.json"
    left.parent.mkdir()
    left.write_text("{}")
    claude.play(Say(("hello",)))
    assert (await answered(claude, MemoryHost())).text == "hello"
    assert not left.exists()


async def test_in_another_persons_turn_a_session_begins_anew_and_is_told_what_was_said(
    claude: ProgramHarness,
) -> None:
    """As in a group: each person has a home, and sessions that nobody else can resume."""
    claude.play(Say(("hello",)), look("prompt"), Say(("$result",)))
    claude.spec = {"person": "person:anna"}
    first = await answered(claude, MemoryHost())
    claude.spec = {"person": "person:ben"}
    given = segment(
        "and now?", engine_state=first.engine_state, history=(HistoryItem("user", "I am Ada"),)
    )
    end = await answered(claude, MemoryHost(), given)
    assert "I am Ada" in json.loads(end.text)


async def test_the_daemons_key_goes_to_no_endpoint_of_an_entry(claude: ProgramHarness) -> None:
    claude.play(look("env"), Say(("$result",)), look("env"), Say(("$result",)))
    assert json.loads((await answered(claude, MemoryHost())).text)["ANTHROPIC_API_KEY"]
    claude.env = {"ANTHROPIC_BASE_URL": "http://elsewhere.example"}
    assert "ANTHROPIC_API_KEY" not in json.loads((await answered(claude, MemoryHost())).text)


async def test_an_old_version_is_called_so(claude: ProgramHarness) -> None:
    claude.env = {"STUB_UNKNOWN_FLAG": "--permission-mode"}
    claude.play(Say(("never",)))
    end = await answered(claude, MemoryHost())
    assert (end.code, end.permanent) == ("program_too_old", True)
    assert "npm install" in end.error


# -- its provider ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, word, code, permanent",
    [
        (401, "authentication_failed", "auth_failed", True),
        (403, "authentication_failed", "auth_failed", True),
        (402, "billing_error", "quota_exceeded", True),
        (429, "rate_limit", "rate_limited", False),
        (529, "server_error", "server_error", False),
        (500, "unknown", "server_error", False),
        (404, "invalid_request", "model_not_found", True),
        (400, "invalid_request", "request_rejected", True),
    ],
)
async def test_a_refusal_of_the_provider_is_typed_and_is_no_answer(
    claude: ProgramHarness, status: int, word: str, code: str, permanent: bool
) -> None:
    claude.play({"do": "fail", "text": "no", "status": status, "word": word})
    events = await events_of(claude)
    end = done(events)
    assert (end.outcome, end.code, end.permanent) == ("failed", code, permanent)
    assert not any(isinstance(event, TextDelta) for event in events)


async def test_the_time_at_which_a_limit_ends_is_the_time_of_the_next_try(
    claude: ProgramHarness,
) -> None:
    info = {"status": "rejected", "resetsAt": 4_000_000_000}
    claude.play(
        message(type="rate_limit_event", rate_limit_info=info),
        {"do": "fail", "text": "limit", "status": 429, "word": "rate_limit"},
    )
    end = await answered(claude, MemoryHost())
    assert end.code == "rate_limited"
    assert end.retry_after_s is not None
    assert end.retry_after_s > 1_000_000


_USED_UP = "You've hit your session limit · resets 6:40pm (UTC)"


@pytest.mark.parametrize(
    "step",
    [
        {"do": "fail", "text": _USED_UP, "status": None, "word": ""},
        {"do": "fail", "text": "Claude AI usage limit reached|4000000000", "word": ""},
        Say((_USED_UP,)),
    ],
)
async def test_a_plan_that_is_used_up_is_a_wait_however_claude_says_it(
    claude: ProgramHarness, step: Any
) -> None:
    claude.play(step)
    end = await answered(claude, MemoryHost())
    assert (end.code, end.permanent) == ("rate_limited", False)
    assert end.retry_after_s is not None
    assert end.retry_after_s >= 60


async def test_an_answer_about_limits_is_an_answer(claude: ProgramHarness) -> None:
    said = f"The file says: {_USED_UP}"
    claude.play(Say((said,)))
    assert (await answered(claude, MemoryHost())).text == said


def retry(attempt: int, status: int | None) -> dict[str, Any]:
    return message(
        type="system",
        subtype="api_retry",
        attempt=attempt,
        retry_delay_ms=4000,
        error_status=status,
        error="unknown",
    )


async def test_a_provider_that_comes_back_is_told_once(claude: ProgramHarness) -> None:
    claude.play(retry(1, 529), retry(2, 529), Say(("there",)))
    events = await events_of(claude)
    assert done(events).text == "there"
    assert len([event for event in events if isinstance(event, EngineNotice)]) == 1


@pytest.mark.parametrize(
    "status, code", [(None, "connection"), (529, "server_error"), (429, "rate_limited")]
)
async def test_a_provider_that_stays_away_ends_the_turn(
    claude: ProgramHarness, status: int | None, code: str
) -> None:
    claude.play(*(retry(number, status) for number in range(1, 5)), Hang())
    end = await answered(claude, MemoryHost())
    assert (end.code, end.permanent) == (code, False)
    assert end.retry_after_s in {None, 4.0}


async def test_a_key_that_is_refused_is_not_tried_again(claude: ProgramHarness) -> None:
    claude.play(retry(1, 401), Hang())
    assert (await answered(claude, MemoryHost())).code == "auth_failed"


@pytest.mark.parametrize(
    "subtype, name, code",
    [
        ("error_max_turns", "max_steps", "turn_limit"),
        ("error_max_budget_usd", "budget", "limit_reached"),
    ],
)
async def test_a_limit_of_the_turn_is_named(
    claude: ProgramHarness, subtype: str, name: str, code: str
) -> None:
    claude.play(message(type="result", subtype=subtype, is_error=True, total_cost_usd=0.5))
    events = await events_of(claude)
    assert done(events).code == code
    assert (done(events).engine_state is not None) == (code == "turn_limit"), "it can go on"
    assert name in done(events).error
    assert [event.usd for event in events if isinstance(event, Usage)] == [0.5]


@pytest.mark.parametrize(
    "said, code",
    [
        # claude-code#79685, #38813, #55469
        ("Failed to authenticate: OAuth session expired and could not be refreshed", "auth_failed"),
        ("OAuth token has expired. Please obtain a new token.", "auth_failed"),
        ("Invalid API key · Fix external API key", "auth_failed"),
        ("Credit balance is too low", "quota_exceeded"),
    ],
)
async def test_a_sentence_about_the_account_is_known(
    claude: ProgramHarness, said: str, code: str
) -> None:
    claude.play(message(type="result", subtype="success", is_error=True, result=said))
    end = await answered(claude, MemoryHost())
    assert (end.outcome, end.code) == ("failed", code)
    assert said in end.error


# -- what is told ----------------------------------------------------------------------------------


async def test_cost_is_told_and_tokens_are_counted_once(claude: ProgramHarness) -> None:
    claude.play(Use("add", {"a": 1, "b": 1}), Say(("two",)))
    used = [event for event in await events_of(claude) if isinstance(event, Usage)]
    assert sum(event.input_tokens for event in used) == 22
    assert sum(event.output_tokens for event in used) == 14
    assert [event.usd for event in used if event.usd is not None] == [0.25]


async def test_a_cancelled_turn_is_paid_for(claude: ProgramHarness) -> None:
    claude.play(Say(("first", "second"), every_s=30))
    session = await claude.open(MemoryHost())
    events = []
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        async for event in run:
            events.append(event)
            if isinstance(event, TextDelta):
                session.cancel()
    await session.close()
    assert done(events).outcome == "cancelled"
    assert [event.usd for event in events if isinstance(event, Usage)][-1] == 0.25


async def test_texts_of_two_steps_are_set_apart(claude: ProgramHarness) -> None:
    claude.play({"do": "say", "chunks": ["I try."], "last_words": False}, Say(("Done", ".")))
    events = await events_of(claude)
    assert done(events).text == "I try.\n\nDone."


async def test_the_words_of_a_helper_are_not_the_answer(claude: ProgramHarness) -> None:
    inner = {"id": "i1", "content": [{"type": "text", "text": "inner words"}]}
    claude.play(message(type="assistant", message=inner, parent_tool_use_id="t1"), Say(("outer",)))
    assert (await answered(claude, MemoryHost())).text == "outer"


async def test_an_answer_without_pieces_is_heard_too(claude: ProgramHarness) -> None:
    whole = {"id": "w1", "content": [{"type": "text", "text": "all at once"}]}
    claude.play(
        message(type="assistant", message=whole),
        message(type="result", subtype="success", result="all at once"),
    )
    events = await events_of(claude)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["all at once"]
    assert done(events).text == "all at once"


async def test_silence_without_events_but_with_life_is_no_silence(claude: ProgramHarness) -> None:
    idle_s = await allowing_for_start(claude, 0.8)
    slow = {"do": "use", "tool": "slow", "args": {"seconds": idle_s * 1.5}}
    claude.play(message(type="system", subtype="status"), slow, Say(("fine",)))
    session = await claude.open(MemoryHost(), SegmentLimits(idle_s=idle_s))
    assert done(await collect(session, segment())).text == "fine"
    await session.close()
