"""Correcting a message that waits: before a turn reads it, and never after."""

from __future__ import annotations

import pytest

from agentsup.mailbox import Mailbox
from agentsup.model.errors import BadRequest, TooLarge
from agentsup.model.message import Accepted, MessageState, Part, text_parts
from agentsup.store import Tx
from tests.support.mailbox_fixture import BOB, MailboxFixture


async def edit(rig: MailboxFixture, message_id: str, text: str) -> bool:
    mailbox: Mailbox = rig.mailbox
    return await rig.db.write(lambda tx: mailbox.queue.edit_tx(tx, message_id, text))


async def test_a_queued_text_is_replaced_and_its_files_stay(rig: MailboxFixture) -> None:
    parts = (*text_parts("helo"), Part("file", path="inbox/a.txt", name="a.txt"))
    accepted = await rig.put(parts=parts)
    assert await edit(rig, accepted.message_id, "hello")
    message = (await rig.one()).message
    assert message.text == "hello"
    assert [part.path for part in message.parts if part.type == "file"] == ["inbox/a.txt"]
    told = await rig.sql(
        "SELECT json_extract(data, '$.text'), conversation FROM events WHERE type = 'chat.edited'"
    )
    assert told == [("hello", "console:c1")]


async def test_what_a_turn_has_begun_stays_as_it_was_read(rig: MailboxFixture) -> None:
    accepted = await rig.put("first")
    lease = await rig.one()
    assert not await edit(rig, accepted.message_id, "other")
    await rig.mailbox.leases.release(lease)
    assert await rig.state_of(accepted.message_id) == MessageState.QUEUED
    assert not await edit(rig, accepted.message_id, "other")
    lease = await rig.one()
    assert lease.message.text == "first"
    await rig.finish(lease)
    assert not await edit(rig, accepted.message_id, "other")


async def test_nothing_else_can_be_edited(rig: MailboxFixture) -> None:
    assert not await edit(rig, "msg_unknown", "x")
    accepted = await rig.put("to be cancelled")
    await rig.mailbox.control.cancel(accepted.message_id, BOB)
    assert not await edit(rig, accepted.message_id, "x")


async def test_a_text_that_can_not_be_stored_changes_nothing(rig: MailboxFixture) -> None:
    accepted = await rig.put("short")
    with pytest.raises(TooLarge):
        await edit(rig, accepted.message_id, "x" * (rig.mailbox.context.limits.max_body_bytes + 1))
    with pytest.raises(BadRequest):
        await edit(rig, accepted.message_id, "\ud800")
    assert (await rig.one()).message.text == "short"


async def test_more_can_be_written_with_an_acceptance_and_goes_with_it(rig: MailboxFixture) -> None:
    def also(tx: Tx, accepted: Accepted) -> None:
        tx.execute("INSERT INTO facts VALUES ('also', ?)", (accepted.message_id,))

    accepted = await rig.mailbox.queue.accept(rig.new("hello"), also=also)
    assert await rig.sql("SELECT value FROM facts WHERE key = 'also'") == [(accepted.message_id,)]

    def fails(tx: Tx, accepted: Accepted) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rig.mailbox.queue.accept(rig.new("lost with it"), also=fails)
    assert await rig.sql("SELECT COUNT(*) FROM messages") == [(1,)]
