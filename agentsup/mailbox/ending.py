"""How a message leaves the work: done, dead, cancelled, expired; or back to the queue.

Each end is one transaction with its events, its delivery and the end of all waits on it. The fence
decides who may end a turn, so a late completion changes nothing (P1, P2).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from agentsup.catalogue import words
from agentsup.kit import backoff, faults
from agentsup.mailbox import waits
from agentsup.mailbox.deliver import Result, deliver_tx
from agentsup.mailbox.rows import OPEN_SQL, need_message
from agentsup.mailbox.telling import tell
from agentsup.mailbox.values import Completion, Desk
from agentsup.mailbox.withdrawing import close_tx, is_moot, put_away_tx
from agentsup.model.errors import LeaseLost
from agentsup.model.event import EventType
from agentsup.model.message import Lease, Message, Outcome, State, check_transition
from agentsup.model.watch import FAILED, FINISHED
from agentsup.store.database import Tx

__all__ = [
    "bury_tx",
    "close_tx",
    "complete_tx",
    "expire_tx",
    "held_tx",
    "let_go_tx",
    "put_down_tx",
    "put_off_tx",
    "release_tx",
    "retry_tx",
]

_RETRY_CAP_S = 300.0
_RETRY_MOST_S = 24 * 3600.0
"""A provider that asks for a longer pause is asked again after a day."""


def held_tx(desk: Desk, tx: Tx, lease: Lease) -> Message:
    """The message of ``lease`` as it is now. Raises ``LeaseLost`` unless the lease still stands."""
    waits.hold(desk, tx, lease)
    message = need_message(tx, lease.message.message_id)
    if desk.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
        raise LeaseLost(
            f"message {message.message_id} is being stopped; drop the work",
            message_id=message.message_id,
        )
    return message


def complete_tx(desk: Desk, tx: Tx, lease: Lease, completion: Completion) -> None:
    """End the turn: state, session, delivery, waits and events together.

    Raises ``LeaseLost`` if the turn was taken over or stopped; nothing is changed then.
    """
    message = held_tx(desk, tx, lease)
    at = desk.clock.now_ms()
    is_ok = completion.outcome is Outcome.OK
    why = completion.error_text or completion.text
    if completion.notice and message.deliver_to.kind == "chat":
        why = completion.notice
    delivered = deliver_tx(
        desk,
        tx,
        message,
        Result(
            "ok" if is_ok else "failed",
            completion.text if is_ok else why,
            completion.parts if is_ok else (),
            completion.error_code,
        ),
        at=at,
    )
    if completion.engine_state is None:
        tx.execute(
            "UPDATE sessions SET updated_at = ? WHERE session_id = ?", (at, message.session_id)
        )
    else:
        tx.execute(
            "UPDATE sessions SET updated_at = ?, engine = ?, engine_state = ? WHERE session_id = ?",
            (at, completion.engine, completion.engine_state, message.session_id),
        )
    close_tx(
        tx,
        message,
        State.DONE,
        at=at,
        outcome=completion.outcome,
        result_text=completion.text,
        code=completion.error_code,
        text=completion.error_text,
        data={"delivered": delivered},
    )
    if is_ok:
        _follow_tx(desk, tx, message, FINISHED, at=at)
    else:
        code, text = completion.error_code, completion.error_text
        _follow_tx(desk, tx, message, FAILED, at=at, code=code, text=text)
    if message.attempts == 1 and message.started_at is not None:
        seconds = (at - message.started_at) / 1000
        tx.after_commit(partial(desk.pace.sample, message.agent_id, seconds))
    tx.after_commit(partial(faults.point, "turn.completed"))
    faults.point("turn.complete.before_commit")


def retry_tx(
    desk: Desk,
    tx: Tx,
    lease: Lease,
    *,
    code: str,
    text: str,
    unit: float,
    least_s: float = 0.0,
    is_last: bool = False,
    notice: str = "",
) -> State:
    """A transient failure: back to the queue with a delay, or dead after the last attempt.

    A question that is closed is not asked again: its message is cancelled. ``unit`` in [0, 1]
    places the delay within its jitter; it is never below ``least_s``. ``is_last``: no other attempt
    is made. ``notice``: what the asker reads of a dead letter instead of ``text``. Raises
    ``LeaseLost``.
    """
    message = held_tx(desk, tx, lease)
    at = desk.clock.now_ms()
    if is_moot(tx, message):
        put_away_tx(tx, message, at=at)
        return State.CANCELLED
    if is_last or message.attempts >= desk.limits.max_attempts:
        sentence = f"{message.attempts} attempts failed, the last one: {text}"
        bury_tx(desk, tx, message.message_id, code=code, text=sentence, at=at, notice=notice)
        return State.DEAD
    delay_s = backoff.delay_s(message.attempts, base_s=1.0, cap_s=_RETRY_CAP_S, unit=unit)
    delay_s = max(delay_s, min(least_s, _RETRY_MOST_S))
    not_before = desk.steady.now_ms() + round(delay_s * 1000)
    state = _requeue(
        tx, message, attempts=message.attempts, not_before=not_before, code=code, text=text
    )
    tell(
        tx,
        EventType.MESSAGE_RETRY,
        message,
        at,
        {"code": code, "text": text, "attempt": message.attempts, "not_before": not_before},
    )
    return state


def put_off_tx(
    desk: Desk, tx: Tx, lease: Lease, *, code: str, text: str, wait_s: float, unit: float
) -> None:
    """Back to the queue for ``wait_s`` seconds (and up to one more, by ``unit``), without counting
    an attempt. Raises ``LeaseLost``."""
    message = held_tx(desk, tx, lease)
    at = desk.clock.now_ms()
    if is_moot(tx, message):
        put_away_tx(tx, message, at=at)
        return
    not_before = desk.steady.now_ms() + round((wait_s + unit) * 1000)
    attempts = message.attempts - 1
    _requeue(tx, message, attempts=attempts, not_before=not_before, code=code, text=text)
    facts = {"code": code, "text": text, "attempt": max(0, attempts), "not_before": not_before}
    tell(tx, EventType.MESSAGE_RETRY, message, at, facts)


def release_tx(desk: Desk, tx: Tx, lease: Lease) -> None:
    """Back to the queue at the same place, without counting an attempt. Raises ``LeaseLost``."""
    message = held_tx(desk, tx, lease)
    _give_back(tx, message, desk.clock.now_ms())


def let_go_tx(
    desk: Desk,
    tx: Tx,
    instance_id: str,
    *,
    culprits: Collection[str] | None = (),
    text: str = "",
) -> list[str]:
    """A stack is over: no lease of its instance stays held. Returns the ids of the culprits.

    ``culprits`` are the messages on which it crashed (None: all of them): each counts a crash and
    is queued again, or dead. The others go back to the queue without counting an attempt, whether
    their turn was known to the stack or still on its way to it.
    """
    at = desk.clock.now_ms()
    rows = tx.all(
        f"SELECT message_id FROM messages INDEXED BY messages_open WHERE {OPEN_SQL} AND state = 'leased'"  # noqa: S608 - a constant
        " AND lease_instance = ? AND lease_boot = ? ORDER BY seq",
        (instance_id, desk.boot_id),
    )
    blamed = []
    for row in rows:
        message = need_message(tx, row["message_id"])
        if desk.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
            continue  # the stop that is under way cancels it
        if culprits is None or message.message_id in culprits:
            blamed.append(str(message.message_id))
            _crash(desk, tx, message, text, at)
        else:
            _give_back(tx, message, at)
    return blamed


def _give_back(tx: Tx, message: Message, at: int) -> None:
    if is_moot(tx, message):
        put_away_tx(tx, message, at=at)
        return
    state = _requeue(tx, message, attempts=message.attempts - 1)
    event = EventType.MESSAGE_PARKED if state is State.PARKED else EventType.MESSAGE_RETRY
    tell(tx, event, message, at, {"code": "released"})


def put_down_tx(tx: Tx, message: Message, at: int) -> bool:
    """Park a message whose turn was cut off while a person was asked: until there is an answer,
    nothing is to be run again, whatever time that takes. False: nobody is being asked."""
    if not _is_asked(tx, message):
        return False
    _give_back(tx, message, at)
    return True


def _is_asked(tx: Tx, message: Message) -> bool:
    """A question that the turn has put in place, without ending its segment, is open."""
    return bool(
        tx.scalar(
            "SELECT 1 FROM questions WHERE message_id = ? AND state = 'open' LIMIT 1",
            (message.message_id,),
        )
    )


def _crash(desk: Desk, tx: Tx, message: Message, text: str, at: int) -> None:
    if is_moot(tx, message):
        put_away_tx(tx, message, at=at)
        return
    crashes = message.crashes + 1
    tx.execute("UPDATE messages SET crashes = ? WHERE seq = ?", (crashes, message.seq))
    if crashes >= desk.limits.max_crashes or message.attempts >= desk.limits.max_attempts:
        sentence = f"the agent crashed on it {crashes} times, the last time: {text}"
        bury_tx(desk, tx, message.message_id, code="crashed", text=sentence, at=at)
        return
    _requeue(tx, message, attempts=message.attempts, code="crashed", text=text)
    facts = {"code": "crashed", "text": text, "attempt": message.attempts}
    tell(tx, EventType.MESSAGE_RETRY, message, at, facts)


def bury_tx(
    desk: Desk, tx: Tx, message_id: str, *, code: str, text: str, at: int, notice: str = ""
) -> None:
    """Make a message a dead letter and tell its asker: a person ``notice``, if there is one."""
    message = need_message(tx, message_id)
    why = notice.removesuffix(".") if message.deliver_to.kind == "chat" else ""
    told = words(message.principal.language)("ended.dead", why=why or text)
    delivered = deliver_tx(desk, tx, message, Result("dead", told, code=code), at=at)
    close_tx(tx, message, State.DEAD, at=at, code=code, text=text, data={"delivered": delivered})
    _follow_tx(desk, tx, message, FAILED, at=at, code=code, text=text)


def expire_tx(desk: Desk, tx: Tx, message_id: str, *, at: int) -> None:
    """End a queued message whose time is over: failed, with a notice."""
    message = need_message(tx, message_id)
    text = "it was not started before its time was over"
    sentence = words(message.principal.language)("ended.expired")
    delivered = deliver_tx(desk, tx, message, Result("expired", sentence, code="expired"), at=at)
    close_tx(
        tx,
        message,
        State.DONE,
        at=at,
        outcome=Outcome.FAILED,
        code="expired",
        text=text,
        data={"delivered": delivered},
    )
    _follow_tx(desk, tx, message, FAILED, at=at, code="expired", text=text)


def _follow_tx(
    desk: Desk, tx: Tx, message: Message, what: str, *, at: int, code: str = "", text: str = ""
) -> None:
    for follower in desk.followers:
        follower.changed_tx(tx, message, what, at=at, code=code, text=text)


def _requeue(
    tx: Tx,
    message: Message,
    *,
    attempts: int,
    not_before: int = 0,
    code: str = "",
    text: str = "",
) -> State:
    """Back to the queue; where a person is asked about it, it waits for the answer first."""
    state = State.PARKED if _is_asked(tx, message) else State.QUEUED
    check_transition(message.message_id, message.state, state)
    tx.execute(
        "UPDATE messages SET state = ?, attempts = ?, not_before = ?, lease_until = NULL,"
        " error_code = ?, error_text = ? WHERE seq = ?",
        (state.value, max(0, attempts), not_before, code, text, message.seq),
    )
    waits.close_tx(tx, message.message_id, as_target=False)
    tx.touch(f"agent:{message.agent_id}")
    return state
