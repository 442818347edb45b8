"""What a claim has seen decides when the pump looks again, and how long it may sleep."""

from __future__ import annotations

from agentsup.mailbox.messages.values import Claimed
from agentsup.mailbox.work.claim_view import ClaimView
from agentsup.model.message import LaneName

CHAT = LaneName.INTERACTIVE


def view(claimed: Claimed, *sessions: str, touches: int = 3) -> ClaimView:
    return ClaimView.of(claimed, touches=touches, sessions=sessions, steady_ms=1_000, now_s=50.0)


def test_a_claim_that_has_seen_all_and_left_nothing_needs_no_other() -> None:
    seen = view(Claimed((), None))
    assert not seen.may_find_more(3)
    assert seen.may_find_more(4), "a commit has woken the pump since"


def test_what_was_left_is_looked_for_again() -> None:
    assert view(Claimed((), None, left=frozenset({CHAT}))).may_find_more(3)


def test_a_session_that_became_free_before_the_commit_was_left() -> None:
    claimed = Claimed((), None, at_work={"s1": CHAT})
    assert not view(claimed, "s1").left
    assert view(claimed, "s2").left == {CHAT}


def test_the_pump_sleeps_until_a_message_is_due() -> None:
    seen = view(Claimed((), 3_500))
    assert seen.due_s == 52.5
    assert seen.pause_s(50.5, 60.0) == 2.0
    assert seen.pause_s(53.0, 60.0) == 0.0
    assert seen.pause_s(0.0, 60.0) == 52.5
    assert view(Claimed((), 900_000)).pause_s(50.0, 60.0) == 60.0
    assert view(Claimed((), None)).pause_s(50.0, 60.0) == 60.0


def test_a_due_message_without_a_slot_is_looked_for_with_the_next_free_one() -> None:
    seen = view(Claimed((), 3_500))
    assert seen.after_due(52.0) is seen
    after = seen.after_due(52.5)
    assert after.pause_s(53.0, 60.0) == 60.0, "without a slot there is nothing to wake for"
    assert after.may_find_more(3)


def test_an_earlier_due_time_shortens_the_sleep() -> None:
    none, soon, late = (view(Claimed((), due_at)) for due_at in (None, 2_000, 9_000))
    assert soon.is_due_before(late)
    assert soon.is_due_before(none)
    assert not late.is_due_before(soon)
    assert not none.is_due_before(soon)
