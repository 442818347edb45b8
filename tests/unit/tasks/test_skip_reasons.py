"""Why a time was passed over: stored as a reason, shown in the reader's language."""

from __future__ import annotations

import pytest

from agentsup.catalogue import words
from agentsup.model.task import OccurrenceSkipReason, SkippedOccurrence
from agentsup.tasks import skip_text

REASONS: dict[OccurrenceSkipReason, tuple[dict[str, object], str]] = {
    OccurrenceSkipReason.MANY: ({}, "verpasst, zu viele, um sie einzeln zu nennen"),
    OccurrenceSkipReason.LATER: ({}, "verpasst: inzwischen war schon eine spätere Zeit gekommen"),
    OccurrenceSkipReason.LATE: ({"seconds": 75}, "verpasst: seither waren 75 s vergangen"),
    OccurrenceSkipReason.OVERLAP: ({}, "der Lauf davor war noch nicht zu Ende"),
    OccurrenceSkipReason.BEHIND: ({"count": 100}, "100 Läufe davor waren noch nicht zu Ende"),
    OccurrenceSkipReason.PAUSED: ({}, "der Zeitplan ruhte"),
    OccurrenceSkipReason.DELETED: ({}, "die Aufgabe wurde gelöscht"),
    OccurrenceSkipReason.CANCELLED: ({"who": "Eve\n{who}"}, "abgebrochen von Eve\n{who}"),
    OccurrenceSkipReason.SET: ({"state": "done", "who": "Eve"}, "auf „done“ gesetzt von Eve"),
    OccurrenceSkipReason.CHANGED: ({"who": "Eve"}, "der Zeitplan wurde geändert von Eve"),
    OccurrenceSkipReason.RIGHTS: (
        {"rights": "removed", "who": "Eve"},
        words("de")("rights.removed", who="Eve"),
    ),
    OccurrenceSkipReason.REFUSED: ({"text": "the queue is full {"}, "the queue is full {"),
    OccurrenceSkipReason.SETUP: (
        {"count": 3, "text": "no key {"},
        "die letzten 3 Läufe sind gescheitert: no key {",
    ),
}
UNTIL = "2026-11-22T08:30:00+01:00"


@pytest.mark.parametrize("reason", OccurrenceSkipReason)
def test_each_reason_is_shown_in_german_and_by_default_in_english(
    reason: OccurrenceSkipReason,
) -> None:
    facts, german = REASONS[reason]
    skipped = SkippedOccurrence(reason, facts)
    assert skip_text(skipped, words("de")) == german
    assert skip_text(skipped) == skip_text(skipped, words())
    whole = SkippedOccurrence(reason, facts, until=UNTIL)
    assert skip_text(whole, words("de")) == f"{german}; ebenso alle Zeiten vor {UNTIL}"
    assert skip_text(whole) == f"{skip_text(skipped)}; so were all times before {UNTIL}"
