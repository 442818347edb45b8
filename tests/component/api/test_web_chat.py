"""The page's chats: whose they are, what a reload shows, buttons, sessions and earlier words."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from agentsup.agents.memory import append_tx
from agentsup.api.http import ApiLimits
from agentsup.mailbox.messages import keys, sessions
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.engine import Suspended
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.store import Tx
from tests.component.api.browser import Browser, frame
from tests.component.api.conftest import LIMITS, ApiFixture
from tests.support.bound import BOUND_S


async def say(socket: aiohttp.ClientWebSocketResponse, text: str, say_id: str = "s1") -> Any:
    await socket.send_json({"type": "say", "id": say_id, "text": text})
    return await frame(socket, "accepted")


async def test_a_person_chats_in_the_page_as_that_person(rig: ApiFixture) -> None:
    browser = Browser(rig)
    own = (await browser.sign_in("uwe"))["conversation"]
    async with browser.socket("Scout", own) as socket:
        welcome = await frame(socket, "welcome")
        assert (welcome["agent"], welcome["history"], welcome["session_id"]) == ("Scout", [], "")
        accepted = await say(socket, "hello")
        event = (await frame(socket, "event"))["event"]
        assert (event["type"], event["data"]["from"]) == ("chat.in", "uwe")
        assert event["message_id"] == accepted["message_id"]
    message = await rig.mailbox.messages.get(accepted["message_id"])
    assert message.principal == Principal(PrincipalKind.PERSON, "uwe", "uwe", PersonRole.USER)
    assert (message.deliver_to.channel, message.deliver_to.conversation) == ("web", own)


async def test_nobody_enters_anothers_conversation(rig: ApiFixture) -> None:
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
    own = keys.own_conversation(person)
    assert "." not in own
    assert own != keys.OPERATORS_CONVERSATION
    assert len(own) <= 40
    for other in ("uwe", "Uwe", "local", "a.b", "a", "ä", "a-b"):
        if other != name:
            them = Principal(PrincipalKind.PERSON, other, other, PersonRole.USER)
            assert keys.own_conversation(them) != own
            assert not keys.may_enter(them, "web", own)
            assert not keys.may_enter(them, "web", f"{own}.desk")


async def test_a_viewer_looks_and_does_not_write(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("vera")
    async with browser.socket(conversation="vera") as socket:
        await frame(socket, "welcome")
        for text in ("hello", "/stop"):
            await socket.send_json({"type": "say", "id": "s1", "text": text})
            assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"
    assert await rig.mailbox.messages.list() == []
    assert rig.commands.ran == []


async def test_a_role_that_is_taken_away_holds_for_an_open_socket(rig: ApiFixture) -> None:
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


async def test_who_is_no_operator_any_more_leaves_others_conversations(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("otto")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        rig.people["otto"] = PersonRole.USER
        assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"


class TestWithoutHeartbeat:
    """What is open is told of the change: no heartbeat comes that would look by itself."""

    @pytest.fixture
    def limits(self) -> ApiLimits:
        return replace(LIMITS, heartbeat_s=3600.0)

    async def test_a_former_operator_is_sent_away_at_once(self, rig: ApiFixture) -> None:
        browser = Browser(rig)
        await browser.sign_in("otto")
        async with browser.socket(conversation="uwe") as socket:
            await frame(socket, "welcome")
            rig.people["otto"] = PersonRole.USER
            rig.server.people_changed()
            async with asyncio.timeout(BOUND_S):
                assert (await frame(socket, "error"))["problem"]["code"] == "forbidden"
                while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
            assert socket.close_code == 4400

    async def test_who_may_stay_stays_and_wakes_nobody_else(self, rig: ApiFixture) -> None:
        browser = Browser(rig)
        await browser.sign_in("otto")
        async with (
            browser.socket(conversation="otto") as socket,
            rig.client.get(f"{rig.url}/events", headers=browser.headers(is_post=False)) as stream,
        ):
            await frame(socket, "welcome")
            assert stream.status == 200
            rig.people["otto"] = PersonRole.VIEWER
            rig.server.people_changed()
            await socket.send_json({"type": "ping"})
            await frame(socket, "pong")
            await rig.tell("main", "to otto", "web:otto")
            await rig.tell("main", "to uwe", "web:uwe")
            assert "to otto" in str(await frame(socket, "event"))
            async with asyncio.timeout(BOUND_S):
                told = b""
                while told.count(b"chat.out") < 2:
                    told += await stream.content.readline()
            assert b"to otto" in told
            assert b"to uwe" not in told

    @pytest.mark.parametrize("what, mark", [("an event", "a secret"), ("running text", "m1")])
    async def test_nothing_goes_out_between_a_change_and_its_telling(
        self, rig: ApiFixture, what: str, mark: str
    ) -> None:
        browser = Browser(rig)
        await browser.sign_in("otto")
        async with browser.socket(conversation="uwe") as socket:
            await frame(socket, "welcome")
            rig.people["otto"] = PersonRole.USER
            if what == "an event":
                await rig.tell("main", "a secret", "web:uwe")
            else:
                rig.live.begin("agt_main", "web:uwe", "m1")
                rig.live.delta("m1", "a secret")
            got = await asyncio.wait_for(socket.receive(), BOUND_S)
            assert mark not in got.data
            assert got.json()["problem"]["code"] == "forbidden"

    async def test_a_stream_of_anothers_conversation_ends(self, rig: ApiFixture) -> None:
        browser = Browser(rig)
        await browser.sign_in("otto")
        async with rig.client.get(
            f"{rig.url}/events?conversation=web:uwe", headers=browser.headers(is_post=False)
        ) as stream:
            assert stream.status == 200
            rig.people["otto"] = PersonRole.USER
            await rig.tell("main", "a secret", "web:uwe")
            told = b""
            with contextlib.suppress(aiohttp.ClientError):
                async with asyncio.timeout(BOUND_S):
                    while line := await stream.content.readline():
                        told += line
            assert b"chat.out" not in told


async def test_a_reload_shows_what_was_said_and_asked(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        accepted = await say(socket, "may I?")
    lease = await rig.lease("main")
    question = await rig.database.write(
        lambda tx: rig.mailbox.questions.park_tx(
            tx, lease, Suspended(b"", "Really?", ("yes", "no"))
        )
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


async def test_commands_have_buttons_in_the_page(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(text: str, context: CommandContext) -> CommandReply:
        button = CommandButton("Again", "/again 1", once=True, confirm="Sure?")
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


async def test_earlier_words_page_by_page(rig: ApiFixture) -> None:
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


async def test_a_person_exports_an_own_conversation_and_no_other(rig: ApiFixture) -> None:
    uwe = Browser(rig)
    await uwe.sign_in("uwe")

    async def said(conversation: str, text: str) -> None:
        def write(tx: Tx) -> None:
            key = f"chat:web:{conversation}"
            session = sessions.resolve_tx(tx, "agt_main", key, at=1000, entropy=rig.deps.entropy)
            for role in ("user", "assistant"):
                append_tx(tx, session_id=session, message_id="m", role=role, text=text, at=2000)

        await rig.database.write(write, name="said")

    await said("uwe", "tea & *bikes*")
    await said("ute", "hers")
    path = "/web/export?agent=main&conversation="
    status, body, headers = await uwe.call("GET", f"{path}uwe")
    assert (status, body.decode().count("tea & *bikes*")) == (200, 2)
    assert headers["Content-Disposition"] == 'attachment; filename="chat.md"'
    assert "**main**, 1970-01-01 00:00 UTC" in body.decode()
    _, body, _ = await uwe.call("GET", f"{path}uwe&format=json")
    (chat,) = json.loads(body)["chats"]
    assert [entry["role"] for entry in chat["entries"]] == ["user", "assistant"]
    assert (await uwe.call("GET", f"{path}ute"))[0] == 403


async def test_sessions_are_listed_begun_and_switched(rig: ApiFixture) -> None:
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
    renamed = {**place, "session": first["id"], "title": " Beds "}
    assert (await uwe.call("POST", "/web/sessions/rename", renamed))[0] == 200
    listing = (await uwe.call("GET", "/web/sessions?agent=main&conversation=uwe"))[1]
    assert {one["title"] for one in listing["sessions"]} == {"Beds", ""}
    renamed["session"] = foreign["id"]
    assert (await uwe.call("POST", "/web/sessions/rename", renamed))[0] == 403
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


async def test_sessions_have_readable_titles_and_tasks_are_left_out(rig: ApiFixture) -> None:
    texts = {"chat:web:uwe": "my bike\nis blue", "task:task_1": "at six", "ia-ben": "the milk?"}

    def write(tx: Tx) -> None:
        for key, text in texts.items():
            session = sessions.resolve_tx(tx, "agt_main", key, at=1000, entropy=rig.deps.entropy)
            append_tx(tx, session_id=session, message_id="m", role="user", text=text, at=2000)

    await rig.database.write(write, name="said")
    for person, wanted in {
        "uwe": {"chat:web:uwe": "my bike is blue"},
        "otto": {"chat:web:uwe": "my bike is blue", "ia-ben": "the milk?"},
    }.items():
        browser = Browser(rig)
        await browser.sign_in(person)
        path = f"/web/sessions?agent=main&conversation={person}"
        listed = (await browser.call("GET", path))[1]["sessions"]
        assert {one["key"]: one["title"] for one in listed} == wanted


async def test_the_terminals_chat_goes_on_in_the_page(rig: ApiFixture) -> None:
    otto, uwe = Browser(rig), Browser(rig)
    await otto.sign_in("otto")
    await uwe.sign_in("uwe")
    async with otto.socket(conversation="local", channel="console") as socket:
        await frame(socket, "welcome")
        await say(socket, "from the terminal")
    session = (await rig.lease("main")).message.session_id
    async with uwe.socket(conversation="uwe") as socket:
        assert (await frame(socket, "welcome"))["terminal_session"] == ""
    path = f"/web/history?agent=main&session={session}&conversation="
    assert (await uwe.call("GET", f"{path}uwe"))[1]["events"] == []
    assert await _history(otto, session) == [], "the conversation is not in that session yet"
    body = {"agent": "main", "conversation": "otto", "session": session}
    async with otto.socket(conversation="otto") as socket:
        welcome = await frame(socket, "welcome")
        assert (welcome["terminal_session"], welcome["history"]) == (session, [])
        await say(socket, "before")
        assert (await otto.call("POST", "/web/sessions/switch", body))[0] == 200
        await say(socket, "on we go", "s2")
    assert await _history(otto, session) == ["from the terminal", "on we go"]
    assert await _history(otto, "") == ["before", "on we go"]
    _, document, _ = await otto.call("GET", f"{path}otto")
    texts = [event["data"]["text"] for event in document["events"]]
    assert texts == ["from the terminal", "on we go"]


async def _history(browser: Browser, session: str) -> list[str]:
    """What a socket that asks for a session is greeted with."""
    async with browser.socket(conversation="otto", session=session) as socket:
        welcome = await frame(socket, "welcome")
    return [event["data"]["text"] for event in welcome["history"]]


async def test_what_is_finished_of_a_growing_answer_comes_as_blocks(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("vera")

    async def drawn(text: str) -> tuple[list[str], str]:
        document = (await browser.call("POST", "/web/blocks", {"text": text}))[1]
        rest = text.encode("utf-16-le")[2 * document["units"] :].decode("utf-16-le")
        return [block["text"] for block in document["blocks"]], rest

    assert await drawn("only **one") == ([], "only **one")
    assert await drawn("a **b**\n\n\U0001f600 c\n\nlast *o") == (["a b", "\U0001f600 c"], "last *o")
    code = "~~~py\na\n```\n\nb\n"
    assert await drawn(f"so:\n\n{code}") == (["so:"], code)
    assert await drawn(f"{code}~~~\n\nend") == (["a\n```\n\nb"], "end")


async def test_a_page_gone_wild_locks_nobody_else_out(rig: ApiFixture) -> None:
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


async def test_a_page_that_was_away_for_long_is_shown_anew(rig: ApiFixture) -> None:
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


async def test_a_text_is_known_again_by_its_clients_own_id(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        await say(socket, "hello", "mine-1")
        event = (await frame(socket, "event"))["event"]
        assert (event["type"], event["data"]["say_id"]) == ("chat.in", "mine-1")


async def test_own_sessions_are_found_behind_many_of_others(rig: ApiFixture) -> None:
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
