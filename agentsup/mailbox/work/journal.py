"""The tool-call journal: with the segments of a turn (``messages.segments``), what makes it resumable.

Before a call that is not read-only an intent is committed, after it the result. A turn that runs
again finds finished calls here instead of repeating them, and a blind call that was begun but
never recorded is a question for a person, not a second try (P2, P8).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from agentsup.kit.clock import Clock
from agentsup.mailbox.messages import segments
from agentsup.model.errors import AgentsupError, Conflict, NotFound
from agentsup.model.tool import Effect
from agentsup.store import Database, Reader, Tx, from_row

MAX_RESULT_BYTES = 256 * 1024
"""A longer result is cut here and gets a note; the caller gets the same shortened text."""

Resolution = Literal["done", "skipped", "again"]


class Uncertain(AgentsupError):
    """A blind call was begun earlier and its outcome is unknown: ask a person before going on."""

    code = "uncertain_call"
    status = 409

    def __init__(self, call: CallRecord) -> None:
        super().__init__(
            f"the call of {call.name} ({call.call_id}) was begun before and its outcome is "
            "unknown; a person must say whether it happened",
            call_id=call.call_id,
            tool=call.name,
        )
        self.call = call


class Diverged(Conflict):
    """The journal has another call under this id: the turn went another way than before."""

    code = "diverged"


@dataclass(frozen=True, slots=True)
class Replay:
    """The recorded result of a call that is not run again."""

    ok: bool
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One row of the journal. ``state``: intent | done | failed | unknown | skipped."""

    call_id: str
    message_id: str
    name: str
    effect: Effect
    state: str
    text: str
    code: str
    started_at: int
    ended_at: int | None
    question_id: str = ""
    answer: str | None = None
    """A person's answer about an uncertain call; empty if the question expired unanswered, None
    while nobody was asked or the question is open."""


class Journal:
    """Writes and reads ``tool_calls``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # -- calls -------------------------------------------------------------------------------------

    async def begin(
        self,
        call_id: str,
        message_id: str,
        fence: int,
        name: str,
        effect: Effect,
        args: dict[str, Any],
    ) -> Replay | None:
        """Commit the intent to make a call; None: make it now, and ``finish`` it.

        A ``Replay`` is the outcome of the same call in an earlier segment: use it instead. Nothing
        is written for read-only calls. Raises ``LeaseLost`` if the lease is not held any more (so
        no effect begins after a stop was committed), ``Uncertain`` for a blind call that was begun
        before and never recorded, ``Diverged`` if the id belongs to another call.
        """
        if effect is Effect.READ:
            return None
        digest = args_hash(name, args)
        now = self._clock.now_ms()

        def begin(tx: Tx) -> Replay | CallRecord | None:
            segments.check_lease(tx, message_id, fence)
            known = _call(tx, call_id)
            if known is None:
                tx.execute(
                    "INSERT INTO tool_calls"
                    " (call_id, message_id, name, effect, args_hash, state, started_at)"
                    " VALUES (?, ?, ?, ?, ?, 'intent', ?)",
                    (call_id, message_id, name, effect.value, digest, now),
                )
                return None
            if known.state in ("intent", "unknown") and known.effect is Effect.BLIND:
                tx.execute("UPDATE tool_calls SET state = 'unknown' WHERE call_id = ?", (call_id,))
                return known
            _check_same(tx, known, name, digest)
            if known.state in ("intent", "unknown"):
                tx.execute(
                    "UPDATE tool_calls SET state = 'intent', started_at = ? WHERE call_id = ?",
                    (now, call_id),
                )
                return None
            return Replay(known.state == "done", known.text, known.code)

        found = await self._database.write(begin, name="journal.begin")
        if isinstance(found, CallRecord):
            raise Uncertain(found)
        return found

    async def finish(self, call_id: str, ok: bool, text: str, code: str = "") -> str:
        """Commit the outcome of a call; return the text as stored, at most 256 KiB long.

        Give the model the returned text, so that a replay says the same. The outcome is recorded
        even if the lease was lost, because the call has happened. A read-only call has no row; its
        text is shortened and returned all the same.
        """
        stored = bounded(text)
        now = self._clock.now_ms()
        state = "done" if ok else "failed"
        await self._database.write(
            lambda tx: (
                tx.execute(
                    "UPDATE tool_calls SET state = ?, result = ?, code = ?, ended_at = ?"
                    " WHERE call_id = ? AND state IN ('intent', 'unknown')",
                    (state, stored, code, now, call_id),
                ).rowcount
            ),
            name="journal.finish",
            closing=True,
        )
        return stored

    async def calls(self, message_id: str) -> list[CallRecord]:
        """Every recorded call of a message, in the order they were begun."""
        return await self._database.read(_calls, message_id, name="journal.calls")

    async def uncertain(self, message_id: str) -> list[CallRecord]:
        """Blind calls of a turn that were begun and neither recorded nor resolved.

        Call it only between segments: a call that still runs looks the same. ``answer`` is what a
        person answered about the call, if one was asked; pass it on with ``resolve``.
        """
        return await self._database.read(
            lambda r: [
                call
                for call in _calls(r, message_id)
                if call.effect is Effect.BLIND and call.state in ("intent", "unknown")
            ],
            name="journal.uncertain",
        )

    def ask_about_tx(self, tx: Tx, call_id: str, question_id: str) -> None:
        """Record the question that asks a person about an uncertain call."""
        changed = tx.execute(
            "UPDATE tool_calls SET state = 'unknown', question_id = ?"
            " WHERE call_id = ? AND state IN ('intent', 'unknown')",
            (question_id, call_id),
        ).rowcount
        if not changed:
            raise _not_uncertain(tx, call_id)

    def resolve_tx(self, tx: Tx, call_id: str, resolution: Resolution) -> None:
        """Settle an uncertain call as a person said.

        ``done``: it happened, its output is not known. ``skipped``: it is left out, and the model
        is told. ``again``: it may be made once more. Raises ``Conflict`` if it is not uncertain,
        ``NotFound`` for an unknown id.
        """
        if resolution == "again":
            changed = tx.execute(
                "DELETE FROM tool_calls WHERE call_id = ? AND state IN ('intent', 'unknown')",
                (call_id,),
            ).rowcount
        else:
            text, code = _RESOLVED[resolution]
            changed = tx.execute(
                "UPDATE tool_calls SET state = ?, result = ?, code = ?, ended_at = ?"
                " WHERE call_id = ? AND state IN ('intent', 'unknown')",
                (resolution, text, code, self._clock.now_ms(), call_id),
            ).rowcount
        if not changed:
            raise _not_uncertain(tx, call_id)

    async def resolve(self, call_id: str, resolution: Resolution) -> None:
        """``resolve_tx`` in a transaction of its own."""
        await self._database.write(self.resolve_tx, call_id, resolution, name="journal.resolve")


# -- pure ------------------------------------------------------------------------------------------

_RESOLVED: dict[str, tuple[str, str]] = {
    "done": ("(A person confirmed that this was carried out. Its output is not known.)", ""),
    "skipped": (
        "This was not carried out: it was interrupted, and a person chose to leave it out.",
        "skipped",
    ),
}


def args_hash(name: str, args: dict[str, Any]) -> str:
    """A digest of a call's content: equal for equal names and arguments, whatever their order."""
    text = json.dumps([name, args], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def bounded(text: str, limit_bytes: int = MAX_RESULT_BYTES) -> str:
    """``text``, or its beginning and a note if it is longer than ``limit_bytes`` in UTF-8."""
    raw = text.encode("utf-8", "replace")  # half a surrogate pair could not be stored
    if len(raw) <= limit_bytes:
        return raw.decode()
    note = f"\n[shortened: the first {limit_bytes} of {len(raw)} bytes were kept]"
    room = max(0, limit_bytes - len(note))
    return raw[:room].decode("utf-8", "ignore") + note


# -- rows ------------------------------------------------------------------------------------------

_CALLS = (
    "SELECT t.*, q.state AS question_state, q.decision, q.answer FROM tool_calls t"
    " LEFT JOIN questions q ON q.question_id = t.question_id"
)


def _check_same(tx: Tx, known: CallRecord, name: str, digest: str) -> None:
    stored = tx.scalar("SELECT args_hash FROM tool_calls WHERE call_id = ?", (known.call_id,))
    if stored != digest:
        raise Diverged(
            f"the journal holds another call of {known.name} under {known.call_id}; "
            f"this one is {name}",
            call_id=known.call_id,
        )


def _call(reader: Reader, call_id: str) -> CallRecord | None:
    return reader.value(_record, f"{_CALLS} WHERE t.call_id = ?", (call_id,))


def _calls(reader: Reader, message_id: str) -> list[CallRecord]:
    return reader.values(
        _record, f"{_CALLS} WHERE t.message_id = ? ORDER BY t.rowid", (message_id,)
    )


def _record(row: Any) -> CallRecord:
    text, effect = row["result"], Effect(row["effect"])
    return from_row(CallRecord, row, effect=effect, text=text, answer=segments.answer_of(row))


def _not_uncertain(tx: Tx, call_id: str) -> AgentsupError:
    known = _call(tx, call_id)
    if known is None:
        return NotFound(f"there is no call {call_id} in the journal", call_id=call_id)
    return Conflict(
        f"the call of {known.name} ({call_id}) is {known.state}, so there is nothing to decide",
        call_id=call_id,
        state=known.state,
    )
