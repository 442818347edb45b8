"""Who may have work done in whose place, and what a model reads of it."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.agents.delegation import service, texts
from agentsup.agents.delegation.fan_out import wait_all
from agentsup.agents.persona import prompt
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import LeaseLost
from agentsup.model.ids import AgentId
from agentsup.model.task import Run, RunKind
from agentsup.tasks import RunReport


def run(**facts: object) -> Run:
    given = {
        "run_id": "msg_1",
        "task_id": "",
        "run_no": 1,
        "kind": RunKind.SPAWN,
        "agent_id": AgentId("agt_1"),
        "target": "",
        "label": "",
        "parent_message_id": "",
        "root_id": "",
        "depth": 1,
        "slot_at": None,
        "state": "done",
        "outcome": "ok",
        "created_at": 0,
        **facts,
    }
    return Run(**given)  # type: ignore[arg-type]  # a row for the test


@pytest.mark.parametrize(
    "listed, own, theirs, allowed",
    [
        (None, "", "", True),
        (None, "planner", "", True),
        (None, "Planner", "planner", True),
        (None, "", "vault", False),
        (None, "planner", "vault", False),
        (("ben",), "planner", "vault", True),
        (("BEN",), "", "", True),
        (("cat",), "", "", False),
        ((), "", "", False),
    ],
)
def test_an_agents_place(
    listed: tuple[str, ...] | None, own: str, theirs: str, *, allowed: bool
) -> None:
    caller = AgentSpec("ann", can_delegate_to=listed)
    why = service.why_not_agent(caller, own, AgentSpec("ben", role=theirs or None))
    assert (not why) is allowed
    if why:
        names = ", ".join(f'"{each}"' for each in (*(listed or ()), "ben"))
        assert f'"can_delegate_to": [{names}] into the entry of ann' in why


@pytest.mark.parametrize(
    "listed, own, wanted, allowed",
    [
        (None, "", "vault", True),
        (None, "vault", "Vault", True),
        (None, "planner", "vault", False),
        (("ben",), "planner", "vault", False),
        (("vault",), "planner", "vault", True),
        ((), "", "vault", True),
    ],
)
def test_a_role(listed: tuple[str, ...] | None, own: str, wanted: str, *, allowed: bool) -> None:
    caller = AgentSpec("ann", can_delegate_to=listed)
    assert (not service.why_not_role(caller, own, wanted)) is allowed


@pytest.mark.parametrize(
    "text, expected",
    [
        ("all of it", "all of it"),
        ("a\n# SUMMARY\nb\nc\n### next\nd", "b\nc"),
        ("# Summary of all\nb\n## summary ##\nc", "c"),
        ("Summary\nb", "Summary\nb"),
        ("## Summary\n", ""),
    ],
)
def test_the_summary_of_an_answer(text: str, expected: str) -> None:
    assert texts.summary_of(text) == expected


@pytest.mark.parametrize("text", ["# a" + " " * 50_000 + "x", "# " * 50_000, "# a" + "#" * 50_000])
def test_an_answer_made_to_be_slow_is_not(text: str) -> None:
    """The loop waits for this, so its cost must not grow faster than the answer."""
    assert len(texts.summary_of(text)) == texts.SUMMARY_CHARS


def test_what_is_too_long_is_cut_and_marked() -> None:
    long = texts.summary_of("# Summary\n" + "x" * 5000)
    assert len(long) == texts.SUMMARY_CHARS
    assert long.endswith("… [cut: 5000 characters in all]")
    assert texts.cut("x" * 10, 10) == "x" * 10


def test_a_run_that_has_ended_says_nothing_of_what_held_it_up() -> None:
    ended = RunReport(run(result="ok"), "done", "blocked_waiting_approval", "q_1", "may I?")
    assert texts.wait_result(ended) == {
        "agent_id": "msg_1",
        "status": "completed",
        "result": "ok",
        "error": "",
    }
    waiting = RunReport(run(state="parked"), "waiting", "blocked_waiting_approval", "q_1", "may I?")
    assert texts.wait_result(waiting) == {
        "agent_id": "msg_1",
        "status": "running",
        "timeout": True,
        "runtime_condition": "blocked_waiting_approval",
        "blocked_reason": "may I?",
        "grant_request_id": "q_1",
    }
    assert texts.wait_result(RunReport(run(state="queued"), "queued"))["status"] == "spawned"
    failed = RunReport(run(outcome="failed", error_text="no model"), "failed")
    assert texts.record(failed, 100, task=1) == {
        "task": 1,
        "run_id": "msg_1",
        "ok": False,
        "status": "failed",
        "error": "no model",
    }


def test_answers_of_several_share_the_room() -> None:
    text = texts.blocks([("ben", "b" * 9000, "msg_1"), ("cat", "short", "")], 2000)
    assert len(text) <= 2000
    assert 'result_read(ref="msg_1", offset=' in text
    assert "## ben\n\nbbb" in text
    assert text.endswith("## cat\n\nshort")


def test_only_what_is_offered_is_told() -> None:
    assert prompt.delegation_notes(("fs_list",)) == ""
    told = prompt.delegation_notes(("delegate_task", "task_create"))
    assert "- delegate_task has a task done for you" in told
    assert "agent_spawn" not in told


async def test_what_fails_among_several_is_raised_as_it_is() -> None:
    ended: list[str] = []

    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("other")
        return ""

    async def fails() -> str:
        raise LeaseLost("the turn was stopped")

    with pytest.raises(LeaseLost):
        await wait_all([("a", waits()), ("b", fails())])
    assert ended == ["other"]


async def test_results_come_in_order() -> None:
    async def after(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert await wait_all((str(n), after(n)) for n in (3, 1, 2)) == [3, 1, 2]
