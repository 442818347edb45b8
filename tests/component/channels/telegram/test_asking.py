"""A turn asks through the whole bot: shown by the relay, answered by a person, and gone on with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.mailbox.messages import Completion
from agentsup.mailbox.work import Work
from agentsup.model.engine import Suspended
from agentsup.model.message import MessageOutcome
from agentsup.model.question import AnswerableBy
from tests.component.channels.telegram.fixture import TelegramFixture, rigged

OPTIONS = ("red", "blue")


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TelegramFixture]:
    """An agent that asks first and then says what it was answered."""
    async with rigged(tmp_path) as rig:

        async def asks(work: Work) -> None:
            message = work.lease.message
            answered = [
                question
                for question in await rig.mailbox.questions.list(None)
                if question.message_id == message.message_id
            ]
            if answered:
                text = f"so it is {answered[0].answer or 'nothing'}"
                await rig.mailbox.leases.complete(
                    work.lease, Completion(MessageOutcome.OK, text=text)
                )
                return
            options = OPTIONS if "option" in message.text else ()
            who = next((w for w in AnswerableBy if w.value in message.text), AnswerableBy.PEOPLE)
            ask = Suspended(b"", f"About {message.text}?", options, timeout_s=3600.0, who=who)
            await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, work.lease, ask))

        monkeypatch.setattr(rig.agent, "handle", asks)
        await rig.start()
        yield rig


async def shown(rig: TelegramFixture) -> int:
    """The id of the question's message, once the relay has its id on record."""
    record = await rig.people.wait_text(rig.chat, "About")
    while not await rig.rows(
        "SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'delivered'"
    ):
        await rig.people.report()
    message_id: int = record["message_id"]
    return message_id


async def test_a_reply_answers_a_free_question_and_is_no_new_message(rig: TelegramFixture) -> None:
    await rig.people.say(rig.chat, "your name")
    message = await shown(rig)
    await rig.people.say(rig.chat, "Ann", reply_to=message)
    await rig.people.wait_text(rig.chat, "so it is Ann")
    assert await rig.rows("SELECT count(*) FROM messages") == [(1,)]


async def test_a_reply_quicker_than_the_note_of_the_message_is_an_answer(
    rig: TelegramFixture,
) -> None:
    await rig.people.say(rig.chat, "the name")
    message = await shown(rig)
    await rig.database.write(
        lambda tx: tx.execute("UPDATE outbox SET platform_ids = '[]' WHERE kind = 'question'")
    )
    await rig.people.say(rig.chat, "Ann", reply_to=message)
    await rig.people.wait_text(rig.chat, "so it is Ann")


async def test_two_people_pressing_at_once_are_told_the_same(rig: TelegramFixture) -> None:
    ben = await rig.people.user("Ben")
    group = await rig.people.group(
        "Group", [rig.ann, ben, rig.bot.bot_id], administrators=[rig.bot.bot_id]
    )
    rig.allow(ben, groups=(int(group),))
    rig.spec = rig.spec_with(group_mention_only=False)
    await rig.people.say(group, "an option", user=rig.ann)
    record = await rig.people.wait_text(group, "About")
    queries = [
        await rig.people.press(group, record["message_id"], text=text, user=user, force=True)
        for text, user in (("red", rig.ann), ("blue", ben))
    ]
    told = [(await rig.people.pressed(query))["text"] for query in queries]
    (question,) = await rig.mailbox.questions.list(None)
    assert question.answer == "red"
    assert told[0] == "Answered: red"
    assert told[1].startswith(f"P{rig.ann} answered this at ")
    assert told[1].endswith(": red")
    await rig.people.wait_text(group, "so it is red")


async def kept_as_a_message(rig: TelegramFixture, text: str) -> None:
    """Wait until ``text`` waits in the mailbox; the question must be open still."""
    while not any(text in row[0] for row in await rig.rows("SELECT parts FROM messages")):
        await rig.people.report()
    assert await rig.rows("SELECT state, answer FROM questions") == [("open", "")]


@pytest.mark.parametrize("asked", ["an option", "your name"])
async def test_what_nobody_has_seen_nobody_answers(rig: TelegramFixture, asked: str) -> None:
    """The question waits for the end of a pause; what is said meanwhile isn't about it."""
    await rig.people.say(rig.chat, "an option")
    earlier = await shown(rig)
    query = await rig.people.press(rig.chat, earlier, text="red")
    await rig.people.pressed(query)
    await rig.people.wait_text(rig.chat, "so it is red")
    await rig.database.write(lambda tx: tx.execute("DELETE FROM questions"))
    await rig.people.fault("flood", method="sendMessage", retry_after=600, count=1)
    await rig.people.say(rig.chat, asked)
    while not await rig.rows(
        "SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'pending' AND attempts = 0"
        " AND not_before > 0"
    ):
        await rig.people.report()
    # As an option's text, and as a reply to an older message of ours.
    await rig.people.say(rig.chat, "blue", reply_to=earlier if asked == "your name" else None)
    await kept_as_a_message(rig, "blue")


async def test_a_forwarded_text_answers_nothing(rig: TelegramFixture) -> None:
    await rig.people.say(rig.chat, "an option")
    await shown(rig)
    update = await rig.message_update("blue")
    update["message"]["forward_origin"] = {
        "type": "hidden_user",
        "sender_user_name": "Mallory",
        "date": 1,
    }
    await rig.people.inject(rig.bot.bot_id, update)
    await kept_as_a_message(rig, "blue")


async def test_a_question_of_unknown_fate_takes_no_reply_to_another_message(
    rig: TelegramFixture,
) -> None:
    await rig.people.say(rig.chat, "an option")
    earlier = await shown(rig)
    query = await rig.people.press(rig.chat, earlier, text="red")
    await rig.people.pressed(query)
    await rig.people.wait_text(rig.chat, "so it is red")
    await rig.database.write(lambda tx: tx.execute("DELETE FROM questions"))
    await rig.people.fault("server_error", method="sendMessage", count=1)
    await rig.people.say(rig.chat, "your name")
    await rig.people.wait_text(rig.chat, "may not have reached")
    await rig.people.say(rig.chat, "what was this?", reply_to=earlier)
    await kept_as_a_message(rig, "what was this?")


async def test_a_press_counts_where_the_platform_does_not_say_the_topic(
    rig: TelegramFixture,
) -> None:
    """A message that is too old comes as inaccessible: with its chat, without its topic."""
    group = await rig.people.group("Forum", [rig.ann, rig.bot.bot_id], supergroup=True, forum=True)
    rig.allow(groups=(int(group),))
    topic = await rig.people.topic(group, "Plans", user=rig.ann)
    await rig.people.say(group, "@bob_bot an option", user=rig.ann, thread=topic)
    record = await rig.people.wait_text(group, "About an option?")
    button = record["message"]["reply_markup"]["inline_keyboard"][0][0]
    press = {
        "id": "77",
        "from": {"id": rig.ann, "is_bot": False, "first_name": "Ann"},
        "chat_instance": "1",
        "data": button["callback_data"],
        "message": {
            "chat": {"id": int(group), "type": "supergroup", "title": "Forum", "is_forum": True},
            "message_id": record["message_id"],
            "date": 0,
        },
    }
    await rig.people.inject(rig.bot.bot_id, {"callback_query": press})
    await rig.people.wait_text(group, f"so it is {button['text']}")


async def test_who_may_press_is_said_with_the_question(rig: TelegramFixture) -> None:
    ben = await rig.people.user("Ben")
    group = await rig.people.group(
        "Group", [rig.ann, ben, rig.bot.bot_id], administrators=[rig.bot.bot_id]
    )
    rig.allow(ben, groups=(int(group),))
    rig.spec = rig.spec_with(group_mention_only=False)
    await rig.people.say(group, "an option of the asker", user=rig.ann)
    record = await rig.people.wait_text(group, "About")
    foreign = await rig.people.press(group, record["message_id"], text="red", user=ben)
    told = await rig.people.pressed(foreign)
    assert told["text"] == "Only the person whose message this is about may answer it."
    await rig.people.say(group, "red", user=ben, reply_to=record["message_id"])
    await rig.people.wait_text(group, "Only the person")
    (question,) = await rig.mailbox.questions.list()
    own = await rig.people.press(group, record["message_id"], text="blue", user=rig.ann)
    assert (await rig.people.pressed(own))["text"] == "Answered: blue"
    await rig.people.wait_text(group, "so it is blue")
    assert [each.answer for each in await rig.mailbox.questions.list(None)] == ["blue"]
    assert question.who is AnswerableBy.ASKER
