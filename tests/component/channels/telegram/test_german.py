"""What a person reads whose Telegram speaks German: menus, replies, and what stands around answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.model.agent import Streaming
from agentsup.model.principal import SYSTEM, PersonRole
from tests.component.channels.telegram.menu_rig import TelegramMenuFixture, menu_rig
from tests.component.channels.telegram.rig import AGENT_ID, TelegramFixture, rigged


@pytest.fixture
async def menus(tmp_path: Path) -> AsyncIterator[TelegramMenuFixture]:
    async with menu_rig(tmp_path) as rig:
        yield rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    """The rig, whose chat is that of Uli."""
    async with rigged(tmp_path) as rig:
        rig.ann = await rig.people.user("Uli", language_code="de")
        rig.allow(rig.ann)
        rig.chat = await rig.people.private(rig.ann, rig.bot.bot_id)
        yield rig


async def test_menus_speak_german_from_page_to_page(menus: TelegramMenuFixture) -> None:
    uli = await menus.person("Uli", PersonRole.OPERATOR, language="de")
    chat = await menus.people.private(uli, menus.bot.bot_id)
    await menus.command(uli, "/agents")
    await menus.until_text(chat, "1 bis 6 von 10")
    await menus.press(chat, "›", uli)
    await menus.until_text(chat, "7 bis 10 von 10")
    await menus.press(chat, "● bob", uli)
    await menus.until_labels(chat, [["Stoppen", "Neu starten"], ["‹ Agenten", "↻"]])
    await menus.until_text(chat, "● bob - läuft, seit 5 s")
    await menus.press(chat, "Stoppen", uli)
    await menus.until_text(chat, "bob stoppen, bis er wieder gestartet wird?")
    await menus.until_labels(chat, [["Ja: Stoppen", "Nein"]])
    await menus.press(chat, "Ja: Stoppen", uli)
    await menus.until_text(chat, "bob: gestoppt, und das bleibt so")
    await menus.press(chat, "‹ bob", uli)
    await menus.until_text(chat, "– bob - gestoppt (von einem Betreiber)")
    await menus.until_labels(chat, [["Starten"], ["‹ Agenten", "↻"]])
    assert menus.house.calls == ["stop bob"]


@pytest.mark.parametrize(
    "command, told, labels",
    [
        (
            "/model",
            "main nutzt das voreingestellte Modell",
            [["Nur für diesen Chat ›"], ["Wie in der Datei"]],
        ),
        ("/sessions", "Es gibt noch keine Sitzung.", []),
        ("/dead", "Keine Nachricht ist fehlgeschlagen.", []),
        ("/new Plan", "Neuer Chat begonnen.", []),
        ("/stop", "In diesem Chat lief oder wartete nichts.", []),
        ("/nonsense", "den Befehl /nonsense gibt es nicht.", []),
        ("/agent_stop", "sag, welcher Agent: /agent_stop NAME", []),
        ("/help", "Alles andere, was du schreibst, geht an den Agenten.", []),
    ],
)
async def test_replies_are_german(
    menus: TelegramMenuFixture, command: str, told: str, labels: list[list[str]]
) -> None:
    uli = await menus.person("Uli", PersonRole.OPERATOR, language="de")
    chat = await menus.people.private(uli, menus.bot.bot_id)
    assert told in await menus.command(uli, command)
    assert menus.labels(await menus.last(chat)) == labels


async def test_sessions_and_their_ways_on(menus: TelegramMenuFixture) -> None:
    uli = await menus.person("Uli", PersonRole.OPERATOR, language="de")
    chat = await menus.people.private(uli, menus.bot.bot_id)
    await menus.command(uli, "/new Plan")
    await menus.command(uli, "/sessions")
    await menus.until_labels(chat, [["▸ Plan"], ["+ Neu"]])
    await menus.press(chat, "▸ Plan", uli)
    await menus.until_text(chat, "Dieser Chat geht in Sitzung")
    await menus.until_labels(chat, [["‹ Sitzungen"]])


async def test_a_repeat_says_so(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.fault("cut_after", method="sendMessage", count=1)
    await rig.people.say(rig.chat, "hallo")
    note = await rig.people.wait_text(
        rig.chat, "Eine Nachricht hat dich vielleicht nicht erreicht: “echo: hallo”"
    )
    ((button,),) = note["message"]["reply_markup"]["inline_keyboard"]
    assert button["text"] == "Noch einmal zeigen"
    query = await rig.people.press(rig.chat, note["message_id"])
    assert (await rig.people.pressed(query))["text"] == "✔ Noch einmal gezeigt."
    await rig.people.wait_text(rig.chat, "↻ Vielleicht zum zweiten Mal:\n\necho: hallo")


async def test_an_answer_of_nothing_says_so(rig: TelegramFixture) -> None:
    rig.agent.answer = lambda _: " \n "
    await rig.start()
    await rig.people.say(rig.chat, "hallo")
    await rig.people.wait_text(
        rig.chat, "(Der Agent hat ohne einen Text geendet. Frag ihn, was daraus wurde.)"
    )


async def test_a_stopped_stream_says_so(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    chat = await rig.people.group("Haus", [rig.ann, rig.bot.bot_id], administrators=[rig.ann])
    rig.allow(groups=(int(chat),))
    rig.spec = rig.spec_with(
        streaming=Streaming(edit_interval_s=0.5, min_chars=8, idle_ms=50, reactions=False)
    )
    await rig.start()
    await rig.people.say(chat, "@bob_bot erzähl", user=rig.ann)
    message_id = await _leased(rig)
    rig.live.begin(AGENT_ID, f"telegram:{chat}", message_id)
    rig.live.delta(message_id, "Es war einmal")
    await rig.people.wait_text(chat, "Es war einmal")
    await rig.mailbox.stop(f"agent:{AGENT_ID}", SYSTEM)
    rig.live.end(message_id)
    await rig.people.wait_text(chat, "Es war einmal\n\n⏹ gestoppt")


async def _leased(rig: TelegramFixture) -> str:
    """The message that is worked on, once there is one."""
    while True:
        changed = await rig.rows("SELECT message_id FROM messages WHERE state = 'leased'")
        if changed:
            return str(changed[0][0])
        await rig.clock.sleep(0.01)  # no topic tells of it


async def test_a_command_cut_off_by_a_restart_is_told(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.say(rig.chat, "/ping x")
    await rig.people.wait_text(rig.chat, "pong x")
    await rig.stop()
    await rig.database.write(
        lambda tx: tx.execute("UPDATE received SET state = 'received', begun = 1") and None
    )
    await rig.start()
    await rig.people.wait_text(rig.chat, "Ich wurde neu gestartet, während /ping lief")


async def test_a_stop_is_told_in_german(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "hallo")
    message_id = await _leased(rig)
    await rig.mailbox.cancel(message_id, SYSTEM)
    await rig.people.wait_text(rig.chat, "Abgebrochen von agentsup.")
    await rig.people.say(rig.chat, "und jetzt?")
    await _leased(rig)
    await rig.mailbox.stop(f"agent:{AGENT_ID}", SYSTEM)
    await rig.people.wait_text(rig.chat, "Die Nachricht wurde gestoppt, von agentsup.")
