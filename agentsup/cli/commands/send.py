"""``send``: ask an agent, wait for its answer, and say when that waits for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentsup.cli.connect.client import (
    ConnectionLost,
    DaemonClient,
    DaemonRefused,
    refusal,
    segment,
)
from agentsup.cli.connect.failure import CommandFailed
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.terminal import clean

FIRST_LOOK_S: Final = 0.5
LOOK_S: Final = 1.5
"""The interval of checks for questions to people, and for what the message waits behind."""
MARGIN_S: Final = 10.0
"""The daemon itself answers when a wait is over; the request may take this much longer."""
NOTHING_NAMED: Final = "no model is configured"
"""The beginning of the reason for the offline engine where nobody asked for another."""
_QUEUED: Final = "(queued)"
_AT_WORK: Final = "(at work)"
_TIMED_OUT: Final = "timed_out"


def ask(client: DaemonClient, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The reply to a message. What its agent asks people meanwhile goes to standard error.

    Raises ``CommandFailed``.
    """
    if client.location.url:
        # This may be a turn's token, which may not see questions: send once, with the whole wait.
        return _sent(client, body, timeout_s, "")
    clock = SystemClock()
    key = body.get("idempotency_key") or SystemEntropy(clock).new_id("send")
    shown: set[str] = set()
    look_s, is_first = FIRST_LOOK_S, True
    until = clock.monotonic() + timeout_s
    while True:
        left_s = until - clock.monotonic()
        try:
            # With the same key it is one message, however often its answer is asked for.
            slice_s, look_s = min(look_s, max(left_s, 0.1)), LOOK_S
            return _sent(client, {**body, "idempotency_key": key}, slice_s, key)
        except _StillWaits as waits:
            for asked in (
                *_before(client, waits.message_id, shown),
                *_questions(client, waits.message_id, shown),
            ):
                print(asked, file=sys.stderr, flush=True)
            if not (is_first or shown) and sys.stderr.isatty():
                shown.add(_AT_WORK)
                print(f"* {body['to']} is at work …", file=sys.stderr, flush=True)
            is_first = False
            if clock.monotonic() >= until:
                why = (
                    "; it waits for the answer to a question"
                    if any(each.startswith("q_") for each in shown)
                    else ""
                )
                text = f"{body['to']} has not answered within {timeout_s:g} s{why}; "
                raise CommandFailed(
                    f"{text}the message goes on (`{client.location.command('messages show')} "
                    f"{waits.message_id}`)"
                ) from None


def engine_note(client: DaemonClient, agent: str) -> str:
    """Why another engine has answered than the files name; empty if it is that one, or if this token
    may not see it."""
    if client.location.url:
        return ""
    found = client.ask("GET", f"/agents/{segment(agent)}")
    problem = found.document.get("engine_problem", "") if found.status == 200 else ""
    nobody_asked = not problem or problem.startswith(NOTHING_NAMED)
    return "" if nobody_asked else f"* {agent}: {problem}"


class _StillWaits(Exception):
    def __init__(self, message_id: str) -> None:
        super().__init__(message_id)
        self.message_id = message_id


def _sent(
    client: DaemonClient, body: Mapping[str, Any], slice_s: float, key: str
) -> dict[str, Any]:
    """Send the message, or fetch its answer. Raises ``_StillWaits`` at the end of this slice."""
    try:
        answer = client.ask(
            "POST", "/interagent/send", {**body, "timeout": slice_s}, timeout_s=slice_s + MARGIN_S
        )
    except ConnectionLost as lost:
        raise CommandFailed(f"{lost}{_how_again(key)}") from None
    if answer.status < 400:
        return dict(answer.document)
    refused: DaemonRefused = refusal(answer, client.location)
    if key and refused.code == _TIMED_OUT:
        raise _StillWaits(str(answer.document.get("message_id", "")))
    raise refused


def _how_again(key: str) -> str:
    if key:
        return f"; the same command with --key {key} fetches the answer"
    return (
        "; the message may have been taken (see `agentsup messages list`). With --key a repeated "
        "send counts once"
    )


def _before(client: DaemonClient, message_id: str, shown: set[str]) -> Iterator[str]:
    """A line that says, once, what the message waits behind, or why its last attempt failed."""
    try:
        found = client.get(f"/messages/{segment(message_id)}")
    except CommandFailed:
        return  # as in ``_questions``
    asked, others = found.get("waits_for"), found.get("position") or 0
    if asked is not None and asked["id"] not in shown:
        shown.add(asked["id"])
        yield _asking(
            client, asked, f"this waits until an earlier question is answered: {asked['text']}"
        )
    elif asked is None and others and _QUEUED not in shown:
        shown.add(_QUEUED)
        yield f"* this waits behind {others} other{'s' if others > 1 else ''}"
    elif asked is None and (why := found.get("error")) and why not in shown:
        shown.add(why)
        yield clean(f"* it is tried again: {why}")


def _questions(client: DaemonClient, message_id: str, shown: set[str]) -> Iterator[str]:
    """The open questions of that message that were not printed yet, with how to answer."""
    try:
        found = client.get("/questions", {"state": "open", "limit": 500})["questions"]
    except CommandFailed:
        return  # only the answer matters; the next check tries again
    for one in found:
        if one["message_id"] != message_id or one["id"] in shown:
            continue
        shown.add(one["id"])
        yield _asking(client, one, f"{one['agent']} asks: {one['text']}")


def _asking(client: DaemonClient, asked: Mapping[str, Any], text: str) -> str:
    """A question as it is shown here, with how to answer it."""
    options = "".join(f"\n  {n}. {o}" for n, o in enumerate(asked["labels"], start=1))
    answer = client.location.command(f"questions answer {asked['id']}")
    return clean(f"* {text}{options}\n  answer: {answer} TEXT")
