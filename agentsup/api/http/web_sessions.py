"""Sessions and one-time codes of the web page, stored as digests (P7).

A session is a secret that the page keeps. Its rights are looked up at each request, so a person who
loses a role in [people], or is removed from it, loses the rights in the page at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.api.http.sign_in_failures import FailureLimits, SignInFailures
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import BadRequest, Conflict, StoreUnavailable
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.store import Database, Tx

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class WebSessionLimits:
    """Lifetimes and numbers of codes and sessions."""

    code_ms: int = 600_000
    idle_ms: int = 14 * _DAY_MS
    whole_ms: int = 90 * _DAY_MS
    note_ms: int = 600_000
    """The largest age of the stored time of the last use."""
    sessions: int = 50
    """Per person; one more ends the session that was used longest ago."""
    codes: int = 20
    """Per person; one more removes the oldest code."""
    failures: FailureLimits = field(default_factory=FailureLimits)


class OtherSession(Conflict):
    """Another person is signed in in this browser, and the request does not end that session."""

    code = "other_session"


@dataclass(slots=True)
class WebSession:
    """The session of one browser.

    ``subject`` is a person's name, or empty for the operator. ``host`` is the ``Host`` header with
    which the page was called. ``bound_to`` is, for an operator, the operator's key at the sign-in.
    """

    session_id: str
    """The digest of its secret."""
    subject: str
    host: str
    begun_at: int
    seen_at: int
    noted_at: int
    """The stored time of the last use."""
    bound_to: str = ""
    has_ended: bool = False
    watchers: set[Callable[[], None]] = field(default_factory=set, repr=False)
    """Called when the session ends early or the person's rights may have changed: its open streams
    and sockets check their rights again."""

    def is_at(self, host: str) -> bool:
        """Whether the session began under this ``Host``. It is valid under no other."""
        return self.host == host.lower()

    @contextmanager
    def watched_by(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` if the session is ended, or [people] changes, during the block."""
        self.watchers.add(watcher)
        try:
            yield
        finally:
            self.watchers.discard(watcher)

    def wake(self) -> None:
        """Let the open streams and sockets of the session check their rights again."""
        for watcher in tuple(self.watchers):
            watcher()


@dataclass(frozen=True, slots=True)
class LoginCode:
    """A one-time code; the store has its digest only."""

    code: str = field(repr=False)
    expires_at: int


class WebSessions:
    """Codes and sessions of one daemon. Use it from one event loop, and call ``load`` first."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        people: Callable[[], Mapping[str, PersonRole]],
        language: Callable[[str], str] = lambda person: "",
        operator_key: Callable[[], str],
        limits: WebSessionLimits | None = None,
    ) -> None:
        """``people`` returns the persons of [people] with their current roles, ``language`` the
        language of one of them, ``operator_key`` a key that changes with the operator's token."""
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._people = people
        self._language = language
        self._operator_key = operator_key
        self._limits = limits or WebSessionLimits()
        self._port = 0
        self._sessions: dict[str, WebSession] = {}
        self._failures = SignInFailures(self._limits.failures, clock)

    async def load(self, port: int) -> None:
        """Load the sessions of earlier starts; remove ended ones and those of another port.

        ``port`` is the port that the listener has bound. A browser sends the secrets of another
        port's sessions to whatever program listens there now.
        """
        now, limits, known = self._clock.now_ms(), self._limits, self._known()
        self._port = port

        def read(tx: Tx) -> list[WebSession]:
            tx.execute(
                "DELETE FROM web_sessions WHERE begun_at < ? OR seen_at < ? OR port <> ?"
                " OR (subject = '' AND bound_to <> ?)",
                (now - limits.whole_ms, now - limits.idle_ms, port, self._operator_key()),
            )
            tx.execute("DELETE FROM web_codes WHERE expires_at < ?", (now,))
            _prune_tx(tx, known)
            rows = tx.all(
                "SELECT session_hash, subject, host, begun_at, seen_at, seen_at, bound_to"
                " FROM web_sessions"
            )
            return [WebSession(*row) for row in rows]

        found = await self._database.write(read, name="web.load")
        self._sessions = {session.session_id: session for session in found}

    def people_changed(self) -> Coroutine[Any, Any, None]:
        """Apply a changed [people]. Await the result to remove the rows from the store too.

        Sessions and codes of removed persons end for good: they stay invalid if the name is added
        again. Open streams and sockets of other persons check their role again. In memory all this
        is done when the call returns.
        """
        people, known = self._people(), self._known()
        for session in [*self._sessions.values()]:
            if session.subject and session.subject not in people:
                self._forget(session)
            else:
                session.wake()

        return self._database.write(_prune_tx, known, name="web.prune")

    # -- codes -------------------------------------------------------------------------------------

    async def issue(self, person: str = "") -> LoginCode:
        """Make a code for the operator (empty ``person``), or for a person of [people].

        The code becomes invalid when the operator's token changes. Raises ``BadRequest`` for a
        person who is not in [people].
        """
        if person and person not in self._people():
            known = ", ".join(sorted(self._people()))
            raise BadRequest(
                f"there is no {person!r} in [people] of config.toml; "
                + (f"it lists {known}" if known else "nobody is listed there yet"),
                field="person",
            )
        code, now = self._entropy.token(), self._clock.now_ms()
        expires_at = now + self._limits.code_ms

        def keep(tx: Tx) -> None:
            tx.execute("DELETE FROM web_codes WHERE expires_at < ?", (now,))
            tx.execute(
                "DELETE FROM web_codes WHERE code_hash IN (SELECT code_hash FROM web_codes"
                " WHERE subject = ? ORDER BY made_at DESC LIMIT -1 OFFSET ?)",
                (person, self._limits.codes - 1),
            )
            tx.execute(
                "INSERT INTO web_codes (code_hash, subject, made_at, expires_at)"
                " VALUES (?, ?, ?, ?)",
                (self._digest_of(code), person, now, expires_at),
            )

        await self._database.write(keep, name="web.issue")
        return LoginCode(code, expires_at)

    async def redeem(
        self, code: str, address: str = "", *, host: str = "", keeps: WebSession | None = None
    ) -> tuple[str, WebSession]:
        """Exchange a code for a session of the page at ``host``. Returns secret and session.

        ``keeps`` is a session that must not be replaced by another person's: ``OtherSession`` is
        raised then, and the code can still be used. Raises ``LoginFailed`` for a used, expired or
        unknown code, ``Overloaded`` after too many failures of one ``address``, or of all. A valid
        code is accepted also then.
        """
        now, digest, key = self._clock.now_ms(), self._digest_of(code), self._operator_key()

        def use(tx: Tx) -> str | None:
            row = tx.one(
                "SELECT subject FROM web_codes"
                " WHERE code_hash = ? AND used_at IS NULL AND expires_at > ?",
                (digest, now),
            )
            if row is None:
                return None
            self._check_same(keeps, str(row["subject"]))
            tx.execute("UPDATE web_codes SET used_at = ? WHERE code_hash = ?", (now, digest))
            return str(row["subject"])

        # A wrong guess never reaches the writer. Digests are compared, so timing reveals nothing.
        is_known = await self._database.read(
            lambda reader: reader.one("SELECT 1 FROM web_codes WHERE code_hash = ?", (digest,)),
            name="web.code",
        )
        subject = await self._database.write(use, name="web.redeem") if is_known else None
        if subject is None or self._principal(subject) is None:
            raise self._failures.refusal(
                address,
                "this link was used already, has expired or is unknown; get a new one with "
                "`agentsup link`",
            )
        return await self._begin(subject, key, host)

    async def sign_in(
        self,
        is_operator: bool,
        address: str = "",
        *,
        host: str = "",
        keeps: WebSession | None = None,
    ) -> tuple[str, WebSession]:
        """Start a session of the operator if ``is_operator``. Raises as ``redeem`` does."""
        if not is_operator:
            raise self._failures.refusal(
                address, "this is not the operator's token (it is in api.token of the home)"
            )
        self._check_same(keeps, "")
        return await self._begin("", self._operator_key(), host)

    def _check_same(self, keeps: WebSession | None, subject: str) -> None:
        """Raise ``OtherSession`` if a sign-in would replace another person's session: a link from
        somebody else must not silently sign this browser in as another person."""
        principal = None if keeps is None else self.principal(keeps)
        other = self._principal(subject)
        if keeps is None or principal is None or other is None or keeps.subject == subject:
            return
        raise OtherSession(
            f"this browser is signed in as {principal.label}; this would sign {other.label} in instead",
            signed_in=principal.label,
            would_be=other.label,
        )

    # -- sessions ----------------------------------------------------------------------------------

    def find(self, secret: str | None) -> WebSession | None:
        """The valid session of a secret, or None."""
        if not secret:
            return None
        session = self._sessions.get(_digest(secret))
        return session if session is not None and self.principal(session) is not None else None

    def principal(self, session: WebSession) -> Principal | None:
        """The principal of this session now; None if the session is not valid any more."""
        if session.has_ended or self.ends_at(session) <= self._clock.now_ms():
            return None
        if not session.subject and session.bound_to != self._operator_key():
            return None
        return self._principal(session.subject)

    def ends_at(self, session: WebSession) -> int:
        """When the session ends unless it is used before (wall clock, ms)."""
        limits = self._limits
        return min(session.begun_at + limits.whole_ms, session.seen_at + limits.idle_ms)

    def seen(self, session: WebSession) -> bool:
        """Record a use of the session. Returns whether the caller must store it with ``note``."""
        session.seen_at = self._clock.now_ms()
        return session.seen_at - session.noted_at >= self._limits.note_ms

    async def note(self, session: WebSession) -> None:
        """Store the time of the last use. If the store is unavailable, the next use tries again."""
        session.noted_at = session.seen_at
        try:
            await self._database.write(
                lambda tx: tx.execute(
                    "UPDATE web_sessions SET seen_at = ? WHERE session_hash = ?",
                    (session.seen_at, session.session_id),
                ),
                name="web.note",
            )
        except StoreUnavailable:
            session.noted_at = 0

    async def end(self, session: WebSession) -> None:
        """End one session."""
        await self._end([session])

    async def end_all(self, subject: str) -> int:
        """End all sessions and codes of a person. Returns how many sessions ended."""
        mine = [one for one in self._sessions.values() if one.subject == subject]
        await self._end(mine)
        await self._database.write(
            lambda tx: tx.execute("DELETE FROM web_codes WHERE subject = ?", (subject,)),
            name="web.end_all",
        )
        return len(mine)

    # -- inside ------------------------------------------------------------------------------------

    def _principal(self, subject: str) -> Principal | None:
        if not subject:
            return OPERATOR
        role = self._people().get(subject)
        if role is None:
            return None
        said = self._language(subject)
        return Principal(PrincipalKind.PERSON, subject, subject, role, language=said)

    def _digest_of(self, code: str) -> str:
        # The holder of a leaked operator's token may have made the code: it ends with that token.
        return _digest(f"{self._operator_key()}:{code}")

    async def _begin(self, subject: str, key: str, host: str) -> tuple[str, WebSession]:
        secret, now, host = self._entropy.token(), self._clock.now_ms(), host.lower()
        bound_to = "" if subject else key
        session = WebSession(_digest(secret), subject, host, now, now, now, bound_to)

        def keep(tx: Tx) -> None:
            tx.execute(
                "INSERT INTO web_sessions"
                " (session_hash, subject, host, port, bound_to, begun_at, seen_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (session.session_id, subject, host, self._port, bound_to, now, now),
            )

        await self._database.write(keep, name="web.begin")
        self._sessions[session.session_id] = session
        dead = [one for one in self._sessions.values() if self.ends_at(one) <= now]
        mine = [one for one in self._sessions.values() if one.subject == subject]
        mine.sort(key=lambda one: one.seen_at)
        await self._end([*dead, *mine[: max(0, len(mine) - self._limits.sessions)]])
        return secret, session

    async def _end(self, sessions: list[WebSession]) -> None:
        """End sessions in memory first, so that nothing is served meanwhile, then in the store."""
        if not sessions:
            return
        for session in sessions:
            self._forget(session)
        await self._database.write(
            lambda tx: tx.executemany(
                "DELETE FROM web_sessions WHERE session_hash = ?",
                [(session.session_id,) for session in sessions],
            ),
            name="web.end",
        )

    def _forget(self, session: WebSession) -> None:
        session.has_ended = True
        self._sessions.pop(session.session_id, None)
        session.wake()

    def _known(self) -> str:
        """The subjects that may have sessions, as a JSON list; the operator's is empty."""
        return json.dumps(["", *self._people()])


def _prune_tx(tx: Tx, known: str) -> None:
    """Delete sessions and codes of subjects that are not in ``known``, a JSON list."""
    for table in ("web_sessions", "web_codes"):
        tx.execute(
            f"DELETE FROM {table}"  # noqa: S608 - one of two constants
            " WHERE subject NOT IN (SELECT value FROM json_each(?))",
            (known,),
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
