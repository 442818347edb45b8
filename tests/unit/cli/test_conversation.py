"""What a chat client makes of frames: nothing lost, nothing doubled, questions answered by number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentsup.cli.chat.conversation import ChatState, HelloRefused, ShownItem, ShownKind
from agentsup.cli.chat.lines import line_of
from agentsup.cli.chat.painter import Painter


def conversation() -> ChatState:
    numbers = itertools.count(1)
    talk = ChatState("main", "local", lambda: f"say_{next(numbers)}")
    talk.take(welcome(10))
    return talk


def welcome(seq: int, **more: Any) -> dict[str, Any]:
    return {"type": "welcome", "agent": "main", "agent_state": "running", "seq": seq, **more}


def event(seq: int, what: str, message_id: str = "m1", **data: Any) -> dict[str, Any]:
    body = {"seq": seq, "type": what, "message_id": message_id, "data": data}
    return {"type": "event", "seq": seq, "event": body}


def out(seq: int, kind: str, text: str = "", message_id: str = "m1", **data: Any) -> dict[str, Any]:
    return event(seq, "chat.out", message_id, kind=kind, text=text, **data)


def accepted(say_id: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "accepted", "id": say_id, "message_id": message_id, "position": 0, **more}


def kinds(shown: list[ShownItem]) -> list[ShownKind]:
    return [one.kind for one in shown]


def test_the_first_hello_asks_for_history_and_the_next_resumes() -> None:
    talk = ChatState("main", "local", lambda: "say_1")
    assert "after" not in talk.hello()
    talk.take(welcome(10))
    talk.take(out(12, "answer", "hi"))
    assert talk.hello()["after"] == 12


def test_a_text_is_pending_until_confirmed_and_is_sent_again_under_its_id() -> None:
    talk = conversation()
    first, second = talk.say("one"), talk.say("two")
    assert [f["id"] for f in talk.unsent()] == [first["id"], second["id"]]
    talk.take(accepted(first["id"]))
    assert list(talk.unsent()) == [second]
    assert talk.unconfirmed == ["two"]


def test_an_event_seen_twice_counts_once() -> None:
    talk = conversation()
    assert kinds(talk.take(out(11, "answer", "hi"))) == [ShownKind.ANSWER]
    assert talk.take(out(11, "answer", "hi")) == []
    assert talk.take(out(9, "answer", "old")) == []


def test_the_answer_may_come_before_the_confirmation() -> None:
    talk = conversation()
    frame = talk.say("one")
    talk.take(out(12, "answer", "hi"))
    talk.take(accepted(frame["id"], duplicate=True))
    assert not talk.is_waiting
    assert not talk.awaited


@pytest.mark.parametrize("event_first", [True, False])
def test_my_own_text_is_not_echoed_and_another_clients_is(event_first: bool) -> None:
    talk = conversation()
    frame = talk.say("mine")
    steps = [event(11, "chat.in", text="mine"), accepted(frame["id"])]
    for step in steps if event_first else reversed(steps):
        assert talk.take(step) == []
    (other,) = talk.take(event(12, "chat.in", "m2", text="theirs", **{"from": "anna"}))
    assert (other.kind, other.who, other.text) == (ShownKind.PERSON, "anna", "theirs")


def test_a_corrected_text_is_shown_as_it_is_now() -> None:
    talk = conversation()
    edited = event(12, "chat.edited", "m2", text="the red one", **{"from": "anna"})
    (shown,) = talk.take(edited)
    assert (shown.kind, shown.who, shown.text) == (ShownKind.CORRECTED, "anna", "the red one")
    assert line_of(shown) == "anna (corrected): the red one"
    lines: list[str] = []
    Painter(lines.append, lambda: 80, plain=True).show(shown)
    assert lines == ["anna (corrected): the red one"]
    assert talk.take(edited) == []


def test_a_number_answers_the_newest_open_question() -> None:
    talk = conversation()
    talk.take(accepted(talk.say("choose")["id"]))
    (asked,) = talk.take(out(11, "question", "Which?", question_id="q1", options=["tea", "coffee"]))
    assert asked.options == ("tea", "coffee")
    assert not talk.is_waiting, "what waits for the person is not waited for"
    assert talk.say("3")["text"] == "3"
    assert talk.say(" 2 ")["text"] == "/answer q1 2"
    assert talk.is_waiting
    assert talk.say("2")["text"] == "2", "it is answered"


def test_without_a_question_a_number_is_a_text() -> None:
    talk = conversation()
    assert talk.say("2")["text"] == "2"
    talk.take(out(11, "question", "Name?", question_id="q1", options=[]))
    assert talk.say("2")["text"] == "2", "a free question is answered with /answer"


def test_a_question_is_closed_by_its_answer_elsewhere() -> None:
    talk = conversation()
    for number, question_id in enumerate(("q1", "q2", "q3")):
        talk.take(
            out(11 + number, "question", "?", f"m{number}", question_id=question_id, options=["a"])
        )
    talk.take(event(20, "question.closed", question_id="q3"))
    talk.take(out(21, "answer", "done", "m1"))
    assert list(talk.questions) == ["q1"]
    talk.closed_elsewhere(frozenset({"q9"}))
    assert talk.say("1")["text"] == "1"


def test_a_failure_ends_the_wait() -> None:
    talk = conversation()
    talk.take(accepted(talk.say("one")["id"]))
    (shown,) = talk.take(out(11, "notice", "the engine failed", outcome="failed"))
    assert not shown.ok
    assert not talk.is_waiting


def test_a_note_about_something_else_does_not() -> None:
    talk = conversation()
    talk.take(accepted(talk.say("one")["id"]))
    talk.take(out(11, "notice", "researcher asked writer", "m9"))
    assert talk.is_waiting


def test_one_note_may_end_several() -> None:
    talk = conversation()
    for number in range(4):
        talk.take(accepted(talk.say(f"text {number}")["id"], f"m{number}"))
    talk.take(out(11, "notice", "3 messages were stopped", "m2", outcome="cancelled", count=3))
    assert list(talk.awaited) == ["m3"]


def test_a_refused_text_is_told_and_dropped_but_not_where_the_daemon_is_going() -> None:
    talk = conversation()
    first, second = talk.say("one"), talk.say("two")
    assert talk.take({"type": "error", "id": first["id"], "problem": {"code": "not_ready"}}) == []
    problem = {"code": "overloaded", "detail": "the queue is full"}
    (shown,) = talk.take({"type": "error", "id": second["id"], "problem": problem})
    assert shown.text == "not sent: the queue is full"
    assert [f["id"] for f in talk.unsent()] == [first["id"]]


def test_a_refused_hello_ends_it() -> None:
    talk = ChatState("mian", "local", lambda: "say_1")
    with pytest.raises(HelloRefused, match="did you mean"):
        talk.take(
            {"type": "error", "id": "", "problem": {"detail": "no agent; did you mean main?"}}
        )


def test_another_store_is_told_and_texts_are_sent_again() -> None:
    talk = conversation()
    talk.take(accepted(talk.say("one")["id"]))
    frame = talk.say("two")
    shown = talk.take(welcome(2, reset=True, history=[]))
    assert ShownKind.NOTICE in kinds(shown)
    assert not talk.awaited
    assert list(talk.unsent()) == [frame]
    assert talk.seq == 2


def test_history_is_old_and_awaits_nothing() -> None:
    talk = ChatState("main", "local", lambda: "say_1")
    history = [
        event(1, "chat.in", text="hi")["event"],
        out(2, "answer", "hello")["event"],
    ]
    shown = talk.take(welcome(5, history=history))
    assert [(one.kind, one.old) for one in shown] == [
        (ShownKind.PERSON, True),
        (ShownKind.ANSWER, True),
        (ShownKind.WELCOME, False),
    ]
    assert talk.seq == 5


def test_a_place_in_the_queue_is_told() -> None:
    talk = conversation()
    (shown,) = talk.take(accepted(talk.say("x")["id"], position=2, eta_s=3.2))
    assert shown.text == "waits behind 2 others, about 3 s; /stop drops it"


def test_a_quiet_command_is_for_the_client() -> None:
    talk = conversation()
    frame = talk.say("/help", quiet=True)
    assert talk.unconfirmed == []
    (shown,) = talk.take({"type": "reply", "id": frame["id"], "text": "/new …", "ok": True})
    assert shown.kind is ShownKind.COMMANDS
    (loud,) = talk.take(
        {"type": "reply", "id": talk.say("/help")["id"], "text": "/new", "ok": True}
    )
    assert loud.kind is ShownKind.HELP


def test_unknown_frames_of_a_later_version_are_ignored() -> None:
    talk = conversation()
    assert talk.take({"type": "sparkle"}) == []
    assert talk.take(event(30, "message.sparkled")) == []
    assert talk.seq == 30


def test_what_runs_already_is_shown_with_the_welcome() -> None:
    """To who opens a chat midway, and to who comes back: else what follows is no part of it."""
    talk = ChatState("main", "local", lambda: "say_1")
    running = {"message_id": "m1", "text": "1 2 ", "shortened": False, "tools": []}
    shown = talk.take(welcome(10, live=[running]))
    assert kinds(shown) == [ShownKind.WELCOME, ShownKind.PICTURE]
    assert (shown[-1].text, shown[-1].message_id) == ("1 2 ", "m1")
    assert kinds(talk.take(welcome(10, live=[running])))[-1] is ShownKind.PICTURE


def test_what_is_amiss_with_the_agent_is_said_once_at_the_beginning() -> None:
    talk = ChatState("main", "local", lambda: "say_1")
    shown = talk.take(welcome(10, warnings=["no key"]))
    assert [one.text for one in shown if one.kind is ShownKind.WARNING] == ["no key"]
    assert ShownKind.WARNING not in kinds(talk.take(welcome(11, warnings=["no key"])))


def test_the_result_of_a_task_is_no_answer_of_the_turn_that_is_being_written() -> None:
    """It stands by itself, and what is being written goes on after it."""
    talk, lines = conversation(), list[str]()
    painter = Painter(lines.append, lambda: 80, plain=True)
    painter.show(ShownItem(ShownKind.DELTA, "one ", "main", "m1"))
    shown = [
        *talk.take(out(11, "answer", "Result of digging:\ndone", "task_run", of_work="digging")),
        *talk.take(out(12, "answer", "Result of :\nnamed nothing", "other_run", of_work="")),
    ]
    assert kinds(shown) == [ShownKind.RESULT, ShownKind.RESULT]
    assert line_of(shown[0]) == "main, in the background: Result of digging:\ndone"
    painter.show(shown[0])
    painter.show(ShownItem(ShownKind.DELTA, "two", "main", "m1"))
    (answer,) = talk.take(out(13, "answer", "one two", "m1"))
    assert answer.kind is ShownKind.ANSWER
    painter.show(answer)
    assert lines == ["main: one ", "main, in the background: Result of digging:", "done", "two"]
