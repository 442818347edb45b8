"""What every platform does with a press: its effect once, by whoever may, and the end is shown."""

from __future__ import annotations

from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.model.control import CommandButton
from agentsup.model.principal import Principal
from tests.contract.platform.chats import ANN, VERA, PlatformChat

RESTART = CommandButton("Restart", "/restart bob", once=True)
LOOK = CommandButton("Look", "/look")


async def test_a_press_runs_its_command_and_shows_the_reply(chat: PlatformChat) -> None:
    await chat.menu("What next?", RESTART, LOOK)
    assert await chat.offered() == ["Restart", "Look"]
    await chat.press("Restart")
    assert chat.commands.ran == ["/restart bob"]
    await chat.until(lambda texts: texts.count("done: /restart bob") == 1)
    await chat.until_offered()


async def test_a_press_that_comes_again_after_a_crash_runs_its_command_once(
    chat: PlatformChat,
) -> None:
    await chat.menu("What next?", RESTART)
    await chat.press("Restart", times=2)
    assert chat.commands.ran == ["/restart bob"]
    assert await chat.until(lambda texts: "done: /restart bob" in texts)


async def test_a_refused_command_says_why_and_can_be_pressed_again(chat: PlatformChat) -> None:
    chat.commands.refused = {RESTART.command}
    await chat.menu("What next?", RESTART)
    await chat.press("Restart")
    await chat.until_told("done: /restart bob")
    assert await chat.offered() == ["Restart"]
    chat.commands.refused = set()
    await chat.press("Restart")
    assert chat.commands.ran == ["/restart bob"] * 2


async def test_who_may_only_read_or_is_unknown_presses_nothing(chat: PlatformChat) -> None:
    await chat.menu("What next?", RESTART)
    for who in (VERA, None):
        await chat.press("Restart", who)
    assert chat.commands.ran == []
    assert await chat.offered() == ["Restart"]


async def test_what_needs_a_yes_is_asked_first(chat: PlatformChat) -> None:
    sure = CommandButton("Remove", "/remove bob", once=True, confirm="Remove bob?")
    await chat.menu("What next?", sure)
    await chat.press("Remove")
    assert chat.commands.ran == []
    await chat.until(lambda texts: any("Remove bob?" in text for text in texts))
    await chat.until_offered("Yes: Remove")
    await chat.press("Yes: Remove")
    assert chat.commands.ran == ["/remove bob"]


async def test_a_button_works_in_the_next_process(chat: PlatformChat) -> None:
    await chat.menu("What next?", RESTART)
    await chat.end()
    await chat.begin()
    await chat.press("Restart")
    assert chat.commands.ran == ["/restart bob"]
    await chat.until_offered()


async def test_a_question_is_answered_by_a_press_and_says_so(chat: PlatformChat) -> None:
    question = await chat.ask("Which?", "red", "blue")
    assert await chat.offered() == ["red", "blue"]
    await chat.press("blue")
    assert (await chat.mail.mailbox.questions.get(question.question_id)).answer == "blue"
    (text,) = await chat.until(lambda texts: len(texts) == 1 and "Ann" in texts[0])
    assert text.startswith("Which?")
    assert "blue" in text
    await chat.until_offered()


async def test_a_question_answered_elsewhere_offers_nothing_any_more(chat: PlatformChat) -> None:
    question = await chat.ask("Which?", "red", "blue")
    await chat.mail.mailbox.questions.answer(question.question_id, "red", ANN)
    await chat.until_offered()
    await chat.until(lambda texts: any("red" in text and "Ann" in text for text in texts))


async def test_a_question_answered_while_no_bot_ran_is_shown_as_ended(chat: PlatformChat) -> None:
    question = await chat.ask("Which?", "red", "blue")
    await chat.end()
    await chat.mail.mailbox.questions.answer(question.question_id, "red", ANN)
    await chat.begin()
    await chat.until_offered()


async def test_a_typed_answer_counts_once_and_other_texts_are_no_answers(
    chat: PlatformChat,
) -> None:
    question = await chat.ask("Which?", "red", "blue")

    async def typed(text: str, by: Principal, press_id: str) -> str | None:
        said = TypedText(conversation=chat.conversation, text=text, principal=by, press_id=press_id)
        return await chat.menus.on_text(said)

    assert await typed("what for?", ANN, "text:1") is None
    assert await typed("blue", VERA, "text:2") is None
    for _ in range(2):
        assert await typed("blue", ANN, "text:3") is not None
    assert (await chat.mail.mailbox.questions.get(question.question_id)).answer == "blue"
    await chat.until_offered()


async def test_a_note_that_has_ended_offers_nothing(chat: PlatformChat) -> None:
    part = await chat.add("Your message waits.", "notice", plain=True, cancel="m1")
    assert await chat.settled(part) == "delivered"
    assert len(await chat.offered()) == 1
    ((ids,),) = await chat.sql(
        "SELECT platform_ids ->> '$[0]' FROM outbox WHERE outbox_id = ?", part
    )
    for _ in range(2):
        assert await chat.menus.display.end_note(chat.conversation, ids, "Its turn has begun.")
    await chat.until(lambda texts: texts == ["Its turn has begun."])
    await chat.until_offered()
