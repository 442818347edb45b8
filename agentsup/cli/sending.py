"""`send`: ask an agent, wait for its answer, and say when that waits for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentsup.cli.client import Client, ConnectionLost, Refused, refusal
from agentsup.cli.failure import Failed
from agentsup.cli.show import clean
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy

__all__ = ["ask"]

LOOK_S: Final = 2.0
"""So often one looks whether a person is asked something."""
MARGIN_S: Final = 10.0
"""The daemon says itself that a wait is over; we wait a little longer than that."""
_TIMED_OUT: Final = "timed_out"


def ask(client: Client, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The reply to a message. What its agent asks people meanwhile goes to standard error.

    Raises `Failed`.
    """
    if client.place.url:
        # Perhaps a turn's own token: it waits once, and may not see questions.
        return _sent(client, body, timeout_s, timeout_s, "")
    clock = SystemClock()
    key = body.get("idempotency_key") or SystemEntropy(clock).new_id("send")
    told: set[str] = set()
    until = clock.monotonic() + timeout_s
    while True:
        left_s = until - clock.monotonic()
        try:
            # The same key: it is one message, however often one asks for its answer.
            slice_s = min(LOOK_S, max(left_s, 0.1))
            return _sent(client, {**body, "idempotency_key": key}, slice_s, timeout_s, key)
        except _StillWaits as waits:
            for asked in _questions(client, waits.message_id, told):
                print(asked, file=sys.stderr, flush=True)
            if clock.monotonic() >= until:
                why = "; it waits for the answer to its question" if told else ""
                text = f"{body['to']} has not answered within {timeout_s:g} s{why}; "
                raise Failed(
                    f"{text}the message goes on (`{client.place.command('messages show')} "
                    f"{waits.message_id}`)"
                ) from None


class _StillWaits(Exception):
    def __init__(self, message_id: str) -> None:
        super().__init__(message_id)
        self.message_id = message_id


def _sent(
    client: Client, body: Mapping[str, Any], slice_s: float, timeout_s: float, key: str
) -> dict[str, Any]:
    """Raises `_StillWaits` where a slice of the whole wait is over."""
    try:
        answer = client.ask(
            "POST", "/interagent/send", {**body, "timeout": slice_s}, timeout_s=slice_s + MARGIN_S
        )
    except ConnectionLost as lost:
        raise Failed(f"{lost}{_how_again(key)}") from None
    if answer.status < 400:
        return dict(answer.document)
    refused: Refused = refusal(answer, client.place)
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


def _questions(client: Client, message_id: str, told: set[str]) -> Iterator[str]:
    """What is asked about that message and was not told yet, with how to answer."""
    try:
        found = client.get("/questions", {"state": "open", "limit": 500})["questions"]
    except Failed:
        return  # the answer matters; the next look tells
    for one in found:
        if one["message_id"] != message_id or one["id"] in told:
            continue
        told.add(one["id"])
        options = "".join(f"\n  {n}. {o}" for n, o in enumerate(one["labels"], start=1))
        answer = client.place.command(f"questions answer {one['id']}")
        yield clean(f"* {one['agent']} asks: {one['text']}{options}\n  answer: {answer} TEXT")
