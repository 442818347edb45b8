"""When a store is the one that was there; every line of the table is a way to lose one."""

from pathlib import Path

import pytest

from agentsup.store.record import StoreRecord, path_beside, remembered
from agentsup.store.trust import (
    Condition,
    Doubt,
    MainFile,
    Remembered,
    before_opening,
    refusal,
    when_read,
)

MAIN = MainFile("store_a", 5, is_clean=False, sequence=90)
CLEAN = MainFile("store_a", 5, is_clean=True, sequence=100)


def past(condition: Condition = Condition.OPEN, generation: int = 5, folded: int = 5) -> Remembered:
    return Remembered("store_a", generation, folded, 100, condition, 1_800_000_000_000)


@pytest.mark.parametrize(
    "was, size, log, main, seen, doubt",
    [
        # A new home, and one whose first start was cut off anywhere.
        (None, None, 0, None, False, None),
        (past(Condition.OPENING, 0, 0), None, 0, None, False, None),
        (past(Condition.OPENING, 0, 0), 0, 0, None, False, None),
        (past(Condition.OPENING, 0, 0), 9, 9, MainFile("", 0, False), False, None),
        (past(Condition.OPENING, 0, 0), 9, 9, MAIN, False, None),
        # A store of before there was a record.
        (None, 9, 9, MainFile("", 0, False), True, None),
        (None, 9, 0, MainFile("", 0, True), True, None),
        # As it was left.
        (past(), 9, 9, MAIN, True, None),
        (past(Condition.CLOSED), 9, 0, CLEAN, True, None),
        (past(Condition.CLOSED), 9, 0, MAIN, True, None),
        (past(), 9, 0, CLEAN, True, None),
        (past(Condition.OPENING), 9, 9, MainFile("store_a", 6, False), True, None),
        (past(Condition.OPENING), 9, 0, MAIN, True, None),
        (past(folded=4), 9, 9, MainFile("store_a", 4, True), True, None),
        (past(), 9, 9, None, True, None),
        # Gone.
        (past(), None, 0, None, True, Doubt.MISSING),
        (past(), 0, 0, None, True, Doubt.EMPTIED),
        (None, None, 0, None, True, Doubt.MISSING),
        (None, 0, 0, None, True, Doubt.EMPTIED),
        (None, None, 9, None, False, Doubt.FOREIGN_LOG),
        # Older, alone or with the log of the newer one.
        (past(), 9, 9, MainFile("store_a", 4, True), True, Doubt.OLDER),
        (past(), 9, 0, MainFile("store_a", 4, True), True, Doubt.OLDER),
        (past(Condition.CLOSED), 9, 0, MainFile("store_a", 4, True), True, Doubt.OLDER),
        (past(), 9, 9, MainFile("", 0, True), True, Doubt.OLDER),
        (past(), 9, 9, MainFile("store_a", 5, True, copied_at=1), True, Doubt.BACKUP),
        (None, 9, 0, MainFile("store_a", 5, True, copied_at=1), True, Doubt.BACKUP),
        # The log.
        (past(), 9, 0, MAIN, True, Doubt.WITHOUT_LOG),
        (past(folded=4), 9, 0, MainFile("store_a", 4, True), True, Doubt.WITHOUT_LOG),
        (past(Condition.CLOSED), 9, 9, CLEAN, True, Doubt.FOREIGN_LOG),
        (past(), 9, 9, MainFile("store_b", 7, False), True, Doubt.OTHER_STORE),
    ],
)
def test_before_the_file_is_opened(
    was: Remembered | None,
    size: int | None,
    log: int,
    main: MainFile | None,
    seen: bool,
    doubt: Doubt | None,
) -> None:
    assert before_opening(was, size=size, log_bytes=log, main=main, seen=seen) is doubt


@pytest.mark.parametrize(
    "found, doubt",
    [
        (MainFile("store_a", 5, False, sequence=100), None),
        (MainFile("store_a", 6, False, sequence=130), None),
        (MainFile("store_a", 5, False, sequence=99), Doubt.OLDER),
        (MainFile("store_a", 4, False, sequence=100), Doubt.OLDER),
        (MainFile("store_b", 9, False, sequence=900), Doubt.OTHER_STORE),
    ],
)
def test_when_it_was_read_with_its_log(found: MainFile, doubt: Doubt | None) -> None:
    assert when_read(past(), found) is doubt
    assert when_read(None, found) is None


@pytest.mark.parametrize("doubt", Doubt)
def test_a_refusal_names_the_backup_and_both_ways_on(doubt: Doubt) -> None:
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
    assert remembered(path) is None
    for text in ("", "{", "[]", "{}", '{"store_id": 1, "generation": "x"}'):
        path.write_text(text)
        assert remembered(path) is None
    StoreRecord(tmp_path / "state.db", now_ms=lambda: 1, new_id=str).begin()
    noted = remembered(path)
    assert noted is not None
    assert (noted.generation, noted.condition) == (0, Condition.OPENING)
