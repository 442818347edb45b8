"""When a store is the one that was there; every line of the table is a way to lose one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentsup.store import backup
from agentsup.store.identity import (
    IdentityDoubt,
    RecordedIdentity,
    StoreFile,
    StoreRecord,
    doubt_before_opening,
    doubt_when_read,
    path_beside,
    read_record,
    refusal,
)

MAIN = StoreFile("store_a", 5, is_clean=False, sequence=90)
CLEAN = StoreFile("store_a", 5, is_clean=True, sequence=100)
OLD = StoreFile("store_a", 4, is_clean=True)
NONE = RecordedIdentity()


def past(*, has_log: bool = True, folded: int = 5) -> RecordedIdentity:
    return RecordedIdentity("store_a", 5, folded, 100, has_log, 1_800_000_000_000)


@pytest.mark.parametrize(
    "was, size, log, main, doubt",
    [
        # A new home, and one whose first start was cut off anywhere.
        (NONE, 0, 0, None, None),
        (NONE, 9, 9, StoreFile("", 0, False), None),
        (NONE, 9, 9, MAIN, None),
        # As it was left.
        (past(), 9, 9, MAIN, None),
        (past(has_log=False), 9, 0, CLEAN, None),
        (past(has_log=False), 9, 0, MAIN, None),
        (past(), 9, 0, CLEAN, None),
        (past(has_log=False), 9, 9, StoreFile("store_a", 6, False), None),
        (past(folded=4), 9, 9, OLD, None),
        (past(), 9, 9, None, None),
        # Gone.
        (past(), 0, 0, None, IdentityDoubt.MISSING),
        (past(has_log=False), 0, 0, None, IdentityDoubt.MISSING),
        # Older, alone or with the log of the newer one, or another.
        (past(), 9, 9, OLD, IdentityDoubt.OLDER),
        (past(), 9, 0, OLD, IdentityDoubt.OLDER),
        (past(has_log=False), 9, 0, OLD, IdentityDoubt.OLDER),
        (past(), 9, 9, StoreFile("", 0, True), IdentityDoubt.OLDER),
        (past(), 9, 9, StoreFile("store_a", 5, True, copied_at=1), IdentityDoubt.OLDER),
        (past(), 9, 9, StoreFile("store_b", 7, False), IdentityDoubt.OLDER),
        # The log.
        (past(), 9, 0, MAIN, IdentityDoubt.WITHOUT_LOG),
        (past(folded=4), 9, 0, OLD, IdentityDoubt.WITHOUT_LOG),
    ],
)
def test_before_the_file_is_opened(
    was: RecordedIdentity,
    size: int,
    log: int,
    main: StoreFile | None,
    doubt: IdentityDoubt | None,
) -> None:
    assert doubt_before_opening(was, size=size, log_bytes=log, main=main) is doubt


@pytest.mark.parametrize(
    "found, doubt",
    [
        (StoreFile("store_a", 5, False, sequence=100), None),
        (StoreFile("store_a", 6, False, sequence=130), None),
        (StoreFile("store_a", 5, False, sequence=99), IdentityDoubt.OLDER),
        (StoreFile("store_a", 4, False, sequence=100), IdentityDoubt.OLDER),
        (StoreFile("store_b", 9, False, sequence=900), IdentityDoubt.OLDER),
    ],
)
def test_when_it_was_read_with_its_log(found: StoreFile, doubt: IdentityDoubt | None) -> None:
    assert doubt_when_read(past(), found) is doubt
    assert doubt_when_read(NONE, found) is None


@pytest.mark.parametrize("doubt", IdentityDoubt)
def test_a_refusal_names_the_backup_and_both_ways_on(tmp_path: Path, doubt: IdentityDoubt) -> None:
    store = tmp_path / "state.db"
    assert "There is no backup" in refusal(store, doubt, NONE).message
    newest = tmp_path / "backups" / f"state-{backup.stamp(1_798_761_600_000)}-000003.db"
    newest.parent.mkdir()
    newest.touch()
    error = refusal(store, doubt, past())
    assert error.facts["reason"] == doubt
    for words in (str(store), newest.name, "2027-01-01 00:00:00 UTC", f"--home {tmp_path} restore"):
        assert words in error.message
    assert f"--home {tmp_path} run --accept-store" in error.message


def test_a_record_that_says_nothing_counts_for_nothing(tmp_path: Path) -> None:
    path = path_beside(tmp_path / "state.db")
    assert read_record(path) is None
    for text in ("", "{", "[]", "{}", '{"store_id": 1, "generation": "x"}'):
        path.write_text(text)
        assert read_record(path) is None
    StoreRecord(tmp_path / "state.db", now_ms=lambda: 1, new_id=str).begin()
    assert read_record(path) == NONE


@pytest.mark.parametrize("condition", ["open", "opening", "closed"])
def test_a_record_of_an_earlier_version_counts(tmp_path: Path, condition: str) -> None:
    path = path_beside(tmp_path / "state.db")
    fields = {"store_id": "store_a", "generation": 5, "folded": 4, "sequence": 100, "at": 7}
    path.write_text(json.dumps(fields | {"condition": condition}).ljust(511) + "\n")
    expected = RecordedIdentity("store_a", 5, 4, 100, condition == "open", 7)
    assert read_record(path) == expected
