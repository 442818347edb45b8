"""Each case runs on each platform; the real homeserver only where live tests are wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from tests.contract.platform.chats import PlatformChat, RoomsChat, TelegramChat
from tests.contract.platform.synapse_chat import PASSWORD, SynapseChat
from tests.contract.platform.toy_chat import ToyChat
from tests.support import synapse_run
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_driver import MatrixPerson

PLATFORMS = ["telegram", "matrix", "toy", pytest.param("synapse", marks=pytest.mark.live)]


def pytest_collection_finish(session: pytest.Session) -> None:
    synapse_run.begin(session)


def pytest_unconfigure(config: pytest.Config) -> None:
    synapse_run.end(config)


@pytest.fixture(params=PLATFORMS)
async def chat(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PlatformChat]:
    """A chat whose bot runs; the strict server must have seen nothing malformed."""
    mail = await MailboxFixture.open(tmp_path, threads=True)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(mail.close)
        made: PlatformChat
        if request.param == "telegram":
            fake = await stack.enter_async_context(FakeTelegram(tmp_path / "fake"))
            people = await stack.enter_async_context(TelegramDriver(fake.url))
            made = group = TelegramChat(mail, tmp_path)
            await group.enter(people, fake.url)
        elif request.param == "matrix":
            made = RoomsChat(mail, tmp_path)
        elif request.param == "toy":
            made = ToyChat(mail, tmp_path)
        else:
            config = request.config
            synapse = synapse_run.synapse_of(config)
            bot, ann = [
                await synapse_run.new_account(config, name, PASSWORD) for name in ("bot", "ann")
            ]
            person = await stack.enter_async_context(MatrixPerson(synapse.url, ann, PASSWORD))
            made = room = SynapseChat(mail, tmp_path, synapse)
            await room.enter(person, bot)
        await made.begin()
        yield made
        await made.end()
        if isinstance(made, TelegramChat):
            assert await made.people.violations() == []
