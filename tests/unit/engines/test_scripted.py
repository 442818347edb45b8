"""The scripted engine: each step does what the script says."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines import EngineCrash
from agentsup.engines.guard import GuardedSession, SegmentLimits, open_guarded
from agentsup.engines.scripted.engine import NO_MODEL, ScriptedEngine
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.proctable import members
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    FileOut,
    Resume,
    Suspended,
    Usage,
)
from agentsup.model.message import Part
from tests.support.engine_host import MemoryHost, segment


async def open_session(
    tmp_path: Path,
    rules: Any = None,
    *,
    host: EngineHost | None = None,
    engine: ScriptedEngine | None = None,
    options: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> GuardedSession:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    spec = EngineSpec(
        "scripted",
        options=options if options is not None else {"rules": rules},
        home=str(tmp_path),
        workspace=str(workspace),
        env=child_env(extra=env or {}),
    )
    made = engine or ScriptedEngine(SystemClock())
    return await open_guarded(made, spec, host or MemoryHost(), limits=SegmentLimits(cancel_s=1.5))


async def collect(session: GuardedSession, text: str = "hi", **more: Any) -> list[EngineEvent]:
    async with aclosing(session.run(segment(text, **more))) as run:
        events = [event async for event in run]
    await session.close()
    return events


def done(events: list[EngineEvent]) -> EngineDone:
    end = events[-1]
    assert isinstance(end, EngineDone), end
    return end


async def test_without_a_script_it_says_so_and_repeats_the_text(tmp_path: Path) -> None:
    text = "what about $1 and $result?\nsecond line"
    for options in ({}, {"rules": [{"match": "other", "steps": [{"say": "x"}]}]}):
        end = done(await collect(await open_session(tmp_path, options=options), text))
        assert end.text == NO_MODEL + text
        assert end.outcome == "ok"


async def test_the_envelope_is_not_matched(tmp_path: Path) -> None:
    session = await open_session(tmp_path, [{"match": "hello", "steps": [{"say": "yes"}]}])
    events = await collect(session, "hello", prompt="[from agent bob] hello")
    assert done(events).text == "yes"


async def test_a_file_that_came_is_a_line_of_the_text(tmp_path: Path) -> None:
    rules = [
        {
            "match": r"keep\n\[file: (.+) \((.+)\)\]",
            "steps": [{"say": "$2 is at $1"}],
        },
        {"match": r"\[file: (.+)\]", "steps": [{"say": "only $1"}]},
    ]
    named = Part("file", path="inbox/1-a.txt", name="a.txt")
    for text, part, answer in (
        ("keep", named, "a.txt is at inbox/1-a.txt"),
        ("", Part("file", path="inbox/2"), "only inbox/2"),
    ):
        events = await collect(await open_session(tmp_path, rules), text, parts=(part,))
        assert done(events).text == answer


async def test_groups_and_the_last_result_are_filled_in(tmp_path: Path) -> None:
    async def shout(args: dict[str, Any]) -> str:
        return str(args["text"][0]).upper()

    rules = [
        {
            "match": r"ask (\w+) about (.+)",
            "steps": [
                {"tool": {"name": "shout", "args": {"text": ["$2 $1"]}}},
                {"say": "$1 says $result"},
            ],
        }
    ]
    session = await open_session(tmp_path, rules, host=MemoryHost({"shout": shout}))
    assert done(await collect(session, "ask bob about tea")).text == "bob says TEA BOB"


async def test_crash_escapes_and_fail_does_not(tmp_path: Path) -> None:
    session = await open_session(tmp_path, [{"match": "(.*)", "steps": [{"crash": "boom $1"}]}])
    with pytest.raises(EngineCrash, match="boom hi"):
        await collect(session)
    await session.close()
    session = await open_session(tmp_path, [{"match": ".*", "steps": [{"fail": "no ink"}]}])
    end = done(await collect(session))
    assert (end.outcome, end.error, end.permanent) == ("failed", "no ink", True)


async def test_exit_lets_the_answer_finish_first(tmp_path: Path) -> None:
    steps = [{"say": "bye"}, {"exit": 42}, {"say": "!"}]
    end = done(await collect(await open_session(tmp_path, [{"match": ".*", "steps": steps}])))
    assert (end.outcome, end.text, end.exit_code) == ("ok", "bye!", 42)


async def test_an_exit_before_a_question_is_remembered(tmp_path: Path) -> None:
    steps = [{"exit": 42}, {"question": {"text": "sure?", "timeout": 5}}, {"say": "[$result]"}]
    rules = [{"match": ".*", "steps": steps}]
    parked = (await collect(await open_session(tmp_path, rules)))[-1]
    assert isinstance(parked, Suspended)
    assert parked.timeout_s == 5
    resume = Resume(checkpoint=parked.checkpoint, answer=None)
    end = done(await collect(await open_session(tmp_path, []), resume=resume))
    assert (end.text, end.exit_code) == ("[]", 42)


async def test_text_before_a_question_is_part_of_the_answer(tmp_path: Path) -> None:
    steps = [{"say": "before "}, {"question": {"text": "?"}}, {"say": "after"}]
    parked = (await collect(await open_session(tmp_path, [{"match": ".*", "steps": steps}])))[-1]
    assert isinstance(parked, Suspended)
    resume = Resume(checkpoint=parked.checkpoint, answer="yes")
    assert (
        done(await collect(await open_session(tmp_path, []), resume=resume)).text == "before after"
    )


async def test_usage_and_file(tmp_path: Path) -> None:
    steps = [{"usage": {"input": 3, "output": 4, "usd": 0.25}}, {"file": "out/a.txt"}]
    events = await collect(await open_session(tmp_path, [{"match": ".*", "steps": steps}]))
    assert events[:2] == [Usage(3, 4, 0.25), FileOut("out/a.txt")]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/x", "", "."])
@pytest.mark.parametrize("step", ["file", "effect"])
async def test_paths_outside_the_workspace_are_refused(
    tmp_path: Path, step: str, path: str
) -> None:
    session = await open_session(tmp_path, [{"match": ".*", "steps": [{step: path}]}])
    (tmp_path / "workspace" / "link").symlink_to(tmp_path)
    end = done(await collect(session))
    assert end.outcome == "failed"
    assert "inside the workspace" in end.error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["workspace"]


async def test_an_effect_is_done_once_even_when_the_turn_is_run_again(tmp_path: Path) -> None:
    rules = [{"match": ".*", "steps": [{"effect": "log/effects"}, {"say": "ok"}]}]
    host = MemoryHost()
    for _ in range(2):
        host.rewind()
        session = await open_session(tmp_path, rules, host=host)
        assert done(await collect(session, message_id="msg_7")).text == "ok"
    assert (tmp_path / "workspace/log/effects").read_text() == "msg_7\n"


async def test_an_effect_that_fails_fails_the_turn(tmp_path: Path) -> None:
    session = await open_session(tmp_path, [{"match": ".*", "steps": [{"effect": "dir"}]}])
    (tmp_path / "workspace" / "dir").mkdir()
    end = done(await collect(session))
    assert end.outcome == "failed"
    assert "effect" in end.error


# -- the script file -------------------------------------------------------------------------------


async def test_the_script_is_read_again_when_it_changed(tmp_path: Path) -> None:
    engine = ScriptedEngine(SystemClock())
    file = tmp_path / "rules.yaml"
    options = {"script": "file:rules.yaml"}
    for word in ("one", "three", "five!"):
        file.write_text(f"- {{match: '.*', steps: [say: '{word}']}}")
        for _ in range(2):
            session = await open_session(tmp_path, engine=engine, options=options)
            assert done(await collect(session)).text == word


async def test_a_missing_or_broken_script_is_a_clear_failure(tmp_path: Path) -> None:
    options = {"script": "file:rules.yaml"}
    end = done(await collect(await open_session(tmp_path, options=options)))
    assert (end.code, end.permanent) == ("script_invalid", True)
    assert str(tmp_path / "rules.yaml") in end.error
    (tmp_path / "rules.yaml").write_text("- match: x\n  steps:\n  - sey: b")
    end = done(await collect(await open_session(tmp_path, options=options)))
    assert "rules.yaml:3" in end.error
    assert "step 1" in end.error


async def test_a_script_edited_during_a_question_does_not_change_the_rest(tmp_path: Path) -> None:
    steps = [{"question": {"text": "?"}}, {"say": "old $result"}]
    parked = (await collect(await open_session(tmp_path, [{"match": ".*", "steps": steps}])))[-1]
    assert isinstance(parked, Suspended)
    new = [{"match": ".*", "steps": [{"say": "new"}]}]
    resume = Resume(checkpoint=parked.checkpoint, answer="yes")
    assert done(await collect(await open_session(tmp_path, new), resume=resume)).text == "old yes"


# -- steps that must be stopped --------------------------------------------------------------------


async def test_hang_ignores_cancellation_until_it_is_forced(tmp_path: Path) -> None:
    rules = [{"match": ".*", "steps": [{"say": "x"}, {"hang": True}]}]
    session = await open_session(tmp_path, rules)
    run = session.run(segment())
    await anext(run)
    session.cancel(within_s=0.05)
    end = [event async for event in run][-1]
    assert isinstance(end, EngineDone)
    assert end.outcome == "cancelled"
    hanging = [t for t in asyncio.all_tasks() if t.get_name() == "engine:msg_1"]
    assert len(hanging) == 1
    await session.close()
    assert hanging[0].done()


class Watching(MemoryHost):
    """Tells when a group was recorded and when it began to work."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = asyncio.Event()
        self.members_at_record: list[int] = []

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await asyncio.sleep(0.05)
        self.members_at_record = members(pgid)
        await super().spawned(pgid, started_ticks, argv0)
        self.recorded.set()


async def _until_tree(pgid: int) -> list[int]:
    while len(members(pgid)) < 2:
        await asyncio.sleep(0.005)
    return members(pgid)


async def test_spawn_is_recorded_before_it_works_and_is_a_tree(tmp_path: Path) -> None:
    host = Watching()
    rules = [{"match": ".*", "steps": [{"spawn": 0.3}, {"say": "done"}]}]
    session = await open_session(tmp_path, rules, host=host, env={"AGENTSUP_AGENT": "bob"})
    task = asyncio.create_task(collect(session))
    await host.recorded.wait()
    (pgid,) = host.groups
    assert host.members_at_record == [pgid]
    tree = await _until_tree(pgid)
    assert len(tree) == 2
    for pid in tree:
        assert b"AGENTSUP_AGENT=bob" in Path(f"/proc/{pid}/environ").read_bytes()
        ignored = next(
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if "SigIgn" in line
        )
        assert int(ignored.split()[1], 16) & (1 << 14), "SIGTERM is ignored"
    assert done(await task).text == "done"
    assert host.reaped_groups == [pgid]
    assert members(pgid) == []


async def test_a_cancelled_spawn_is_killed_whole_and_in_time(tmp_path: Path) -> None:
    host = Watching()
    rules = [{"match": ".*", "steps": [{"spawn": 60}]}]
    session = await open_session(tmp_path, rules, host=host)
    task = asyncio.create_task(collect(session))
    await host.recorded.wait()
    (pgid,) = host.groups
    await _until_tree(pgid)
    began = asyncio.get_running_loop().time()
    session.cancel()
    assert done(await task).outcome == "cancelled"
    assert 0.4 < asyncio.get_running_loop().time() - began < 3
    assert members(pgid) == []
    assert host.reaped_groups == [pgid]


async def test_a_spawn_whose_record_fails_never_works(tmp_path: Path) -> None:
    class Refusing(MemoryHost):
        async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
            self.groups[pgid] = argv0
            raise OSError("disk full")

    host = Refusing()
    session = await open_session(tmp_path, [{"match": ".*", "steps": [{"spawn": 60}]}], host=host)
    assert done(await collect(session)).outcome == "failed"
    assert members(host.reaped_groups[0]) == []
