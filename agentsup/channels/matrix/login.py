"""How a bot signs in, so that the homeserver knows it as the same device over restarts.

Transaction ids belong to a device: with another one, a message that was sent before a crash would
be sent again. So the name of the device is chosen and kept before the first login, and the token
that the login gives is kept beside it (0600, never logged) until the homeserver refuses it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from agentsup.channels.matrix.client import Session
from agentsup.channels.matrix.errors import TokenRefused, Unkept
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.files import write_atomic
from agentsup.model.agent import Secret
from agentsup.observe.logging import get_logger

__all__ = ["Account", "SignIn", "SignInClient", "SignedIn"]

_log = get_logger(__name__)


class SignInClient(Protocol):
    """What is needed of a client."""

    async def login(
        self, user_id: str, password: str, *, device_id: str = "", device_name: str = "agentsup"
    ) -> Session: ...

    async def whoami(self, access_token: str) -> Session: ...


@dataclass(frozen=True, slots=True)
class Account:
    """Who the bot is, and what it signs in with. The secrets are resolved, so no references."""

    homeserver: str
    user_id: str
    password: Secret | None = None
    access_token: Secret | None = None
    device_id: str = ""
    """The device to be, or empty for one of our choice."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session, and since when (wall ms) the homeserver knows its device: what it was given by
    that device's transaction ids before, it does not recognise."""

    session: Session
    since_ms: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the file holds; it counts only for the same account."""

    homeserver: str
    user_id: str
    device_id: str
    since_ms: int
    access_token: str = ""


class SignIn:
    """Gives sessions of one account. ``file`` is where the session of a password is kept."""

    def __init__(
        self,
        client: SignInClient,
        account: Account,
        file: Path,
        *,
        clock: Clock,
        entropy: Entropy,
        name: str,
    ) -> None:
        self._client = client
        self._account = account
        self._file = file
        self._clock = clock
        self._entropy = entropy
        self._name = name

    @property
    def can_renew(self) -> bool:
        """Whether a refused token can be replaced without anybody's help."""
        return self._account.access_token is None and self._account.password is not None

    async def session(self) -> SignedIn:
        """A session that the homeserver accepts now; the kept one as long as it does.

        Raises ``TokenRefused``, and another ``MatrixError`` where the homeserver can't be asked:
        ``Unkept`` if the session can't be kept, without which it would be lost with the process.
        """
        account = self._account
        kept = await asyncio.to_thread(self._read)
        if account.access_token is not None:
            session = self._ours(await self._client.whoami(account.access_token.written))
            return await self._keep(session, kept, token="")
        if account.password is None:
            raise TokenRefused("neither matrix.password nor matrix.access_token is given")
        if kept.access_token:
            try:
                found = await self._client.whoami(kept.access_token)
            except TokenRefused:
                _log.info("the kept Matrix session is not accepted any more", agent=self._name)
            else:
                session = Session(found.user_id, kept.device_id, found.access_token)
                return SignedIn(self._ours(session), kept.since_ms)
        # The device is chosen once, before it exists.
        await asyncio.to_thread(self._write, replace(kept, access_token=""))
        session = self._ours(
            await self._client.login(
                account.user_id,
                account.password.written,
                device_id=kept.device_id,
                device_name=f"agentsup ({self._name})",
            )
        )
        fresh = replace(kept, device_id="")  # the homeserver may have forgotten the old one
        return await self._keep(session, fresh, token=session.access_token)

    async def _keep(self, session: Session, kept: _Kept, *, token: str) -> SignedIn:
        since_ms = kept.since_ms if session.device_id == kept.device_id else self._clock.now_ms()
        now = replace(kept, device_id=session.device_id, since_ms=since_ms, access_token=token)
        if now != kept:
            await asyncio.to_thread(self._write, now)
        return SignedIn(session, since_ms)

    def _ours(self, session: Session) -> Session:
        if session.user_id != self._account.user_id:
            raise TokenRefused(
                f"the access token belongs to {session.user_id}, not to {self._account.user_id}"
            )
        return session

    def _read(self) -> _Kept:
        account = self._account
        fresh = _Kept(
            account.homeserver,
            account.user_id,
            account.device_id or self._entropy.new_id("agentsup").upper(),
            self._clock.now_ms(),
        )
        try:
            found: Any = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            _log.warning("the kept Matrix session can't be read", agent=self._name, why=str(error))
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
        return _Kept(
            account.homeserver,
            account.user_id,
            device_id,
            since_ms if isinstance(since_ms, int) else self._clock.now_ms(),
            token if isinstance(token, str) else "",
        )

    def _write(self, kept: _Kept) -> None:
        body = {name: getattr(kept, name) for name in _Kept.__dataclass_fields__}
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._file, json.dumps(body).encode(), mode=0o600)
        except OSError as error:
            raise Unkept(
                f"the Matrix session of {self._name} can't be kept in {self._file} "
                f"({error.strerror or error}); make room or mend its folder, it is tried again"
            ) from error
