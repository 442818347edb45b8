"""What the buttons of a bot need, for tests without a bot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from agentsup.channels.core.receiving.messages import BotServices
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Commands
from agentsup.store import Database
from tests.support.mailbox_fixture import MailboxFixture


@dataclass(frozen=True)
class FakePressDeps:
    """Has the members of ``BotServices`` that menus and notes use."""

    agent_id: str
    database: Database
    mailbox: Mailbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    spec: Callable[[], AgentSpec]


def press_deps(
    mail: MailboxFixture, agent_id: str, commands: Commands, spec: Callable[[], AgentSpec]
) -> BotServices:
    """The store, mailbox and clock are those of ``mail``."""
    twin = FakePressDeps(agent_id, mail.db, mail.mailbox, commands, mail.clock, mail.entropy, spec)
    return cast(BotServices, twin)
