"""Rows that no life of a bot removed go with time, on each platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agentsup.channels.core.live import placeholders
from agentsup.channels.core.live.placeholders import Placeholder
from agentsup.channels.core.retention import retention_rules
from agentsup.channels.matrix import choices, retention, status
from agentsup.channels.matrix.choices import ChoiceCard
from agentsup.channels.matrix.status import SeenReaction
from agentsup.model.principal import SYSTEM
from agentsup.store import prune
from tests.support.mailbox_fixture import MailboxFixture

DAY_S = 86_400
AGENT = "agt_ann"


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    fixture = await MailboxFixture.open(tmp_path)
    yield fixture
    await fixture.close()


async def pruned(mail: MailboxFixture) -> dict[str, int]:
    rules = (*retention_rules(), *retention.retention_rules())
    found = await prune(mail.db, rules, clock=mail.clock, pause_s=0)
    return {table: rows for table, rows in found.items() if rows}


async def put(mail: MailboxFixture, channel: str, message_id: str) -> None:
    row = Placeholder(message_id, "room", "7", mail.clock.now_ms())
    await mail.db.write(
        partial(placeholders.put_tx, channel=channel, agent_id=AGENT, placeholder=row)
    )


@pytest.mark.parametrize("channel", ["telegram", "matrix"])
async def test_a_placeholder_that_no_life_could_remove_is_forgotten(
    mail: MailboxFixture, channel: str
) -> None:
    ended, still_open = await mail.put("ended"), await mail.put("open", conversation="c2")
    for accepted in (ended, still_open):
        await put(mail, channel, accepted.message_id)
    await mail.mailbox.control.cancel(ended.message_id, SYSTEM)
    mail.later(29 * DAY_S)
    assert "placeholders" not in await pruned(mail)
    mail.later(2 * DAY_S)
    assert (await pruned(mail))["placeholders"] == 1
    left = await mail.sql("SELECT message_id FROM placeholders")
    assert left == [(still_open.message_id,)]


async def test_placeholders_of_one_message_on_two_platforms_go_each_by_itself(
    mail: MailboxFixture,
) -> None:
    await put(mail, "telegram", "gone")
    mail.later(31 * DAY_S)
    await put(mail, "matrix", "gone")
    assert await pruned(mail) == {"placeholders": 1}
    assert await mail.sql("SELECT channel FROM placeholders") == [("matrix",)]


async def test_seen_reactions_of_ended_messages_and_old_choices_go(mail: MailboxFixture) -> None:
    parked = await mail.put("open")
    for message_id in ("gone", parked.message_id):
        seen = SeenReaction(message_id, "!r", "$e")
        await mail.db.write(
            partial(status.put_tx, agent_id=AGENT, seen=seen, at=mail.clock.now_ms())
        )
    card = ChoiceCard("$c", "!r", (), "Which?", mail.clock.now_ms())
    await mail.db.write(partial(choices.put_tx, agent_id=AGENT, offer=card))
    assert await pruned(mail) == {}
    mail.later(31 * DAY_S)
    assert await pruned(mail) == {"matrix_eyes": 1, "matrix_cards": 1}
    assert await mail.sql("SELECT message_id FROM matrix_eyes") == [(parked.message_id,)]
