"""Why a time was passed over: stored as a reason, shown in the reader's language."""

from __future__ import annotations

import pytest

from agentsup.catalogue import words
from agentsup.model.task import SkippedSlot, SlotSkipReason
from agentsup.tasks.schedules import skip_text

REASONS: dict[SlotSkipReason, tuple[dict[str, object], str]] = {
    SlotSkipReason.MANY: ({}, "verpasst, zu viele, um sie einzeln zu nennen"),
    SlotSkipReason.LATER: ({}, "verpasst: inzwischen war schon eine spätere Zeit gekommen"),
    SlotSkipReason.LATE: ({"seconds": 75}, "verpasst: seither waren 75 s vergangen"),
    SlotSkipReason.OVERLAP: ({}, "der Lauf davor war noch nicht zu Ende"),
    SlotSkipReason.BEHIND: ({"count": 100}, "100 Läufe davor waren noch nicht zu Ende"),
    SlotSkipReason.PAUSED: ({}, "der Zeitplan ruhte"),
    SlotSkipReason.DELETED: ({}, "die Aufgabe wurde gelöscht"),
    SlotSkipReason.CANCELLED: ({"who": "Eve\n{who}"}, "abgebrochen von Eve\n{who}"),
    SlotSkipReason.SET: ({"state": "done", "who": "Eve"}, "auf „done“ gesetzt von Eve"),
    SlotSkipReason.CHANGED: ({"who": "Eve"}, "der Zeitplan wurde geändert von Eve"),
    SlotSkipReason.RIGHTS: (
        {"rights": "removed", "who": "Eve"},
        words("de")("rights.removed", who="Eve"),
    ),
    SlotSkipReason.REFUSED: ({"text": "the queue is full {"}, "the queue is full {"),
    SlotSkipReason.SETUP: (
        {"count": 3, "text": "no key {"},
        "die letzten 3 Läufe sind gescheitert: no key {",
    ),
}
UNTIL = "2026-11-22T08:30:00+01:00"


@pytest.mark.parametrize("reason", SlotSkipReason)
def test_each_reason_is_shown_in_german_and_by_default_in_english(reason: SlotSkipReason) -> None:
    facts, german = REASONS[reason]
    skipped = SkippedSlot(reason, facts)
    assert skip_text(skipped, words("de")) == german
    assert skip_text(skipped) == skip_text(skipped, words())
    whole = SkippedSlot(reason, facts, until=UNTIL)
    assert skip_text(whole, words("de")) == f"{german}; ebenso alle Zeiten vor {UNTIL}"
    assert skip_text(whole) == f"{skip_text(skipped)}; so were all times before {UNTIL}"
