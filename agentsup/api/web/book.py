"""Who is signed in to the web page: one-time codes and sessions, kept as digests (P7).

A session is a cookie's secret; what it may do is looked up at each request, so a person who loses
a role in [people], or is removed from it, loses it in the page at once.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.window import SlidingWindow
from agentsup.model.errors import (
    AgentsupError,
    BadRequest,
    Conflict,
    Overloaded,
    StoreUnavailable,
    Unauthorised,
)
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.store.database import Database, Tx

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class BookLimits:
    """How long codes and sessions live, and how many there are."""

    code_ms: int = 600_000
    idle_ms: int = 14 * _DAY_MS
    whole_ms: int = 90 * _DAY_MS
    note_ms: int = 600_000
    """How old the stored time of the last use may be."""
    sessions: int = 50
    """Of one person; the one used longest ago ends when there would be more."""
    codes: int = 20
    """Of one person; the oldest goes when there would be more."""
    failures: int = 10
    """Failed exchanges of one address within `failures_s` seconds; more are told to wait."""
    failures_in_all: int = 100
    failures_s: float = 60.0
    addresses: int = 1000
    """So many addresses are counted one by one; those that failed longest ago are forgotten."""


class LoginFailed(Unauthorised):
    """The code or token opens nothing. One sentence for every reason: no hint for who guesses."""

    code = "login_failed"


class OtherSession(Conflict):
    """Somebody else is signed in in this browser, and nobody said that their session may end."""

    code = "other_session"


@dataclass(slots=True)
class WebSession:
    """One browser. `subject` is a person's name, or empty for the operator; `bound_to` is the
    operator's key with which it began, for an operator."""

    session_id: str
    """The digest of the cookie's secret."""
    subject: str
    begun_at: int
    seen_at: int
    noted_at: int
    """The stored time of the last use."""
    bound_to: str = ""
    has_ended: bool = False
    watchers: set[Callable[[], None]] = field(default_factory=set, repr=False)
    """Called when it ends before its time: sockets and streams of it end then."""

    @contextmanager
    def watched_by(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call `watcher` if the session is ended during the block."""
        self.watchers.add(watcher)
        try:
            yield
        finally:
            self.watchers.discard(watcher)


@dataclass(frozen=True, slots=True)
class Code:
    """A one-time code, told once."""

    code: str = field(repr=False)
    expires_at: int


class WebBook:
    """Codes and sessions of one daemon. Used from one event loop; `load` before the first use."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        people: Callable[[], Mapping[str, PersonRole]],
        language: Callable[[str], str] = lambda person: "",
        operator_key: Callable[[], str],
        node_id: str,
        limits: BookLimits | None = None,
    ) -> None:
        """`people` are the persons of [people] with their roles as they are now, `language` what
        one of them reads; `operator_key` changes with the operator's token; `node_id` names this installation."""
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._people = people
        self._language = language
        self._operator_key = operator_key
        self._limits = limits or BookLimits()
        self._sessions: dict[str, WebSession] = {}
        self._failures = SlidingWindow(self._limits.failures_s)
        self._failures_of: OrderedDict[str, SlidingWindow] = OrderedDict()
        # Cookies know no ports: two daemons on one machine need names of their own.
        self.cookie: Final = f"agentsup_{hashlib.sha256(node_id.encode()).hexdigest()[:12]}"

    async def load(self) -> None:
        """Take over the sessions of earlier boots; those that have ended go."""
        now = self._clock.now_ms()

        known = self._known()

        def read(tx: Tx) -> list[WebSession]:
            tx.execute(
                "DELETE FROM web_sessions WHERE begun_at < ? OR seen_at < ?"
                " OR (subject = '' AND bound_to <> ?)",
                (now - self._limits.whole_ms, now - self._limits.idle_ms, self._operator_key()),
            )
            tx.execute("DELETE FROM web_codes WHERE expires_at < ?", (now,))
            _prune_tx(tx, known)
            rows = tx.all(
                "SELECT session_hash, subject, begun_at, seen_at, bound_to FROM web_sessions"
            )
            return [WebSession(row[0], row[1], row[2], row[3], row[3], row[4]) for row in rows]

        found = await self._database.write(read, name="web.load")
        self._sessions = {session.session_id: session for session in found}

    def people_changed(self) -> Coroutine[Any, Any, None]:
        """[people] is another one: who was removed has left for good, and no old cookie or link
        comes back to life with the name. In memory it holds at once; await the result for the disk.
        """
        people, known = self._people(), self._known()
        for session in [*self._sessions.values()]:
            if session.subject and session.subject not in people:
                self._forget(session)

        return self._database.write(lambda tx: _prune_tx(tx, known), name="web.prune")

    # -- codes -------------------------------------------------------------------------------------

    async def issue(self, person: str = "") -> Code:
        """A code for the operator, or for a person of [people] (`BadRequest` if there is none). It
        opens nothing once the operator's token is another one."""
        if person and person not in self._people():
            known = ", ".join(sorted(self._people())) or "nobody"
            raise BadRequest(
                f"there is no {person!r} in [people] of config.toml; it lists {known}",
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
        return Code(code, expires_at)

    async def redeem(
        self, code: str, address: str = "", *, keeps: WebSession | None = None
    ) -> tuple[str, WebSession]:
        """Exchange a code for a session: the cookie's secret and the session.

        `keeps` is a session that must not end for somebody else's: `OtherSession` is raised then,
        and the code can still be used. A good one opens otherwise. Raises `LoginFailed` for a used,
        expired or unknown one, `Overloaded` after too many of those from one `address`, or from all.
        """
        now, digest, key = self._clock.now_ms(), self._digest_of(code), self._operator_key()

        def use(tx: Tx) -> str | None:
            row = tx.one(
                "SELECT subject, used_at IS NULL AND expires_at > ? AS opens FROM web_codes"
                " WHERE code_hash = ?",
                (now, digest),
            )
            if row is not None and row["opens"]:
                self._check_same(keeps, str(row["subject"]))
            used = tx.execute(
                "UPDATE web_codes SET used_at = ?"
                " WHERE code_hash = ? AND used_at IS NULL AND expires_at > ?",
                (now, digest, now),
            ).rowcount
            return str(row["subject"]) if row is not None and used else None

        # A guess costs the writer nothing. What is compared is a digest, so time tells nothing.
        is_known = await self._database.read(
            lambda reader: reader.one("SELECT 1 FROM web_codes WHERE code_hash = ?", (digest,)),
            name="web.code",
        )
        subject = await self._database.write(use, name="web.redeem") if is_known else None
        if subject is None or self._principal(subject) is None:
            raise self._failed(
                address,
                "this link was used already, has expired or is unknown; get a new one with "
                "`agentsup link`",
            )
        return await self._begin(subject, key)

    async def sign_in(
        self, is_operator: bool, address: str = "", *, keeps: WebSession | None = None
    ) -> tuple[str, WebSession]:
        """A session for who has shown the operator's token. Raises as `redeem` does."""
        if not is_operator:
            raise self._failed(
                address, "this is not the operator's token (it is in api.token of the home)"
            )
        self._check_same(keeps, "")
        return await self._begin("", self._operator_key())

    def _check_same(self, keeps: WebSession | None, subject: str) -> None:
        """Raises `OtherSession`: a foreign link must not put somebody else's page in place of one's own."""
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
        """The living session of a cookie's secret, or None."""
        if not secret:
            return None
        session = self._sessions.get(_digest(secret))
        return session if session is not None and self.principal(session) is not None else None

    def principal(self, session: WebSession) -> Principal | None:
        """Who acts in this session now; None if it has ended or its person may nothing."""
        if session.has_ended or self.ends_at(session) <= self._clock.now_ms():
            return None
        if not session.subject and session.bound_to != self._operator_key():
            return None
        return self._principal(session.subject)

    def ends_at(self, session: WebSession) -> int:
        """When it ends unless it is used before (wall ms)."""
        limits = self._limits
        return min(session.begun_at + limits.whole_ms, session.seen_at + limits.idle_ms)

    def seen(self, session: WebSession) -> bool:
        """It is used now. Whether that is to be stored: call `note` then."""
        session.seen_at = self._clock.now_ms()
        return session.seen_at - session.noted_at >= self._limits.note_ms

    async def note(self, session: WebSession) -> None:
        """Store when it was used last; a store that is unwell loses nothing by it."""
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
        """Sign out here."""
        await self._end([session])

    async def end_all(self, subject: str) -> int:
        """Sign out everywhere; returns how many sessions ended. Codes not used yet go as well."""
        mine = [one for one in self._sessions.values() if one.subject == subject]
        await self._end(mine)
        await self._database.write(
            lambda tx: tx.execute("DELETE FROM web_codes WHERE subject = ?", (subject,)),
            name="web.end_all",
        )
        return len(mine)

    def people(self) -> dict[str, PersonRole]:
        """The persons a link can be made for."""
        return dict(self._people())

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
        # Whoever had the operator's token may have made it: it ends with that.
        return _digest(f"{self._operator_key()}:{code}")

    async def _begin(self, subject: str, key: str) -> tuple[str, WebSession]:
        secret, now = self._entropy.token(), self._clock.now_ms()
        bound_to = "" if subject else key
        session = WebSession(_digest(secret), subject, now, now, now, bound_to)

        def keep(tx: Tx) -> None:
            tx.execute(
                "INSERT INTO web_sessions (session_hash, subject, bound_to, begun_at, seen_at)"
                " VALUES (?, ?, ?, ?, ?)",
                (session.session_id, subject, bound_to, now, now),
            )

        await self._database.write(keep, name="web.begin")
        self._sessions[session.session_id] = session
        dead = [one for one in self._sessions.values() if self.ends_at(one) <= now]
        mine = [one for one in self._sessions.values() if one.subject == subject]
        mine.sort(key=lambda one: one.seen_at)
        await self._end([*dead, *mine[: max(0, len(mine) - self._limits.sessions)]])
        return secret, session

    async def _end(self, sessions: list[WebSession]) -> None:
        """In memory at once, so that nothing is served meanwhile; then on the disk."""
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
        for watcher in tuple(session.watchers):
            watcher()

    def _known(self) -> str:
        """Who may have a session, as JSON; the operator has no name."""
        return json.dumps(["", *self._people()])

    def _failed(self, address: str, why: str) -> AgentsupError:
        """Count a failure; the refusal that it gets."""
        limits, now = self._limits, self._clock.monotonic()
        of_one = self._failures_of.pop(address, None) or SlidingWindow(
            limits.failures_s, max_entries=limits.failures + 1
        )
        self._failures_of[address] = of_one
        if len(self._failures_of) > limits.addresses:
            self._failures_of.popitem(last=False)
        of_one.add(now)
        self._failures.add(now)
        count, limit = of_one.count(now), limits.failures
        if count <= limit:
            count, limit = self._failures.count(now), limits.failures_in_all
        if count <= limit:
            return LoginFailed(why)
        return Overloaded(
            f"{limit} sign-ins failed within {limits.failures_s:g} s; wait a minute, or get a link "
            "with `agentsup link`",
            queue="web.login",
            size=count,
            limit=limit,
            retry_after_s=limits.failures_s,
        )


def _prune_tx(tx: Tx, known: str) -> None:
    """Only who is in `known`, a JSON list of subjects, has sessions and links."""
    for table in ("web_sessions", "web_codes"):
        tx.execute(
            f"DELETE FROM {table}"  # noqa: S608 - one of two constants
            " WHERE subject NOT IN (SELECT value FROM json_each(?))",
            (known,),
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
