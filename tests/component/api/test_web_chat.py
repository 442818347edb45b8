"""The page's chats: whose they are, what a reload shows, buttons, sessions and earlier words."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from agentsup.mailbox import naming, sessions
from agentsup.model.control import Button, CommandContext, CommandReply
from agentsup.model.engine import Suspended
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.store.database import Tx
from tests.component.api.browser import Browser, frame
from tests.component.api.conftest import Rig


async def say(socket: aiohttp.ClientWebSocketResponse, text: str, say_id: str = "s1") -> Any:
    await socket.send_json({"type": "say", "id": say_id, "text": text})
    return await frame(socket, "accepted")


async def test_a_person_chats_in_the_page_as_that_person(rig: Rig) -> None:
    browser = Browser(rig)
    own = (await browser.sign_in("uwe"))["conversation"]
    async with browser.socket("Scout", own) as socket:
        welcome = await frame(socket, "welcome")
        assert (welcome["agent"], welcome["history"], welcome["session_id"]) == ("Scout", [], "")
        accepted = await say(socket, "hello")
        event = (await frame(socket, "event"))["event"]
        assert (event["type"], event["data"]["from"]) == ("chat.in", "uwe")
        assert event["message_id"] == accepted["message_id"]
    message = await rig.mailbox.get(accepted["message_id"])
    assert message.principal == Principal(PrincipalKind.PERSON, "uwe", "uwe", PersonRole.USER)
    assert (message.deliver_to.channel, message.deliver_to.conversation) == ("web", own)


async def test_nobody_enters_anothers_conversation(rig: Rig) -> None:
    for person, places in {
        "uwe": ("ute", "local", "uwex", "ute.desk", "otto"),
        "vera": ("uwe", "local"),
    }.items():
        browser = Browser(rig)
        await browser.sign_in(person)
        for place in places:
            async with browser.socket(conversation=place) as socket:
                error = await frame(socket, "error")
                assert error["problem"]["code"] == "forbidden", place
            for path in ("history", "sessions"):
                query = f"?agent=main&conversation={place}"
                assert (await browser.call("GET", f"/web/{path}{query}"))[0] == 403
            for path, more in (("sessions", {}), ("sessions/switch", {"session": "ses_x"})):
                body = {"agent": "main", "conversation": place, **more}
                assert (await browser.call("POST", f"/web/{path}", body))[0] == 403
        async with browser.socket(conversation=person, channel="console") as socket:
            assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"
        async with browser.socket(conversation=f"{person}.desk") as socket:
            assert (await frame(socket, "welcome"))["agent"] == "main"
    operator = Browser(rig)
    await operator.sign_in("otto")
    async with operator.socket(conversation="uwe") as socket:
        assert (await frame(socket, "welcome"))["agent"] == "main"


@pytest.mark.parametrize(
    "name", ["uwe", "Uwe", "local", "a.b", "ä", "x" * 60, "a b", "", "..", "a/b", "uwe.x"]
)
def test_conversations_of_different_people_never_meet(name: str) -> None:
    person = Principal(PrincipalKind.PERSON, name, name, PersonRole.USER)
    own = naming.own_conversation(person)
    assert "." not in own
    assert own != naming.OPERATORS_CONVERSATION
    assert len(own) <= 40
    for other in ("uwe", "Uwe", "local", "a.b", "a", "ä", "a-b"):
        if other != name:
            them = Principal(PrincipalKind.PERSON, other, other, PersonRole.USER)
            assert naming.own_conversation(them) != own
            assert not naming.may_enter(them, "web", own)
            assert not naming.may_enter(them, "web", f"{own}.desk")


async def test_a_viewer_looks_and_does_not_write(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("vera")
    async with browser.socket(conversation="vera") as socket:
        await frame(socket, "welcome")
        for text in ("hello", "/stop"):
            await socket.send_json({"type": "say", "id": "s1", "text": text})
            assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"
    assert await rig.mailbox.list() == []
    assert rig.commands.ran == []


async def test_a_role_that_is_taken_away_holds_for_an_open_socket(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        rig.people["uwe"] = PersonRole.VIEWER
        await socket.send_json({"type": "say", "id": "s1", "text": "hello"})
        assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"
        del rig.people["uwe"]
        while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert socket.close_code == 4401


async def test_who_is_no_operator_any_more_leaves_others_conversations(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("otto")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        rig.people["otto"] = PersonRole.USER
        assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"


async def test_a_reload_shows_what_was_said_and_asked(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        accepted = await say(socket, "may I?")
    lease = await rig.lease("main")
    question = await rig.database.write(
        lambda tx: rig.mailbox.park_tx(tx, lease, Suspended(b"", "Really?", ("yes", "no")))
    )
    async with browser.socket(conversation="uwe") as socket:
        welcome = await frame(socket, "welcome")
        assert [event["data"]["text"] for event in welcome["history"]] == ["may I?"]
        assert welcome["session_id"] == lease.message.session_id
        assert [asked["id"] for asked in welcome["questions"]] == [question.question_id]
        assert [command["name"] for command in welcome["commands"]][:2] == ["hold", "stop"]
        path = f"/questions/{question.question_id}/answer"
        stranger = Browser(rig)
        await stranger.sign_in("ute")
        assert (await stranger.call("POST", path, {"answer": "yes"}))[0] == 403
        assert (await browser.call("POST", path, {"answer": "yes"}))[0] == 200
        while (event := (await frame(socket, "event"))["event"])["type"] != "question.closed":
            pass
        assert (event["data"]["answer"], event["data"]["by"]) == ("yes", "uwe")
        assert (await browser.call("POST", path, {"answer": "no"}))[0] == 409
    async with browser.socket(conversation="uwe") as socket:
        assert (await frame(socket, "welcome"))["questions"] == []
    async with browser.socket(conversation="uwe.desk") as socket:
        assert (await frame(socket, "welcome"))["history"] == []
    assert accepted["duplicate"] is False


async def test_commands_have_buttons_in_the_page(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(text: str, context: CommandContext) -> CommandReply:
        button = Button("Again", "/again 1", once=True, confirm="Sure?")
        return CommandReply("choose", buttons=((button,),) if context.has_buttons else ())

    monkeypatch.setattr(rig.commands, "run", run)
    browser = Browser(rig)
    await browser.sign_in()
    for channel, wanted in (("web", 1), ("console", 0)):
        async with browser.socket(conversation="local", channel=channel) as socket:
            await frame(socket, "welcome")
            await socket.send_json({"type": "say", "id": f"c-{channel}", "text": "/menu"})
            reply = await frame(socket, "reply")
            assert len(reply["buttons"]) == wanted
            if wanted:
                assert reply["buttons"][0][0] == {
                    "label": "Again",
                    "command": "/again 1",
                    "once": True,
                    "confirm": "Sure?",
                    "operator": False,
                }


async def test_earlier_words_page_by_page(rig: Rig) -> None:
    seqs = [await rig.tell("main", str(n), "web:uwe") for n in range(120)]
    await rig.tell("main", "not here", "web:ute")
    browser = Browser(rig)
    await browser.sign_in("uwe")
    found: list[int] = []
    before, more = "", True
    while more:
        path = f"/web/history?agent=main&conversation=uwe&limit=50{before}"
        status, document, _ = await browser.call("GET", path)
        assert status == 200
        page = [event["seq"] for event in document["events"]]
        found, more = page + found, document["more"]
        before = f"&before={page[0]}"
    assert found == seqs
    status, document, _ = await browser.call(
        "GET", "/web/history?agent=main&conversation=uwe&session=ses_other"
    )
    assert (document["events"], document["more"]) == ([], False)


async def test_sessions_are_listed_begun_and_switched(rig: Rig) -> None:
    uwe, ute = Browser(rig), Browser(rig)
    await uwe.sign_in("uwe")
    await ute.sign_in("ute")
    place = {"agent": "main", "conversation": "uwe"}
    status, document, _ = await uwe.call("POST", "/web/sessions", {**place, "title": "Garden"})
    first = document["session"]
    assert (status, first["title"], first["is_current"]) == (200, "Garden", True)
    second = (await uwe.call("POST", "/web/sessions", place))[1]["session"]
    foreign = (await ute.call("POST", "/web/sessions", {"agent": "main", "conversation": "ute"}))[
        1
    ]["session"]
    listing = (await uwe.call("GET", "/web/sessions?agent=main&conversation=uwe"))[1]
    assert listing["current"] == second["id"]
    assert {one["id"] for one in listing["sessions"]} == {first["id"], second["id"]}
    answer = await uwe.call("POST", "/web/sessions/switch", {**place, "session": first["id"]})
    assert (answer[0], answer[1]["session"]["is_current"]) == (200, True)
    async with uwe.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        await say(socket, "on we go")
    assert (await rig.lease("main")).message.session_id == first["id"]
    for session, wanted in ((foreign["id"], 403), ("ses_none", 404)):
        body = {**place, "session": session}
        assert (await uwe.call("POST", "/web/sessions/switch", body))[0] == wanted
    viewer = Browser(rig)
    await viewer.sign_in("vera")
    body = {"agent": "main", "conversation": "vera"}
    assert (await viewer.call("POST", "/web/sessions", body))[0] == 403


async def test_a_page_gone_wild_locks_nobody_else_out(rig: Rig) -> None:
    uwe, otto = Browser(rig), Browser(rig)
    await uwe.sign_in("uwe")
    await otto.sign_in("otto")
    async with uwe.socket(conversation="uwe") as first:
        await frame(first, "welcome")
        for _ in range(3):
            async with uwe.socket(conversation="uwe") as more:
                assert (
                    "you have 1 sockets open" in (await frame(more, "error"))["problem"]["detail"]
                )
                await more.receive()
                assert more.close_code == 4429
        async with otto.socket() as other:
            await frame(other, "welcome")
    await rig.until_open("sockets", 0)
    async with uwe.socket(conversation="uwe") as again:
        await frame(again, "welcome")


async def test_a_page_that_was_away_for_long_is_shown_anew(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")

    async def speak(count: int) -> None:
        for number in range(count):
            await rig.tell("main", f"say {number}", "web:uwe")

    await speak(51)
    async with browser.socket(conversation="uwe") as socket:
        welcome = await frame(socket, "welcome")
        assert (len(welcome["history"]), welcome["more"], welcome["reset"]) == (50, True, False)
    await speak(500)
    async with browser.socket(conversation="uwe", after=welcome["seq"]) as socket:
        near = await frame(socket, "welcome")
        assert (near["history"], near["reset"]) == ([], False)
        assert (await frame(socket, "event"))["event"]["data"]["text"] == "say 0"
    await speak(1)
    async with browser.socket(conversation="uwe", after=welcome["seq"]) as socket:
        far = await frame(socket, "welcome")
        assert (len(far["history"]), far["more"], far["reset"]) == (50, True, True)


async def test_a_text_is_known_again_by_its_clients_own_id(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        await say(socket, "hello", "mine-1")
        event = (await frame(socket, "event"))["event"]
        assert (event["type"], event["data"]["say_id"]) == ("chat.in", "mine-1")


async def test_own_sessions_are_found_behind_many_of_others(rig: Rig) -> None:
    uwe = Browser(rig)
    await uwe.sign_in("uwe")
    for conversation in ("uwe", "uwe.plans"):
        body = {"agent": "main", "conversation": conversation}
        assert (await uwe.call("POST", "/web/sessions", body))[0] == 200

    def crowd(tx: Tx) -> None:
        for number in range(250):
            for name in ("ute", "uwetta"):
                key = f"chat:web:{name}"
                sessions.new_tx(tx, "agt_main", key, at=2**50 + number, entropy=rig.deps.entropy)

    await rig.database.write(crowd)
    listing = (await uwe.call("GET", "/web/sessions?agent=main&conversation=uwe"))[1]["sessions"]
    assert {one["key"] for one in listing} == {"chat:web:uwe", "chat:web:uwe.plans"}
