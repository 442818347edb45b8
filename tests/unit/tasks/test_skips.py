"""Why a time was let pass: on record in English, told in the reader's language."""

from __future__ import annotations

import pytest

from agentsup.catalogue import words
from agentsup.tasks.skips import because, told

REASONS: dict[str, tuple[dict[str, object], str]] = {
    "many": ({}, "verpasst, zu viele, um sie einzeln zu nennen"),
    "later": ({}, "verpasst: inzwischen war schon eine spätere Zeit gekommen"),
    "late": ({"seconds": 75}, "verpasst: seither waren 75 s vergangen"),
    "overlap": ({}, "der Lauf davor war noch nicht zu Ende"),
    "paused": ({}, "der Zeitplan ruhte"),
    "deleted": ({}, "die Aufgabe wurde gelöscht"),
    "cancelled": ({"who": "Eve (by the way)\n{who}"}, "abgebrochen von Eve (by the way)\n{who}"),
    "set": ({"state": "done", "who": "Eve"}, "auf „done“ gesetzt von Eve"),
}
UNTIL = "2026-11-22T08:30:00+01:00"


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_is_told_in_german_and_stays_as_it_is_in_english(reason: str) -> None:
    facts, german = REASONS[reason]
    why = because(reason, **facts)
    assert told(why, words("de")) == german
    assert told(why, words()) == why
    whole = because("before", why=why, time=UNTIL)
    assert told(whole, words("de")) == f"{german}; ebenso alle Zeiten vor {UNTIL}"
    assert told(whole, words("fr")) == whole


@pytest.mark.parametrize("why", ["", "ann's queue is full (100 messages)", "missed", "{who} {"])
def test_another_text_is_told_as_it_stands(why: str) -> None:
    assert told(why, words("de")) == why
