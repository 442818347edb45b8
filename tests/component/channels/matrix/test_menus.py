"""Questions and menus in Matrix: pressed by a reaction or a number, once, and honestly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import OutcomeUnknown, RateLimited
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from tests.component.channels.matrix.menu_fixture import ANN, ROOM, MatrixMenuFixture, menu_rigged

pytestmark = pytest.mark.virtual
THREAD = f"{ROOM}/$root"


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MatrixMenuFixture]:
    async with menu_rigged(tmp_path) as made:
        yield made


# -- questions -------------------------------------------------------------------------------------


async def test_a_question_lists_its_options_and_offers_reactions(rig: MatrixMenuFixture) -> None:
    _, event = await rig.ask("Which *colour*?")
    assert rig.shown(event) == (
        "Which colour?\n\n1. red\n2. blue\n\nAnswer with the number, or press its reaction below."
    )
    assert "<em>colour</em>" in event.content["formatted_body"]
    assert rig.rooms.reactions(event.event_id) == ["1️⃣", "2️⃣"]


@pytest.mark.parametrize("emoji, answer", [("👍", "yes"), ("👎🏽", "no"), ("2️⃣", "no")])
async def test_a_yes_or_no_is_pressed_with_a_thumb(
    rig: MatrixMenuFixture, emoji: str, answer: str
) -> None:
    question, event = await rig.ask("May I?", options=("yes", "no"))
    assert rig.rooms.reactions(event.event_id) == ["👍", "👎"]
    assert await rig.react(event, emoji)
    assert await rig.answer_of(question) == ("answered", answer)


# -- quicker than the record -----------------------------------------------------------------------


class Gate:
    """Holds up writes of one name; ``settling`` only those that say how a delivery ended."""

    def __init__(
        self,
        rig: MatrixMenuFixture,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        *,
        settling: bool = False,
    ) -> None:
        self.open, self.waits = asyncio.Event(), asyncio.Event()
        write = rig.mail.db.write

        async def slow(fn: Any, *args: Any, **options: Any) -> Any:
            settles = getattr(fn, "keywords", {}).get("settlement") is not None
            if options.get("name") == name and (settles or not settling):
                self.waits.set()
                await self.open.wait()
            return await write(fn, *args, **options)

        monkeypatch.setattr(rig.mail.db, "write", slow)


@pytest.mark.parametrize("after_s", [0.5, 15.0])
async def test_a_press_before_its_question_is_on_record_counts(
    rig: MatrixMenuFixture, monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    gate = Gate(rig, "matrix.offered", monkeypatch)
    question, event = await rig.ask()
    await gate.waits.wait()
    pressing = TaskOwner("ann")
    pressed = pressing.spawn(rig.react(event, "2️⃣"), name="press:ann")
    await rig.quiet(after_s)
    assert not pressed.done()
    gate.open.set()
    assert await pressed
    assert await rig.answer_of(question) == ("answered", "blue")


async def test_a_press_of_what_never_comes_on_record_is_given_up(
    rig: MatrixMenuFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rig, "matrix.offered", monkeypatch)
    question, event = await rig.ask()
    await gate.waits.wait()
    began = rig.mail.clock.monotonic()
    assert not await rig.react(event, "2️⃣")
    assert rig.mail.clock.monotonic() - began < 30
    assert (await rig.answer_of(question))[0] == "open"
    gate.open.set()


async def test_a_reaction_to_any_other_event_waits_for_nothing(rig: MatrixMenuFixture) -> None:
    await rig.part("notice", {"text": "words", "plain": True})
    began = rig.mail.clock.monotonic()
    assert not await rig.react(rig.last(), "2️⃣")
    assert rig.mail.clock.monotonic() - began < 2


async def test_what_fails_to_be_sent_is_waited_for_once_and_not_by_each_press(
    rig: MatrixMenuFixture,
) -> None:
    """Reactions among people would hold up the press that counts, and texts behind them."""
    question, event = await rig.ask()
    rows = [[{"label": "A", "data": "b:1"}]]
    for count in (1, 2):
        rig.rooms.before["send"] = [OutcomeUnknown("502")] * 7
        await rig.part("notice", {"text": "x", "plain": True, "buttons": rows})
        began = rig.mail.clock.monotonic()
        for number in range(5):
            press_id = f"{count}:{number}"
            assert not await rig.menus.on_reaction(ROOM, "$people", "1️⃣", ANN, press_id)
        waited_s = rig.mail.clock.monotonic() - began
        assert 20 < waited_s < 30, "a later one is waited for like the first"
        await rig.quiet(200)
    assert await rig.react(event, "2️⃣")
    assert await rig.answer_of(question) == ("answered", "blue")


async def test_a_reply_before_its_menu_is_on_record_presses_it(
    rig: MatrixMenuFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rig, "matrix.offered", monkeypatch)
    menu = await rig.command("/agents")
    await gate.waits.wait()
    saying = TaskOwner("ann")
    said = saying.spawn(rig.say("1", reply_to=menu), name="say:ann")
    await rig.quiet(0.5)
    gate.open.set()
    assert await said == ""


async def test_a_reply_to_the_newest_question_is_for_no_other(
    rig: MatrixMenuFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event is on record, but not yet that it is the question's."""
    first, _ = await rig.ask("First?")
    settle = Gate(rig, "relay.step", monkeypatch, settling=True)
    second, shown = await rig.ask("Second?", session="another")
    await settle.waits.wait()
    assert await rig.say("2", reply_to=shown) == ""
    assert await rig.answer_of(second) == ("answered", "blue")
    assert (await rig.answer_of(first))[0] == "open"
    settle.open.set()


async def test_other_reactions_are_nobodys_business(rig: MatrixMenuFixture) -> None:
    question, event = await rig.ask()
    assert not await rig.react(event, "🎉")
    assert not await rig.react(event, "3️⃣")
    assert (await rig.answer_of(question))[0] == "open"


async def test_a_question_in_a_thread_is_answered_there(rig: MatrixMenuFixture) -> None:
    question, event = await rig.ask(conversation=THREAD)
    assert event.relation["event_id"] == "$root"
    assert await rig.say("1") is None, "not in this thread"
    assert await rig.react(event, "1️⃣")
    assert await rig.answer_of(question) == ("answered", "red")


async def test_a_reaction_from_another_room_is_none(rig: MatrixMenuFixture) -> None:
    question, event = await rig.ask()
    assert not await rig.menus.on_reaction("!other:localhost", event.event_id, "1️⃣", ANN, "p")
    assert (await rig.answer_of(question))[0] == "open"


async def test_how_it_ended_is_shown_also_after_trouble(rig: MatrixMenuFixture) -> None:
    _, event = await rig.ask()
    rig.rooms.before["edit"] = [RateLimited(5.0)]
    await rig.react(event, "1️⃣")
    assert rig.shown(event).startswith("Which?\n\n1. red")
    await rig.quiet(40.0)
    assert rig.shown(event) == "Which?\n\n✔ Ann: red"


async def test_a_long_question_shows_its_end_where_its_choices_were(rig: MatrixMenuFixture) -> None:
    text = "\n\n".join(f"Paragraph {n} " + "word " * 800 for n in range(24))
    question, event = await rig.ask(text)
    assert len(rig.rooms.messages()) > 2
    await rig.react(event, "1️⃣")
    assert await rig.answer_of(question) == ("answered", "red")
    assert rig.shown(event).endswith("✔ Ann: red")


async def test_reactions_that_were_held_up_are_set_later(rig: MatrixMenuFixture) -> None:
    rig.rooms.before["reaction"] = [RateLimited(2.0), OutcomeUnknown("cut")]
    _, event = await rig.ask()
    await rig.quiet(30.0)
    assert rig.rooms.reactions(event.event_id) == ["1️⃣", "2️⃣"]


async def test_reactions_that_a_crash_cut_off_are_set_in_the_next_life(
    rig: MatrixMenuFixture,
) -> None:
    rig.rooms.before["reaction"] = [RateLimited(60.0)]
    _, event = await rig.ask()
    assert rig.rooms.reactions(event.event_id) == []
    await rig.restart()
    await rig.quiet(5.0)
    assert rig.rooms.reactions(event.event_id) == ["1️⃣", "2️⃣"]
    await rig.react(event, "1️⃣")
    await rig.restart()
    await rig.quiet(5.0)
    assert len(rig.rooms.times("reaction")) == 3, "nothing is offered there any more"


# -- menus -----------------------------------------------------------------------------------------


def number_of(text: str, label: str) -> str:
    """The number of a choice in a list."""
    (line,) = (line for line in text.splitlines() if line.endswith(f". {label}"))
    return line.split(".")[0]


async def test_a_number_typed_again_after_a_crash_presses_once(rig: MatrixMenuFixture) -> None:
    page = await rig.command("/agents bob")
    number = number_of(rig.shown(page), "Stop")
    assert await rig.say(number, press_id="event:n") == ""
    before = len(rig.rooms.messages())
    await rig.restart()
    assert await rig.say(number, press_id="event:n") == ""
    assert len(rig.rooms.messages()) == before


async def test_a_bare_number_presses_only_what_was_said_last(rig: MatrixMenuFixture) -> None:
    menu = await rig.command("/agents")
    await rig.part("answer", {"text": "1. one way\n2. another way"})
    assert await rig.say("1") is None, "it is for the agent"
    assert await rig.say("1", reply_to=menu) == "", "a reply says what is meant"


async def test_a_bare_number_is_for_the_agent_after_an_hour(rig: MatrixMenuFixture) -> None:
    await rig.command("/agents")
    rig.mail.later(3_700.0)
    assert await rig.say("1") is None


async def test_with_a_question_open_a_bare_number_for_a_menu_is_asked_about(
    rig: MatrixMenuFixture,
) -> None:
    question, event = await rig.ask()
    await rig.command("/agents")
    assert "More than one thing is open" in (await rig.say("1") or "")
    assert (await rig.answer_of(question))[0] == "open"
    assert await rig.say("1", reply_to=event) == ""
    assert await rig.answer_of(question) == ("answered", "red")


async def test_a_menu_of_one_conversation_is_not_pressed_from_another(
    rig: MatrixMenuFixture,
) -> None:
    menu = await rig.command("/agents")
    assert await rig.say("1", conversation=THREAD) is None
    assert await rig.say("1", reply_to=menu, conversation=THREAD) is None


async def test_links_have_no_number(rig: MatrixMenuFixture) -> None:
    rows = [[{"label": "Open", "url": "https://e.org/"}, {"label": "Do", "data": "b:x"}]]
    await rig.part("notice", {"text": "pick", "plain": True, "buttons": rows})
    assert "1. Do\n\nOpen: https://e.org/" in rig.shown(rig.last())
    await rig.react(rig.last(), "1️⃣")
    assert "don't know this button" in rig.shown(rig.last())


async def test_the_eleventh_choice_has_its_number_only(rig: MatrixMenuFixture) -> None:
    question, event = await rig.ask(options=tuple(f"option {n}" for n in range(1, 13)))
    assert len(rig.rooms.reactions(event.event_id)) == 10
    assert await rig.say("12") == ""
    assert await rig.answer_of(question) == ("answered", "option 12")


# -- repeats and waiting messages ------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("dies", [False, True])
async def test_what_a_press_led_to_is_shown_once_whatever_becomes_of_the_edit(
    rig: MatrixMenuFixture, when: str, *, dies: bool
) -> None:
    """The homeserver did it, or did not, and its answers were lost."""
    await rig.put("first")
    await rig.mail.claim("agt_main")
    waits = await rig.put("second")
    rig.waiting.watch(waits.message_id, ROOM)
    await rig.quiet(5.0)
    note = rig.last()
    getattr(rig.rooms, when)["edit"] = [OutcomeUnknown("cut")] * 4
    await rig.react(note, "1️⃣")
    assert await rig.mail.state_of(waits.message_id) == "cancelled"
    if dies:
        await rig.restart()
    told = "Taken back: “second”"
    for _ in range(120):
        assert rig.rooms.texts().count(told) <= 1
        await rig.quiet(0.5)
    assert rig.shown(note) == told


async def test_what_a_press_led_to_is_said_anew_where_the_note_is_gone(
    rig: MatrixMenuFixture,
) -> None:
    await rig.put("first")
    await rig.mail.claim("agt_main")
    waits = await rig.put("second")
    rig.waiting.watch(waits.message_id, ROOM)
    await rig.quiet(5.0)
    note = rig.last()
    await rig.rooms.redact(ROOM, note.event_id, txn_id="x")
    await rig.react(note, "1️⃣")
    await rig.quiet(5.0)
    assert rig.rooms.texts().count("Taken back: “second”") == 1


@pytest.mark.parametrize("door", ["read channel.waiting_note", "write matrix.close"])
@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("the disk reports an error", reason="io_error"),
        Overloaded("too many wait", queue="store.read", size=1, limit=1),
    ],
)
async def test_a_note_is_ended_also_where_the_store_fails_for_a_while(
    rig: MatrixMenuFixture, monkeypatch: pytest.MonkeyPatch, door: str, error: AgentsupError
) -> None:
    await rig.put("first")
    (lease,) = await rig.mail.claim("agt_main")
    waits = await rig.put("second")
    rig.waiting.watch(waits.message_id, ROOM)
    await rig.quiet(5.0)
    note = rig.last()
    kind, _, name = door.partition(" ")
    real, failures = getattr(rig.mail.db, kind), [error] * 4

    async def failing(fn: Any, *args: Any, **options: Any) -> Any:
        if options.get("name") == name and failures:
            raise failures.pop()
        return await real(fn, *args, **options)

    monkeypatch.setattr(rig.mail.db, kind, failing)
    await rig.mail.finish(lease, "done")
    await rig.mail.finish(await rig.mail.one("agt_main"), "done")
    await rig.quiet(30.0)
    assert failures == []
    assert rig.shown(note) == "▸ Your message waited; its turn has begun."
    assert await rig.mail.sql("SELECT 1 FROM outbox WHERE body ->> '$.cancel' IS NOT NULL") == []


async def test_a_note_of_last_week_is_ended_after_a_restart(rig: MatrixMenuFixture) -> None:
    await rig.put("first")
    assert len(await rig.mail.claim("agt_main")) == 1
    waits = await rig.put("second")
    rig.waiting.watch(waits.message_id, ROOM)
    await rig.quiet(5.0)
    note = rig.last()
    await rig.mail.db.write(
        lambda tx: tx.execute("UPDATE outbox SET ended_at = ended_at - ?", (6 * 86_400_000,))
    )
    await rig.restart()
    await rig.mail.finish(await rig.mail.one("agt_main"), "done")
    await rig.mail.finish(await rig.mail.one("agt_main"), "done")
    await rig.quiet(30.0)
    assert rig.shown(note) == "▸ Your message waited; its turn has begun."
