"""When a store is the one that was there; every line of the table is a way to lose one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.store.identity import (
    IdentityDoubt,
    RecordedIdentity,
    StoreCondition,
    StoreFile,
    before_opening,
    refusal,
    when_read,
)
from agentsup.store.record import StoreRecord, path_beside, read_record

MAIN = StoreFile("store_a", 5, is_clean=False, sequence=90)
CLEAN = StoreFile("store_a", 5, is_clean=True, sequence=100)


def past(
    condition: StoreCondition = StoreCondition.OPEN, generation: int = 5, folded: int = 5
) -> RecordedIdentity:
    return RecordedIdentity("store_a", generation, folded, 100, condition, 1_800_000_000_000)


@pytest.mark.parametrize(
    "was, size, log, main, seen, doubt",
    [
        # A new home, and one whose first start was cut off anywhere.
        (None, None, 0, None, False, None),
        (past(StoreCondition.OPENING, 0, 0), None, 0, None, False, None),
        (past(StoreCondition.OPENING, 0, 0), 0, 0, None, False, None),
        (past(StoreCondition.OPENING, 0, 0), 9, 9, StoreFile("", 0, False), False, None),
        (past(StoreCondition.OPENING, 0, 0), 9, 9, MAIN, False, None),
        # A store of before there was a record.
        (None, 9, 9, StoreFile("", 0, False), True, None),
        (None, 9, 0, StoreFile("", 0, True), True, None),
        # As it was left.
        (past(), 9, 9, MAIN, True, None),
        (past(StoreCondition.CLOSED), 9, 0, CLEAN, True, None),
        (past(StoreCondition.CLOSED), 9, 0, MAIN, True, None),
        (past(), 9, 0, CLEAN, True, None),
        (past(StoreCondition.OPENING), 9, 9, StoreFile("store_a", 6, False), True, None),
        (past(StoreCondition.OPENING), 9, 0, MAIN, True, None),
        (past(folded=4), 9, 9, StoreFile("store_a", 4, True), True, None),
        (past(), 9, 9, None, True, None),
        # Gone.
        (past(), None, 0, None, True, IdentityDoubt.MISSING),
        (past(), 0, 0, None, True, IdentityDoubt.EMPTIED),
        (None, None, 0, None, True, IdentityDoubt.MISSING),
        (None, 0, 0, None, True, IdentityDoubt.EMPTIED),
        (None, None, 9, None, False, IdentityDoubt.FOREIGN_LOG),
        # Older, alone or with the log of the newer one.
        (past(), 9, 9, StoreFile("store_a", 4, True), True, IdentityDoubt.OLDER),
        (past(), 9, 0, StoreFile("store_a", 4, True), True, IdentityDoubt.OLDER),
        (
            past(StoreCondition.CLOSED),
            9,
            0,
            StoreFile("store_a", 4, True),
            True,
            IdentityDoubt.OLDER,
        ),
        (past(), 9, 9, StoreFile("", 0, True), True, IdentityDoubt.OLDER),
        (past(), 9, 9, StoreFile("store_a", 5, True, copied_at=1), True, IdentityDoubt.BACKUP),
        (None, 9, 0, StoreFile("store_a", 5, True, copied_at=1), True, IdentityDoubt.BACKUP),
        # The log.
        (past(), 9, 0, MAIN, True, IdentityDoubt.WITHOUT_LOG),
        (past(folded=4), 9, 0, StoreFile("store_a", 4, True), True, IdentityDoubt.WITHOUT_LOG),
        (past(StoreCondition.CLOSED), 9, 9, CLEAN, True, IdentityDoubt.FOREIGN_LOG),
        (past(), 9, 9, StoreFile("store_b", 7, False), True, IdentityDoubt.OTHER_STORE),
    ],
)
def test_before_the_file_is_opened(
    was: RecordedIdentity | None,
    size: int | None,
    log: int,
    main: StoreFile | None,
    seen: bool,
    doubt: IdentityDoubt | None,
) -> None:
    assert before_opening(was, size=size, log_bytes=log, main=main, seen=seen) is doubt


@pytest.mark.parametrize(
    "found, doubt",
    [
        (StoreFile("store_a", 5, False, sequence=100), None),
        (StoreFile("store_a", 6, False, sequence=130), None),
        (StoreFile("store_a", 5, False, sequence=99), IdentityDoubt.OLDER),
        (StoreFile("store_a", 4, False, sequence=100), IdentityDoubt.OLDER),
        (StoreFile("store_b", 9, False, sequence=900), IdentityDoubt.OTHER_STORE),
    ],
)
def test_when_it_was_read_with_its_log(found: StoreFile, doubt: IdentityDoubt | None) -> None:
    assert when_read(past(), found) is doubt
    assert when_read(None, found) is None


@pytest.mark.parametrize("doubt", IdentityDoubt)
def test_a_refusal_names_the_backup_and_both_ways_on(doubt: IdentityDoubt) -> None:
    newest = Path("/h/backups/state-20270101T000000.000Z-000003.db")
    store = Path("/h/state.db")
    error = refusal(store, doubt, past(), (newest, 1_798_761_600_000))
    assert error.facts["reason"] == doubt
    for words in ("/h/state.db", newest.name, "2027-01-01 00:00:00 UTC", "--home /h restore"):
        assert words in error.message
    assert "--home /h run --accept-store" in error.message
    assert "There is no backup" in refusal(store, doubt, None, None).message


def test_a_record_that_says_nothing_counts_for_nothing(tmp_path: Path) -> None:
    path = path_beside(tmp_path / "state.db")
    assert read_record(path) is None
    for text in ("", "{", "[]", "{}", '{"store_id": 1, "generation": "x"}'):
        path.write_text(text)
        assert read_record(path) is None
    StoreRecord(tmp_path / "state.db", now_ms=lambda: 1, new_id=str).begin()
    noted = read_record(path)
    assert noted is not None
    assert (noted.generation, noted.condition) == (0, StoreCondition.OPENING)
