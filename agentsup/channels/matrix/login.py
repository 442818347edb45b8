"""Sign-in of a bot, so that the homeserver knows it as the same device over restarts.

Transaction ids belong to a device: with another one, a message that was sent before a crash would
be sent again. So the id of the device is chosen and stored before the first login. The token of the
login is stored beside it (0600, never logged) until the homeserver refuses it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentsup.channels.core.errors import TokenRefused
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.matrix.client import MatrixClient, MatrixSession
from agentsup.channels.matrix.errors import SessionNotStored
from agentsup.kit.files import write_atomic
from agentsup.kit.log import get_logger
from agentsup.model.secret import Secret

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BotAccount:
    """The bot's account and its credentials. The secrets are resolved, so no references."""

    homeserver: str
    user_id: str
    password: Secret | None = None
    access_token: Secret | None = None
    device_id: str = ""
    """The device id to use; empty: one is chosen."""


@dataclass(frozen=True, slots=True)
class SignedInAccount:
    """A session, and since when (wall ms) the homeserver knows its device. The homeserver does not
    recognise transaction ids that were used before."""

    session: MatrixSession
    since_ms: int


@dataclass(frozen=True, slots=True)
class _StoredSession:
    """The content of the file; it counts only for the same account."""

    homeserver: str
    user_id: str
    device_id: str
    since_ms: int
    access_token: str = ""


class PasswordSignIn:
    """Gives sessions of one account. ``file`` is where the session of a password is stored."""

    def __init__(
        self, deps: BotServices, client: MatrixClient, account: BotAccount, file: Path
    ) -> None:
        self._deps = deps
        self._client = client
        self._account = account
        self._file = file

    @property
    def can_renew(self) -> bool:
        """Whether a refused token can be replaced by a new login."""
        return self._account.access_token is None and self._account.password is not None

    async def session(self) -> SignedInAccount:
        """Return a session that the homeserver accepts now; the stored one as long as it does.

        Raises ``TokenRefused``; ``SessionNotStored`` if the session can't be stored and would be
        lost with the process; another ``PlatformError`` if the homeserver can't be asked.
        """
        account = self._account
        stored = await asyncio.to_thread(self._read)
        if account.access_token is not None:
            session = self._ours(await self._client.whoami(account.access_token.written))
            return await self._keep(session, stored, token="")
        if account.password is None:
            raise TokenRefused("neither matrix.password nor matrix.access_token is given")
        if stored.access_token:
            try:
                found = await self._client.whoami(stored.access_token)
            except TokenRefused:
                _log.info(
                    "the kept Matrix session is not accepted any more", agent=self._deps.agent_name
                )
            else:
                session = MatrixSession(found.user_id, stored.device_id, found.access_token)
                return SignedInAccount(self._ours(session), stored.since_ms)
        # The device id is chosen once, and stored before the device exists.
        await asyncio.to_thread(self._write, replace(stored, access_token=""))
        session = self._ours(
            await self._client.login(
                account.user_id,
                account.password.written,
                device_id=stored.device_id,
                device_name=f"agentsup ({self._deps.agent_name})",
            )
        )
        fresh = replace(stored, device_id="")  # the homeserver may have forgotten the old one
        return await self._keep(session, fresh, token=session.access_token)

    async def _keep(
        self, session: MatrixSession, stored: _StoredSession, *, token: str
    ) -> SignedInAccount:
        since_ms = (
            stored.since_ms if session.device_id == stored.device_id else self._deps.clock.now_ms()
        )
        now = replace(stored, device_id=session.device_id, since_ms=since_ms, access_token=token)
        if now != stored:
            await asyncio.to_thread(self._write, now)
        return SignedInAccount(session, since_ms)

    def _ours(self, session: MatrixSession) -> MatrixSession:
        if session.user_id != self._account.user_id:
            raise TokenRefused(
                f"the access token belongs to {session.user_id}, not to {self._account.user_id}"
            )
        return session

    def _read(self) -> _StoredSession:
        account = self._account
        fresh = _StoredSession(
            account.homeserver,
            account.user_id,
            account.device_id or self._deps.entropy.new_id("agentsup").upper(),
            self._deps.clock.now_ms(),
        )
        try:
            found: Any = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            _log.warning(
                "the kept Matrix session can't be read", agent=self._deps.agent_name, why=str(error)
            )
            return fresh
        if not isinstance(found, Mapping):
            return fresh
        texts = {name: found.get(name) for name in ("homeserver", "user_id", "device_id")}
        is_same = (texts["homeserver"], texts["user_id"]) == (account.homeserver, account.user_id)
        device_id = texts["device_id"]
        if not is_same or not isinstance(device_id, str) or not device_id:
            return fresh
        if account.device_id not in ("", device_id):
            return fresh
        token, since_ms = found.get("access_token"), found.get("since_ms")
        return _StoredSession(
            account.homeserver,
            account.user_id,
            device_id,
            since_ms if isinstance(since_ms, int) else self._deps.clock.now_ms(),
            token if isinstance(token, str) else "",
        )

    def _write(self, stored: _StoredSession) -> None:
        body = {name: getattr(stored, name) for name in _StoredSession.__dataclass_fields__}
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._file, json.dumps(body).encode(), mode=0o600)
        except OSError as error:
            raise SessionNotStored(
                f"the Matrix session of {self._deps.agent_name} can't be kept in {self._file} "
                f"({error.strerror or error}); make room or mend its folder, it is tried again"
            ) from error
