"""Questions and menus over the Bot API: the person presses, the strict fake is in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentsup.channels.telegram.menus import TelegramPress
from agentsup.mailbox.messages import sessions
from agentsup.model.errors import StoreUnavailable
from agentsup.model.principal import OPERATOR, PersonRole
from agentsup.model.question import QuestionState
from agentsup.store import Tx
from tests.component.channels.telegram.menu_fixture import TelegramMenuFixture, menu_rig


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramMenuFixture]:
    async with menu_rig(tmp_path) as rig:
        yield rig


@pytest_asyncio.fixture
async def ann(rig: TelegramMenuFixture) -> int:
    return await rig.person("Ann")


@pytest_asyncio.fixture
async def chat(rig: TelegramMenuFixture, ann: int) -> str:
    return await rig.people.private(ann, rig.bot.bot_id)


# -- questions -------------------------------------------------------------------------------------


async def begin_session(rig: TelegramMenuFixture, key: str) -> None:
    mail = rig.mail
    at, entropy = mail.clock.now_ms(), mail.entropy
    await mail.db.write(lambda tx: sessions.new_tx(tx, "agt_main", key, at=at, entropy=entropy))


async def test_a_second_press_changes_nothing_and_says_who_was_first(
    rig: TelegramMenuFixture,
) -> None:
    ann, ben = await rig.person("Ann"), await rig.person("Ben")
    group = await rig.people.group("Group", [ann, ben, rig.bot.bot_id])
    question = await rig.ask(group)
    message = (await rig.last(group))["message_id"]
    assert (await rig.press(group, "blue", ann))["text"] == "Answered: blue"
    await rig.until_text(group, "Ann: blue", has_keyboard=False)
    data = f"q:{question.question_id}:0"
    late = await rig.people.press(group, message, data=data, user=ben, force=True)
    told = await rig.people.pressed(late)
    assert told["text"].startswith("Ann answered this at ")
    assert told["text"].endswith(": blue")
    assert told["show_alert"]
    assert (await rig.question(question.question_id)).answer == "blue"


async def test_a_press_after_the_deadline_is_told_so(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann), timeout_s=60.0)
    rig.mail.later(61)
    told = await rig.press(chat, "red", ann)
    assert told["text"].startswith("Too late: this question expired at ")
    assert told["show_alert"]
    assert "reply_markup" not in await rig.last(chat)
    await rig.mail.mailbox.deadlines.expire()
    await rig.until_text(chat, "Nobody answered in time")
    assert (await rig.question(question.question_id)).answer == ""


async def test_a_press_that_is_late_by_a_clock_that_may_be_set_can_be_repeated(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann), timeout_s=60.0)
    rig.mail.clock.jump_ms(3_600_000)  # the machine comes up with its clock an hour ahead
    await rig.restart()
    told = await rig.press(chat, "red", ann)
    assert told["text"].startswith("Too late by this machine's clock: expired at ")
    assert len(told["text"]) <= 200, "the platform shows no more of it"
    assert told["show_alert"]
    assert (await rig.question(question.question_id)).state is QuestionState.OPEN
    rig.mail.clock.jump_ms(-3_600_000)
    await rig.mail.mailbox.deadlines.expire()
    assert (await rig.press(chat, "red", ann))["text"] == "Answered: red"


async def test_a_button_from_another_chat_answers_nothing(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    ben = await rig.person("Ben")
    await rig.people.private(ben, rig.bot.bot_id)
    question = await rig.ask(str(ben))
    await rig.command(ann, "/start")
    data = f"q:{question.question_id}:0"
    message = (await rig.last(chat))["message_id"]
    query = await rig.people.press(chat, message, data=data, user=ann, force=True)
    assert (await rig.people.pressed(query))["text"] == "This button belongs to another chat."
    assert (await rig.question(question.question_id)).state is QuestionState.OPEN


@pytest.mark.parametrize(
    "data", ["q:q_nothing:0", "q:", "b:nothing", "nonsense", "again:x", "q:{}:7"]
)
async def test_a_press_that_means_nothing_is_answered_all_the_same(
    rig: TelegramMenuFixture, ann: int, chat: str, data: str
) -> None:
    question = await rig.ask(str(ann))
    message = (await rig.last(chat))["message_id"]
    data = data.format(question.question_id)
    query = await rig.people.press(chat, message, data=data, user=ann, force=True)
    assert (await rig.people.pressed(query))["text"]
    assert (await rig.question(question.question_id)).state is QuestionState.OPEN


async def test_a_question_whose_work_was_stopped_is_withdrawn(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann))
    await rig.mail.mailbox.control.stop("agent:agt_main", OPERATOR)
    await rig.until_text(chat, "Withdrawn", has_keyboard=False)
    assert (await rig.question(question.question_id)).state is QuestionState.CANCELLED


async def test_with_two_questions_open_a_text_needs_a_reply(
    rig: TelegramMenuFixture, ann: int
) -> None:
    ben = await rig.person("Ben")
    group = await rig.people.group("Group", [ann, ben, rig.bot.bot_id], forum=True)
    first = await rig.ask(group, "One?")
    one = (await rig.last(group))["message_id"]
    await begin_session(rig, f"chat:telegram:{group}")
    second = await rig.ask(group, "Two?")
    await rig.people.say(group, "red", user=ann)
    await rig.people.say(group, "green", user=ben, reply_to=one)
    await rig.people.say(group, "2", user=ben, reply_to=one)
    await rig.until_text(group, "Ben: blue", has_keyboard=False)
    assert rig.heard == ["red"]
    assert rig.words == ["Please press a button, or answer with one of: red · blue"]
    assert (await rig.question(first.question_id)).answer == "blue"
    assert (await rig.question(second.question_id)).state is QuestionState.OPEN


async def test_the_next_text_of_a_private_chat_answers_a_free_question(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    rig.repeat = True  # each update is handled twice, as after a crash
    question = await rig.ask(str(ann), "Your *name*?", options=())
    assert "Your next message is the answer" in (await rig.last(chat))["text"]
    await rig.people.say(chat, "Ann it is")
    await rig.people.say(chat, "and more")
    await rig.until_heard(1)
    assert set(rig.heard) == {"and more"}
    assert (await rig.question(question.question_id)).answer == "Ann it is"
    (told,) = set(rig.words)
    assert told.startswith("Taken as the answer to “Your *name*?”.")
    assert "/say TEXT" in told


async def test_in_a_group_a_free_question_is_answered_by_a_reply(
    rig: TelegramMenuFixture, ann: int
) -> None:
    group = await rig.people.group("Group", [ann, rig.bot.bot_id])
    question = await rig.ask(group, "Your *name*?", options=())
    shown = await rig.last(group)
    assert shown["text"].startswith("Your name?")
    assert f"/answer {question.question_id} TEXT" in shown["text"]
    await rig.people.say(group, "by the way", user=ann)
    await rig.people.say(group, "Ann it is", user=ann, reply_to=shown["message_id"])
    await rig.people.say(group, "and more", user=ann, reply_to=shown["message_id"])
    await rig.until_heard(2)
    assert rig.heard == ["by the way", "and more"]
    assert (await rig.question(question.question_id)).answer == "Ann it is"


async def test_a_reaction_in_a_topic_answers(rig: TelegramMenuFixture, ann: int) -> None:
    group = await rig.people.group(
        "Forum", [ann, rig.bot.bot_id], supergroup=True, forum=True, administrators=[rig.bot.bot_id]
    )
    topic = await rig.people.topic(group, "Plans", user=ann)
    question = await rig.ask(f"{group}/{topic}", "May I?", options=("yes", "no"))
    message = (await rig.last(group))["message_id"]
    await rig.people.react(group, message, "👎", user=ann)
    await rig.until_text(group, "Ann: no", has_keyboard=False)
    assert (await rig.question(question.question_id)).answer == "no"


def _run(tx: Tx, sql: str) -> None:
    tx.execute(sql)


# -- notes -----------------------------------------------------------------------------------------


async def test_show_again_shows_once_more_and_once_only(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    number = await rig.put_part(str(ann), "answer", {"text": "the answer"})
    await rig.mail.db.write(lambda tx: _run(tx, "UPDATE outbox SET state = 'unknown'"))
    note_body = {"text": "It may not have reached you.", "again": number}
    await rig.put_part(str(ann), "notice", note_body)
    await rig.deliver()
    note = await rig.last(chat)
    assert rig.labels(note) == [["Show again"]]
    await rig.restart()
    assert (await rig.press(chat, "Show again", ann))["text"] == "✔ Shown again."
    await rig.until_text(chat, "may not have reached", has_keyboard=False)
    await rig.deliver()
    assert (await rig.last(chat))["text"] == "the answer"
    query = await rig.people.press(
        chat, note["message_id"], data=f"again:{number}", user=ann, force=True
    )
    assert "Ann pressed this at" in (await rig.people.pressed(query))["text"]
    await rig.deliver()
    assert (await rig.people.texts(chat)).count("the answer") == 1


# -- menus -----------------------------------------------------------------------------------------


async def test_who_is_no_operator_looks_only(rig: TelegramMenuFixture, ann: int) -> None:
    ola = await rig.person("Ola", PersonRole.OPERATOR)
    group = await rig.people.group("Group", [ann, ola, rig.bot.bot_id])
    await rig.command(ola, "/agents bob", group)
    told = await rig.press(group, "Stop", ann)
    assert told["text"] == "This needs the role operator; you are user."
    assert told["show_alert"]
    await rig.press(group, "↻", ann)
    await rig.until_labels(group, [["‹ Agents", "↻"]])
    assert rig.house.calls == []


async def test_a_confirmed_press_found_again_shows_how_things_are(rig: TelegramMenuFixture) -> None:
    ola = await rig.person("Ola", PersonRole.OPERATOR)
    chat = await rig.people.private(ola, rig.bot.bot_id)
    await rig.command(ola, "/agents bob")
    await rig.press(chat, "Stop", ola)
    await rig.until_labels(chat, [["Yes: Stop", "No"]])
    rig.repeat = True
    await rig.press(chat, "Yes: Stop", ola)
    await rig.until_labels(chat, [["Start"], ["‹ Agents", "↻"]])
    assert rig.house.calls == ["stop bob"]


async def test_a_slow_command_does_not_leave_the_button_turning(rig: TelegramMenuFixture) -> None:
    ola = await rig.person("Ola", PersonRole.OPERATOR)
    chat = await rig.people.private(ola, rig.bot.bot_id)
    rig.house.states["bob"] = "stopped"
    await rig.command(ola, "/agents bob")
    rig.house.gate.clear()
    told = await rig.press(chat, "Start", ola)
    assert not told.get("text")
    rig.house.gate.set()
    await rig.until_text(chat, "bob is running.")


async def test_a_menu_that_is_gone_is_answered_in_a_new_message(rig: TelegramMenuFixture) -> None:
    ola = await rig.person("Ola", PersonRole.OPERATOR)
    chat = await rig.people.private(ola, rig.bot.bot_id)
    await rig.command(ola, "/agents bob")
    rig.put_out.clear()
    await rig.people.fault(
        "error", method="editMessageText", count=1, status=400,
        description="Bad Request: message can't be edited",
    )  # fmt: skip
    await rig.press(chat, "‹ Agents", ola)
    await rig.put_out.wait()
    await rig.deliver()
    fresh = await rig.last(chat)
    assert "1 to 6 of 10" in fresh["text"]
    await rig.press(chat, "›", ola)
    await rig.until_text(chat, "7 to 10 of 10")


# -- how an end is shown where it is hard ----------------------------------------------------------


async def test_a_question_that_was_shown_twice_ends_in_both_messages(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann))
    ((body,),) = await rig.mail.sql("SELECT body FROM outbox WHERE kind = 'question'")
    await rig.put_part(
        str(ann), "question", {**json.loads(body), "repeat_of": 1}, message_id=question.message_id
    )
    await rig.deliver()
    await rig.mail.mailbox.questions.answer(question.question_id, "red", OPERATOR)
    await rig.people.wait_for(
        chat,
        lambda view: all("✔ operator: red" in r["message"]["text"] for r in view["messages"]),
    )
    assert len(await rig.people.texts(chat)) == 2


async def test_an_end_for_which_there_is_no_room_takes_the_keyboard_only(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann), "x" * 4090)
    await rig.mail.mailbox.questions.answer(question.question_id, "red", OPERATOR)
    shown = await rig.until_text(chat, "x" * 4090, has_keyboard=False)
    assert shown["text"] == "x" * 4090
    await begin_session(rig, f"chat:telegram:{ann}")
    other = await rig.ask(str(ann), "y" * 4090)
    assert (await rig.press(chat, "red", ann))["text"] == "Answered: red"
    await rig.until_text(chat, "y" * 4090, has_keyboard=False)
    assert (await rig.question(other.question_id)).answer == "red"


async def test_an_end_that_can_t_be_put_into_the_message_is_said_below(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await rig.ask(str(ann), "Your name?", options=(), timeout_s=60.0)
    await rig.people.fault(
        "error", method="editMessageText", count=1, status=400,
        description="Bad Request: message can't be edited",
    )  # fmt: skip
    rig.put_out.clear()
    rig.mail.later(61)
    await rig.mail.mailbox.deadlines.expire()
    await rig.put_out.wait()
    await rig.deliver()
    assert (await rig.last(chat))["text"] == "“Your name?”\n\n⌛ Nobody answered in time."
    await rig.restart()
    await rig.command(ann, "/start")
    assert len(await rig.people.texts(chat)) == 3
    assert (await rig.question(question.question_id)).state is QuestionState.EXPIRED


async def test_a_message_that_was_deleted_troubles_nobody(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    first = await rig.ask(str(ann), "One?")
    await rig.people.delete(chat, (await rig.last(chat))["message_id"])
    await rig.mail.mailbox.questions.answer(first.question_id, "red", OPERATOR)
    await begin_session(rig, f"chat:telegram:{ann}")
    second = await rig.ask(str(ann), "Two?")
    await rig.mail.mailbox.questions.answer(second.question_id, "blue", OPERATOR)
    await rig.until_text(chat, "operator: blue", has_keyboard=False)
    await rig.until_ended(2)
    await rig.restart()
    await rig.command(ann, "/start")
    assert (await rig.people.report())["calls"]["editMessageText"] == 2


async def test_a_press_waits_for_a_store_that_can_t_be_used(
    rig: TelegramMenuFixture, ann: int, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = await rig.ask(str(ann))
    message = (await rig.last(chat))["message_id"]
    press = TelegramPress(
        "none", f"q:{question.question_id}:0", "update:1:1", str(ann), ann, message
    )

    async def refuse(*args: object, **fields: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(rig.mail.db, "write", refuse)
        with pytest.raises(StoreUnavailable):
            await rig.life.menus.on_press(press, rig.who[ann])
    assert rig.labels(await rig.last(chat)) == [["red", "blue"]]
    await rig.life.menus.on_press(press, rig.who[ann])
    await rig.until_text(chat, "Ann: red", has_keyboard=False)
