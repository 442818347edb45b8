"""One device over all lives: what is kept, when it is used again, and when it is not."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentsup.channels.core import NotSent, TokenRefused
from agentsup.channels.matrix import login
from agentsup.channels.matrix.client import MatrixSession
from agentsup.channels.matrix.errors import SessionNotStored
from agentsup.channels.matrix.login import BotAccount, PasswordSignIn, SignedInAccount
from agentsup.channels.matrix.sync import decide_retry
from agentsup.fakes.entropy import SeededEntropy
from agentsup.model.secret import Secret
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual

ACCOUNT = BotAccount("http://h", "@bot:h", password=Secret("right"))


class Homeserver:
    """Knows one account; a login makes its device, or takes it up again."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.logins: list[str] = []
        self.is_away = False
        self.file: Path | None = None
        self.seen_before_login: Any = None

    async def login(
        self, user_id: str, password: str, *, device_id: str = "", device_name: str = "agentsup"
    ) -> MatrixSession:
        if self.file is not None:
            self.seen_before_login = json.loads(self.file.read_text())
        if self.is_away:
            raise NotSent("no way")
        if password != "right":
            raise TokenRefused("wrong")
        self.logins.append(device_id)
        token = f"syt_{len(self.logins)}"
        self.tokens = {token: device_id}
        return MatrixSession(user_id, device_id, token)

    async def whoami(self, access_token: str) -> MatrixSession:
        if self.is_away:
            raise NotSent("no way")
        if access_token not in self.tokens:
            raise TokenRefused("unknown")
        return MatrixSession("@bot:h", self.tokens[access_token], access_token)


class Fixture:
    def __init__(self, folder: Path) -> None:
        self.server = Homeserver()
        self.clock = LoopClock(epoch_ms=1_000)
        self.entropy = SeededEntropy(self.clock, 1)
        self.file = folder / "agents" / "bob" / "matrix-session.json"

    async def sign_in(self, account: BotAccount = ACCOUNT) -> SignedInAccount:
        """As a new life does."""
        deps: Any = SimpleNamespace(clock=self.clock, entropy=self.entropy, agent_name="bob")
        server: Any = self.server  # a twin of what signing in uses
        signing = PasswordSignIn(deps, server, account, self.file)
        return await signing.session()

    @property
    def kept(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


async def test_the_device_is_chosen_and_kept_before_it_exists(stage: Fixture) -> None:
    stage.server.is_away = True
    with pytest.raises(NotSent):
        await stage.sign_in()
    chosen = stage.kept["device_id"]
    stage.server.is_away = False
    stage.server.file = stage.file
    found = await stage.sign_in()
    assert stage.server.seen_before_login["device_id"] == chosen
    assert (found.session.device_id, stage.server.logins) == (chosen, [chosen])
    assert stage.file.stat().st_mode & 0o777 == 0o600


async def test_a_later_life_uses_the_session_again(stage: Fixture) -> None:
    first = await stage.sign_in()
    stage.clock.jump_ms(60_000)
    assert await stage.sign_in() == first
    assert len(stage.server.logins) == 1


async def test_an_ended_session_is_renewed_and_what_was_begun_before_it_is_in_doubt(
    stage: Fixture,
) -> None:
    first = await stage.sign_in()
    stage.server.tokens.clear()
    stage.clock.jump_ms(60_000)
    second = await stage.sign_in()
    assert second.session.device_id == first.session.device_id
    assert second.session.access_token != first.session.access_token
    assert second.since_ms == first.since_ms + 60_000
    assert stage.kept["access_token"] == second.session.access_token


async def test_while_nobody_can_be_asked_the_session_is_kept(stage: Fixture) -> None:
    first = await stage.sign_in()
    stage.server.is_away = True
    with pytest.raises(NotSent):
        await stage.sign_in()
    stage.server.is_away = False
    assert await stage.sign_in() == first


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b"{", b'{"device_id": 5}', b'{"homeserver": "http://h"}']
)
async def test_a_damaged_file_costs_a_login_and_no_more(stage: Fixture, damage: bytes) -> None:
    await stage.sign_in()
    stage.file.write_bytes(damage)
    assert (await stage.sign_in()).session.user_id == "@bot:h"
    assert len(stage.server.logins) == 2


async def test_another_account_or_server_has_a_session_of_its_own(stage: Fixture) -> None:
    first = await stage.sign_in()
    await stage.sign_in(replace(ACCOUNT, homeserver="http://other"))
    assert stage.server.logins[1] != first.session.device_id
    await stage.sign_in(replace(ACCOUNT, homeserver="http://other", device_id="MINE"))
    assert stage.server.logins[2] == "MINE"


async def test_a_token_of_the_entry_is_asked_whose_it_is(stage: Fixture) -> None:
    stage.server.tokens = {"given": "DEV"}
    account = BotAccount("http://h", "@bot:h", access_token=Secret("given"))
    first = await stage.sign_in(account)
    assert first.session == MatrixSession("@bot:h", "DEV", "given")
    assert "given" not in stage.file.read_text()
    stage.clock.jump_ms(5_000)
    assert await stage.sign_in(account) == first
    stage.server.tokens = {"other": "DEV2"}
    changed = await stage.sign_in(replace(account, access_token=Secret("other")))
    assert changed.since_ms == first.since_ms + 5_000, "another device: its keys are unknown"
    with pytest.raises(TokenRefused, match="belongs to @bot:h"):
        await stage.sign_in(replace(account, user_id="@eve:h", access_token=Secret("other")))
    with pytest.raises(TokenRefused):
        await stage.sign_in(replace(account, access_token=Secret("gone")))


async def test_a_wrong_password_is_a_refusal(stage: Fixture) -> None:
    with pytest.raises(TokenRefused):
        await stage.sign_in(replace(ACCOUNT, password=Secret("wrong")))


def test_no_secret_is_shown() -> None:
    assert "syt" not in repr(MatrixSession("@bot:h", "D", "syt"))


async def test_a_session_that_can_not_be_kept_is_not_begun_and_says_why(
    stage: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def full(*given: Any, **more: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(login, "write_atomic", full)
        with pytest.raises(SessionNotStored, match="No space left") as caught:
            await stage.sign_in()
        assert stage.server.logins == []
    first, later = decide_retry(caught.value, 1, 0.5), decide_retry(caught.value, 6, 0.5)
    assert str(stage.file) in first.detail
    assert "homeserver" not in first.detail
    assert 0 < first.wait_s < later.wait_s <= 30.0
    assert (await stage.sign_in()).session.user_id == "@bot:h"
