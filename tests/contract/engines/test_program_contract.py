"""What every engine keeps whose thinking is done by a child process."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.failures import EnginesBusy, NotConfigured, OutOfMemory
from agentsup.engines.guard import GuardedSession, SegmentLimits
from agentsup.engines.process import ProcessLauncher, ProcessLimits, Program, ProgramHome, process
from agentsup.kit import proctable
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.outbound.limits import values_in
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineSpec,
    Segment,
    TextDelta,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import StoreUnavailable
from tests.contract.engines.conftest import Fail, Hang, ProgramHarness, Say, Use, collect, done
from tests.support import escapee
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment

SECRET = "sk-very-secret-value"


def living() -> set[int]:
    """Living processes that descend from this one."""
    return {row.pid for row in proctable.descendants([os.getpid()]) if row.is_alive}


async def cancelled_at_text(session: GuardedSession, given: Segment) -> EngineDone:
    """Cancel at the first text; the end. Who does not stop by itself is left behind, and logged."""
    events: list[EngineEvent] = []
    async with aclosing(session.run(given)) as run, asyncio.timeout(BOUND_S):
        async for event in run:
            events.append(event)
            if isinstance(event, TextDelta):
                session.cancel(within_s=BOUND_S / 2)
    return done(events)


async def look(rig: ProgramHarness, what: str, **segments: Any) -> Any:
    """What the program sees of its surroundings."""
    rig.play({"do": "look", "what": what}, Say(("$result",)))
    session = await rig.open(MemoryHost())
    end = done(await collect(session, segment(**segments)))
    await session.close()
    return json.loads(end.text)


# -- the end of a program ------------------------------------------------------------------------------


async def test_what_is_said_after_the_end_is_left_out(program: ProgramHarness) -> None:
    program.play(Say(("all",)))
    session = await program.open(MemoryHost())
    assert done(await collect(session, segment())).text == "all"
    await session.close()


@pytest.mark.parametrize("code", [42, 53, 1])
async def test_an_exit_code_is_a_failure_and_never_a_restart(
    program: ProgramHarness, code: int
) -> None:
    program.play(
        Use("add", {"a": 1, "b": 1}),
        {"do": "stderr", "last": "the last word"},
        {"do": "exit", "code": code},
    )
    session = await program.open(MemoryHost())
    events = await collect(session, segment())
    end = done(events)
    assert (end.outcome, end.code, end.exit_code) == ("failed", "program_ended", None)
    assert f"exit code {code}" in end.error
    assert "the last word" in end.error
    assert sum(event.input_tokens for event in events if isinstance(event, Usage)) == 11
    await session.close()


async def test_an_end_without_an_answer_is_a_failure(program: ProgramHarness) -> None:
    program.play({"do": "exit", "code": 0})
    session = await program.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert end.outcome == "failed"
    assert end.error
    await session.close()


async def test_a_crash_in_the_middle_keeps_what_was_said(program: ProgramHarness) -> None:
    program.play({"do": "say", "chunks": ["half"], "last_words": False}, {"do": "kill"})
    session = await program.open(MemoryHost())
    events = await collect(session, segment())
    end = done(events)
    assert (end.outcome, end.code, end.text) == ("failed", "program_ended", "half")
    assert "signal 9" in end.error
    assert sum(event.input_tokens for event in events if isinstance(event, Usage)) == 11
    await session.close()


async def test_cancel_ends_the_whole_family(
    program: ProgramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    before = living()
    program.play({"do": "family"}, Say(("first", "second"), every_s=3 * BOUND_S))
    host = MemoryHost()
    session = await program.open(host)
    end = await cancelled_at_text(session, segment())
    assert (end.outcome, end.text) == ("cancelled", "first")
    assert living() <= before
    assert host.groups == {}
    assert "left behind" not in caplog.text
    await session.close()


async def test_a_program_that_ignores_term_is_gone_in_time(
    program: ProgramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    program.play({"do": "ignore_term"}, Say(("first", "second"), every_s=3 * BOUND_S))
    host = MemoryHost()
    session = await program.open(host)
    end = await cancelled_at_text(session, segment())
    assert end.outcome == "cancelled"
    assert host.groups == {}
    assert "left behind" not in caplog.text
    await session.close()


async def test_silence_ends_the_program_too(program: ProgramHarness) -> None:
    before = living()
    program.play({"do": "ignore_term"}, Hang())
    session = await program.open(MemoryHost(), SegmentLimits(idle_s=0.5))
    assert done(await collect(session, segment())).code == "turn_timed_out"
    await session.close()
    assert living() <= before


# -- what it writes --------------------------------------------------------------------------------


async def test_a_line_over_the_limit_ends_the_turn(program: ProgramHarness) -> None:
    program.play({"do": "huge", "bytes": 17 * 1024 * 1024}, Say(("never",)))
    session = await program.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert (end.outcome, end.code) == ("failed", "output_too_long")
    await session.close()


async def test_a_long_line_is_read(program: ProgramHarness) -> None:
    program.play(Say(("x" * 900_000,)))
    session = await program.open(MemoryHost())
    assert len(done(await collect(session, segment())).text) == 900_000
    await session.close()


@pytest.mark.parametrize(
    "line",
    [
        "Warning: hm\n",
        "{half\n",
        "\n",
        "[1]\n",
        '{"type": 3}\n',
        '{"type": "later"}\n',
        "\xff\xfe\n",
    ],
)
async def test_lines_that_are_no_events_are_left_out(program: ProgramHarness, line: str) -> None:
    program.play({"do": "raw", "text": line}, Say(("fine",)))
    session = await program.open(MemoryHost())
    assert done(await collect(session, segment())).text == "fine"
    await session.close()


async def test_a_flood_of_errors_does_not_stop_the_program(program: ProgramHarness) -> None:
    program.play({"do": "stderr", "bytes": 2_000_000}, Say(("fine",)))
    session = await program.open(MemoryHost())
    assert done(await collect(session, segment())).text == "fine"
    await session.close()


async def test_quoted_errors_are_clean_short_and_without_secrets(program: ProgramHarness) -> None:
    program.env = {"MY_KEY": SECRET}
    last = f"\x1b[31mkey {SECRET} and run-token-1\x1b[0m\x00 \u202eoh"
    program.play({"do": "stderr", "bytes": 200_000, "last": last}, {"do": "exit", "code": 3})
    session = await program.open(MemoryHost())
    error = done(await collect(session, segment())).error
    await session.close()
    assert error.endswith("key *** and *** oh")
    assert len(error) < 2200


# -- where it runs ---------------------------------------------------------------------------------


async def test_the_environment_is_the_allowed_one(
    program: ProgramHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_SECRET", SECRET)
    program.env = {"MY_KEY": "mine"}
    env = await look(program, "env")
    assert SECRET not in str(env)
    assert env["MY_KEY"] == "mine"
    assert env["AGENTSUP_TOKEN"] == "run-token-1"
    assert env["HOME"] == str(program.home)
    assert Path(env["XDG_CONFIG_HOME"]).is_relative_to(program.home)
    assert program.home.stat().st_mode & 0o077 == 0


async def test_the_users_own_home_is_given_on_request(
    program: ProgramHarness, tmp_path: Path
) -> None:
    program.options = {"home": "user"}
    program.spec = {"env": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}}
    assert (await look(program, "env"))["HOME"] == str(tmp_path)


async def test_it_runs_in_the_workspace(program: ProgramHarness) -> None:
    assert await look(program, "cwd") == str(program.workspace)


async def test_no_prompt_and_no_secret_stands_in_the_arguments(program: ProgramHarness) -> None:
    program.env = {"MY_KEY": SECRET}
    seen = await look(program, "cmdline", text="WORDS-OF-A-PERSON", system="STANDING-WORDS")
    assert program.name in seen
    for word in ("WORDS-OF-A-PERSON", "STANDING-WORDS", SECRET, "run-token-1"):
        assert word not in seen
    assert await look(program, "prompt", text="WORDS-OF-A-PERSON") == "WORDS-OF-A-PERSON"


async def test_it_works_only_after_it_was_recorded(program: ProgramHarness, tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    class Slow(MemoryHost):
        async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert not trace.exists()
            await super().spawned(pgid, started_ticks, argv0)

    program.play({"do": "effect", "path": str(trace)}, Say(("done",)))
    host = Slow()
    session = await program.open(host)
    assert done(await collect(session, segment())).text == "done"
    assert trace.exists()
    assert len(host.reaped_groups) == 1
    await session.close()


async def test_a_cancelled_end_takes_the_record_along(tmp_path: Path) -> None:
    begun = asyncio.Event()

    class Slow(MemoryHost):
        async def reaped(self, pgid: int) -> None:
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()  # a write that waits for the store
            await super().reaped(pgid)

    host, launcher = Slow(), ProcessLauncher(SystemClock())
    spec = EngineSpec("command", workspace=str(tmp_path), agent="ada")

    async def run() -> None:
        home = ProgramHome(tmp_path / "home")
        async with launcher.open(Program(["true"], child_env(), home), spec, host):
            pass

    task = asyncio.create_task(run())
    async with asyncio.timeout(BOUND_S):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert host.groups == {}
    await launcher.close()


async def test_what_can_not_be_recorded_does_not_run(
    program: ProgramHarness, tmp_path: Path
) -> None:
    trace, before = tmp_path / "trace", living()

    class Full(MemoryHost):
        async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
            raise StoreUnavailable("the disk is full")

        async def reaped(self, pgid: int) -> None:
            pass

    program.play({"do": "effect", "path": str(trace)}, Say(("done",)))
    session = await program.open(Full())
    with pytest.raises(StoreUnavailable):
        await collect(session, segment())
    await session.close()
    assert not trace.exists()
    assert living() <= before


async def test_a_program_that_is_not_there_is_named_with_the_remedy(
    program: ProgramHarness,
) -> None:
    program.options = {"command": ["no-such-program"]}
    session = await program.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert (end.code, end.permanent) == ("program_not_installed", True)
    assert "no-such-program" in end.error
    assert "install" in end.error
    await session.close()


@pytest.mark.parametrize(
    "options, field",
    [
        ({"comand": ["x"]}, "comand"),
        ({"env": {"A B": "x"}}, "env"),
        ({"memory_mb": -1}, "memory_mb"),
        ({"home": "other"}, "home"),
        ({"command": "one string"}, "command"),
    ],
)
async def test_wrong_options_are_named(
    program: ProgramHarness, options: dict[str, Any], field: str
) -> None:
    program.options = options
    with pytest.raises(NotConfigured, match=rf"engine_options\.{field}"):
        await program.open(MemoryHost())


# -- bounds ----------------------------------------------------------------------------------------


async def test_a_program_over_its_memory_is_ended(tmp_path: Path) -> None:
    rig = ProgramHarness("command", tmp_path, look_s=0.05)
    rig.options = {"memory_mb": 64}
    rig.play({"do": "eat", "mib": 120}, {"do": "hang"})
    session = await rig.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert (end.outcome, end.code) == ("failed", "out_of_memory")
    assert "64 MiB" in end.error
    await session.close()
    await rig.close()


async def test_memory_of_who_left_the_group_counts(tmp_path: Path) -> None:
    tag = str(tmp_path)
    argv = [*escapee.PROGRAM, tag, "linked-eat"]
    manager = ProcessLauncher(SystemClock(), look_s=0.05)
    spec = EngineSpec("command", workspace=str(tmp_path))
    home, limits = ProgramHome(tmp_path / "home"), ProcessLimits(memory_mb=64)
    program = Program(argv, child_env(), home, limits=limits)
    async with manager.open(program, spec, MemoryHost()) as child:
        assert await child.read() == b"they are away\n"
        with pytest.raises(OutOfMemory):
            await child.read()
    assert escapee.escaped(tag) == []
    await manager.close()


async def test_a_closing_daemon_ends_its_programs(tmp_path: Path) -> None:
    before = living()
    rig = ProgramHarness("command", tmp_path)
    rig.play(Say(("first", "second"), every_s=3 * BOUND_S))
    session = await rig.open(MemoryHost())
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        events = []
        async for event in run:
            events.append(event)
            if isinstance(event, TextDelta):
                await rig.children.close()
    assert done(events).outcome == "failed"
    assert not done(events).permanent
    await session.close()
    assert living() <= before


async def test_a_start_waits_for_its_berth_in_bounds(tmp_path: Path) -> None:
    rig = ProgramHarness("command", tmp_path, wait_s=0.2)
    taken = [await rig.children.process_slots.take("ada") for _ in range(4)]
    rig.play(Say(("fine",)))
    session = await rig.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert (end.code, end.permanent) == (EnginesBusy.code, False)
    taken[0].release()
    assert done(await collect(session, segment())).text == "fine"
    assert rig.children.process_slots.running == 3
    await session.close()
    await rig.close()


async def test_a_failure_of_the_provider_keeps_its_sentence(program: ProgramHarness) -> None:
    program.play(Use("echo", {"text": "x"}), Fail("the ink is dry"))
    session = await program.open(MemoryHost())
    events = await collect(session, segment())
    assert any(isinstance(event, ToolStarted) for event in events)
    assert "the ink is dry" in done(events).error
    await session.close()


# -- lines that take long to read ----------------------------------------------------------------------


async def test_a_line_of_a_million_values_ends_the_program_and_holds_up_nobody(
    program: ProgramHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are counted beside the loop, and it is read no further."""
    beside: list[bool] = []

    def count(line: bytes, most: int) -> int:
        beside.append(threading.current_thread() is not threading.main_thread())
        return values_in(line, most)

    monkeypatch.setattr(process, "values_in", count)
    many = '{"type": "odd", "more": [' + "{}," * 1_000_000 + "{}]}\n"
    program.play({"do": "raw", "text": many}, Say(("never heard",)))
    session = await program.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert end.code == "output_too_long"
    assert "JSON values" in end.error
    assert beside == [True]
    await session.close()
