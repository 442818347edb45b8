"""To which offer a created bot is bound: to no stranger's, no ended and no uncertain one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest

from agentsup.channels.core.receiving import bot_offers
from agentsup.channels.core.receiving.bot_offers import BOUND, BotRow
from agentsup.model.managed_bots import OFFER_MS, CreatedBot
from tests.support.mailbox_fixture import MailboxFixture

ANN, BOB, ANYBODY = 1001, 1002, 0
T0 = 1_000_000_000


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    fixture = await MailboxFixture.open(tmp_path)
    yield fixture
    await fixture.close()


async def offer(mail: MailboxFixture, agent: str, maker: int, at: int = T0) -> None:
    await mail.db.write(
        lambda tx: bot_offers.offer_tx(tx, agent, f"{agent}_bot", maker, at=at), name="test.offer"
    )


async def bound(mail: MailboxFixture, username: str, maker: int, at: int = T0) -> str:
    """The agent to which a bot of that name is bound; empty if its creator is asked."""
    bot = CreatedBot(crc32(username.encode()), username)
    row = await mail.db.write(
        lambda tx: bot_offers.bind_tx(tx, bot, maker, at=at), name="test.bind"
    )
    assert (row.state == BOUND) is bool(row.agent)
    return row.agent


async def test_the_name_decides_between_offers_and_without_it_nothing_is_guessed(
    mail: MailboxFixture,
) -> None:
    for agent in ("poet", "coder", "cook"):
        await offer(mail, agent, ANN)
    assert await bound(mail, "Coder_Bot", ANN) == "coder"
    assert await bound(mail, "something_else_bot", ANN) == ""
    assert await bound(mail, "poet_bot", ANN) == "poet"
    # One is left, and it is hers.
    assert await bound(mail, "yet_another_bot", ANN) == "cook"


async def test_an_offer_is_for_the_person_it_was_made_to(mail: MailboxFixture) -> None:
    await offer(mail, "poet", ANN)
    assert await bound(mail, "poet_bot", BOB) == ""
    await offer(mail, "cook", ANYBODY)
    assert await bound(mail, "renamed_bot", BOB) == "", "of no person, and of another name"
    assert await bound(mail, "cook_bot", BOB) == "cook"


@pytest.mark.parametrize("late_ms", [OFFER_MS, -1], ids=["ended", "the clock was set back"])
async def test_an_offer_ends_by_itself(mail: MailboxFixture, late_ms: int) -> None:
    await offer(mail, "poet", ANN)
    assert await bound(mail, "poet_bot", ANN, T0 + late_ms) == ""
    assert await bound(mail, "poet2_bot", ANN, T0 + OFFER_MS - 1) == "poet"


async def test_a_second_offer_for_an_agent_ends_with_the_first(mail: MailboxFixture) -> None:
    for at in (T0, T0 + 1):
        await offer(mail, "poet", ANN, at)
    assert await bound(mail, "renamed_bot", ANN, T0 + 2) == "poet"
    assert await bound(mail, "poet_bot", ANN, T0 + 2) == ""


async def test_a_bot_without_an_agent_is_given_to_one_once(mail: MailboxFixture) -> None:
    assert await bound(mail, "lone_bot", ANN) == ""
    bot_id = crc32(b"lone_bot")
    for agent in ("poet", "cook"):  # until its token is kept, the last word counts
        row = await mail.db.write(
            partial(bot_offers.give_tx, bot_id=bot_id, agent=agent), name="test.give"
        )
        assert row == BotRow(agent, "lone_bot", ANN, bot_id, BOUND)
    ended = [
        await mail.db.write(
            lambda tx: bot_offers.end_tx(tx, bot_id, bot_offers.TAKEN), name="test.end"
        )
        for _ in range(2)
    ]
    assert ended == [True, False]
    row = await mail.db.write(lambda tx: bot_offers.give_tx(tx, bot_id, "poet"), name="test.give")
    assert row is not None
    assert (row.agent, row.state) == ("cook", bot_offers.TAKEN)
