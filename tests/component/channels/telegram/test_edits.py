"""What an edit does: it corrects what waits, repeats nothing, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.messages import Completion
from agentsup.mailbox.work import Work
from agentsup.model.engine import Suspended
from agentsup.model.errors import StoreUnavailable
from agentsup.model.message import MessageOutcome
from tests.component.channels.telegram.fixture import TelegramFixture, rigged
from tests.support.bound import BOUND_S


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        yield rig


async def test_an_edit_without_another_text_runs_no_command_again(rig: TelegramFixture) -> None:
    """The platform tells edits that no person made, such as of a link's preview."""
    await rig.start()
    message_id = await rig.people.say(rig.chat, "/ping x")
    await rig.people.wait_text(rig.chat, "pong x")
    await rig.people.edit(rig.chat, message_id, "/ping x")
    await rig.people.say(rig.chat, "next")
    await rig.people.wait_text(rig.chat, "echo: next")
    await rig.settled()
    assert rig.ran == ["ping x"]
    assert await rig.states() == {"done": 2, "skipped": 1}


async def test_a_command_that_was_corrected_runs(rig: TelegramFixture) -> None:
    await rig.start()
    message_id = await rig.people.say(rig.chat, "/pnig x")
    await rig.people.edit(rig.chat, message_id, "/ping x")
    await rig.people.wait_text(rig.chat, "pong x")
    await rig.people.edit(rig.chat, message_id, "/ping x")
    await rig.people.say(rig.chat, "next")
    await rig.people.wait_text(rig.chat, "echo: next")
    await rig.settled()
    assert rig.ran == ["ping x"]


async def test_an_edit_without_another_text_is_no_second_answer(rig: TelegramFixture) -> None:
    async def ask(work: Work) -> None:
        message = work.lease.message
        asked = [
            q for q in await rig.mailbox.questions.list(None) if q.message_id == message.message_id
        ]
        if asked or "ask" not in message.text:
            rig.agent.seen.append(("", message.text, ()))
            await rig.mailbox.leases.complete(
                work.lease, Completion(MessageOutcome.OK, text="the turn went on")
            )
            return
        question = Suspended(b"", "Shall I?", ("yes", "no"), timeout_s=3600.0)
        await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, work.lease, question))

    rig.agent.handle = ask  # type: ignore[method-assign]
    await rig.start()
    await rig.people.say(rig.chat, "ask me")
    await rig.people.wait_text(rig.chat, "Shall I?")
    shown = "SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'delivered'"
    async with asyncio.timeout(BOUND_S):
        while not await rig.rows(shown):
            await asyncio.sleep(0.01)
    message_id = await rig.people.say(rig.chat, "yes")
    await rig.people.wait_text(rig.chat, "the turn went on")
    await rig.people.edit(rig.chat, message_id, "yes")
    await rig.people.say(rig.chat, "next")
    async with asyncio.timeout(BOUND_S):
        while "next" not in rig.agent.texts:
            await asyncio.sleep(0.01)
    assert rig.agent.texts == ["ask me", "next"]


async def test_an_edit_of_what_was_said_before_a_question_does_not_answer_it(
    rig: TelegramFixture,
) -> None:
    async def ask(work: Work) -> None:
        if "ask" not in work.lease.message.text:
            await rig.mailbox.leases.complete(
                work.lease, Completion(MessageOutcome.OK, text="well")
            )
            return
        question = Suspended(b"", "Shall I?", ("yes", "no"), timeout_s=3600.0)
        await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, work.lease, question))

    rig.agent.handle = ask  # type: ignore[method-assign]
    await rig.start()
    message_id = await rig.people.say(rig.chat, "yse")
    await rig.people.wait_text(rig.chat, "well")
    await rig.people.say(rig.chat, "ask me")
    await rig.people.wait_text(rig.chat, "Shall I?")
    shown = "SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'delivered'"
    async with asyncio.timeout(BOUND_S):
        while not await rig.rows(shown):
            await asyncio.sleep(0.01)
    await rig.people.edit(rig.chat, message_id, "yes")
    await rig.updates_done(3)
    assert await rig.rows("SELECT state FROM questions") == [("open",)]


async def test_a_store_that_fails_in_an_edit_leaves_no_old_text(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "first")
    second = await rig.people.say(rig.chat, "delete a")
    await rig.updates_done(2)
    real, failures = rig.database.write, 0

    async def write(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        nonlocal failures
        if name == "telegram.edit" and failures < 1:
            failures += 1
            raise StoreUnavailable("the disk is full", reason="full")
        return await real(fn, *args, name=name, **more)

    monkeypatch.setattr(rig.database, "write", write)
    await rig.people.edit(rig.chat, second, "delete b")
    await rig.updates_done(3)
    rig.agent.gate.set()
    await rig.settled()
    assert failures == 1
    assert rig.agent.texts == ["first", "delete b"]


async def test_a_corrected_caption_leaves_the_rest_of_the_album(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "first")
    ids = [
        await rig.people.send_file(
            rig.chat, b"x", name=f"{n}.txt", caption=f"caption {n}", media_group_id="a"
        )
        for n in range(3)
    ]
    await rig.updates_done(4)
    await rig.people.edit(rig.chat, ids[1], "caption one corrected")
    await rig.updates_done(5)
    await rig.people.edit(rig.chat, ids[2], "caption two corrected")
    await rig.updates_done(6)
    rig.agent.gate.set()
    await rig.settled()
    assert rig.agent.texts == ["first", "caption 0\ncaption one corrected\ncaption two corrected"]
    assert [part.type for part in rig.agent.seen[1][2]].count("file") == 3
