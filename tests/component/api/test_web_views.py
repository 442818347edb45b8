"""What the page shows beside chats, and what of it a person below operator sees."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.api.web import static, views
from agentsup.mailbox.mail import to_asker
from agentsup.mailbox.usage import reports
from agentsup.model.engine import Suspended, Usage
from agentsup.model.event import EventType
from agentsup.model.message import MessageKind, NewMessage, text_parts
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.store import Tx, append
from tests.component.api.browser import Browser, frame
from tests.component.api.conftest import ApiFixture
from tests.support.bound import BOUND_S

PAGE = Path(static.__file__).parents[1] / "page"
MOST_BYTES = 152_500


async def signed_in(rig: ApiFixture, *people: str) -> list[Browser]:
    browsers = [Browser(rig) for _ in people]
    for browser, person in zip(browsers, people, strict=True):
        await browser.sign_in(person)
    return browsers


async def ask(browser: Browser, person: str, text: str) -> str:
    """The id of the message that a person's text became."""
    async with browser.socket(conversation=person) as socket:
        await frame(socket, "welcome")
        await socket.send_json({"type": "say", "id": text, "text": text})
        return str((await frame(socket, "accepted"))["message_id"])


# -- others' work ----------------------------------------------------------------------------------


async def test_of_others_work_a_person_sees_that_there_is_some(rig: ApiFixture) -> None:
    uwe, ute, vera, otto = await signed_in(rig, "uwe", "ute", "vera", "otto")
    mine, hers = await ask(uwe, "uwe", "my secret"), await ask(ute, "ute", "her secret")
    for browser, known in ((uwe, {mine}), (ute, {hers}), (vera, set()), (otto, {mine, hers})):
        (status, document, _) = await browser.call("GET", "/messages")
        listed = {one["id"]: one for one in document["messages"]}
        assert (status, set(listed)) == (200, {mine, hers})
        for message_id, shown in [*listed.items()]:
            thread = (await browser.call("GET", f"/threads/{message_id}"))[1]["messages"][0]
            single = (await browser.call("GET", f"/messages/{message_id}"))[1]
            for one in (shown, thread, single):
                assert one["private"] == (message_id not in known)
                assert ("secret" in json.dumps(one)) == (message_id in known)
                assert one["state"] == "queued"
    for browser, wanted in ((vera, 403), (ute, 403), (uwe, 200)):
        assert (await browser.call("POST", f"/messages/{mine}/cancel"))[0] == wanted
    assert (await otto.call("POST", f"/messages/{hers}/cancel"))[0] == 200


async def test_questions_are_asked_of_who_asked_for_the_work(rig: ApiFixture) -> None:
    uwe, ute, vera, otto = await signed_in(rig, "uwe", "ute", "vera", "otto")
    await ask(uwe, "uwe", "do it")
    lease = await rig.lease("main")
    question = await rig.database.write(
        lambda tx: rig.mailbox.questions.park_tx(tx, lease, Suspended(b"", "Really?"))
    )
    for browser, seen in ((uwe, 1), (ute, 0), (vera, 0), (otto, 1)):
        document = (await browser.call("GET", "/questions"))[1]
        assert len(document["questions"]) == seen
    path = f"/questions/{question.question_id}/answer"
    assert (await ute.call("POST", path, {"answer": "no"}))[0] == 403
    assert (await uwe.call("POST", "/questions/q_none/answer", {"answer": "no"}))[0] == 404
    assert (await otto.call("POST", path, {"answer": "yes"}))[1]["answered_by"] == "otto"


async def test_a_question_of_work_handed_on_is_asked_of_who_sees_it(rig: ApiFixture) -> None:
    uwe, ute, otto = await signed_in(rig, "uwe", "ute", "otto")
    await ask(uwe, "uwe", "have it done")
    lease = await rig.lease("main")
    run = NewMessage(
        agent_id=rig.directory.lookup("worker").agent_id,
        session_key="run",
        parts=text_parts("do it"),
        principal=Principal(PrincipalKind.AGENT, lease.message.agent_id, "main"),
        kind=MessageKind.TASK,
        deliver_to=to_asker(lease.message, waited=True),
    )
    await rig.mailbox.queue.accept(run)
    worker = await rig.lease("worker")
    end = Suspended(b"", "Really?")
    question = await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, worker, end))
    for browser, seen in ((uwe, 1), (ute, 0), (otto, 1)):
        document = (await browser.call("GET", "/questions"))[1]
        assert len(document["questions"]) == seen
    path = f"/questions/{question.question_id}/answer"
    assert (await ute.call("POST", path, {"answer": "no"}))[0] == 403
    assert (await uwe.call("POST", path, {"answer": "yes"}))[1]["answered_by"] == "uwe"


async def test_a_person_s_questions_are_found_among_any_number_of_others(rig: ApiFixture) -> None:
    uwe, ute, otto = await signed_in(rig, "uwe", "ute", "otto")
    for browser, person in ((ute, "ute"), (uwe, "uwe")):
        await ask(browser, person, "may I?")
        lease = await rig.lease("main")
        end = Suspended(b"", "*Really?*")
        await rig.database.write(partial(rig.mailbox.questions.park_tx, lease=lease, suspended=end))
    copies = (
        "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind, text, options,"
        " state, asked_at) SELECT ?, agent_id, session_id, message_id, kind, text, options, state,"
        " asked_at FROM questions ORDER BY question_id LIMIT 1"
    )
    many = [(f"q_0000{number:04}",) for number in range(1_200)]
    await rig.database.write(lambda tx: tx.executemany(copies, many))
    (own,) = (await uwe.call("GET", "/questions?limit=5"))[1]["questions"]
    assert own["blocks"][0]["spans"] == [[0, 7, "italic", ""]]
    for browser in (ute, otto):
        found = (await browser.call("GET", "/questions?limit=5"))[1]["questions"]
        assert [one["id"] for one in found] == [f"q_0000000{number}" for number in range(5)]
    found = (await rig.call("GET", "/questions?limit=5"))[1]["questions"]
    assert "blocks" not in found[0]


async def test_events_of_others_come_without_their_words(rig: ApiFixture) -> None:
    uwe, ute = await signed_in(rig, "uwe", "ute")
    for browser, own in ((uwe, True), (ute, False)):
        headers = {**browser.headers(is_post=False), "Last-Event-ID": "0"}
        if own:
            await ask(uwe, "uwe", "my secret")
        async with rig.client.get(f"{rig.url}/events", headers=headers) as stream:
            found: dict[str, Any] = {}
            async with asyncio.timeout(BOUND_S):
                while found.get("type") != "chat.in":
                    line = (await stream.content.readline()).decode()
                    if line.startswith("data: "):
                        found = json.loads(line.removeprefix("data: "))
        assert found["agent"] == "main"
        assert (found["conversation"], "my secret" in str(found)) == (
            ("web:uwe", True) if own else ("", False)
        )


async def test_dead_letters_are_an_operators_to_revive(rig: ApiFixture) -> None:
    uwe, otto = await signed_in(rig, "uwe", "otto")
    message_id = await ask(uwe, "uwe", "deadly")
    lease = await rig.lease("main")
    for _ in range(3):
        await rig.mailbox.leases.retry(lease, code="x", text="broken")
        await rig.database.write(lambda tx: tx.execute("UPDATE messages SET not_before = 0"))
        lease = await rig.lease("main")
    await rig.mailbox.leases.retry(lease, code="x", text="broken")
    (dead,) = (await uwe.call("GET", "/dead"))[1]["dead"]
    assert (dead["id"], dead["text"], dead["private"]) == (message_id, "deadly", False)
    for verb in ("requeue", "drop"):
        assert (await uwe.call("POST", f"/dead/{message_id}/{verb}"))[0] == 403
    assert (await uwe.call("POST", f"/messages/{message_id}/replay"))[0] == 403
    assert (await otto.call("POST", f"/dead/{message_id}/requeue"))[1]["state"] == "queued"


# -- figures and log -------------------------------------------------------------------------------


async def test_figures_count_what_ended(rig: ApiFixture) -> None:
    (vera,) = await signed_in(rig, "vera")
    for number in range(4):
        await rig.call("POST", "/interagent/send_async", {"to": "main", "message": str(number)})
    for error in ("", "", "broken"):
        await rig.finish(await rig.lease("main"), "ok", error=error)
    (last,) = [m for m in await rig.mailbox.messages.list() if m.finished_at is None]
    await rig.call("POST", f"/messages/{last.message_id}/cancel")

    def age(tx: Tx) -> None:
        tx.execute(
            "UPDATE messages SET accepted_at = finished_at - 2000, started_at = finished_at - 500"
        )
        reports.record_tx(
            tx,
            Usage(input_tokens=10, output_tokens=5, usd=0.25),
            reports.UsageSource("m", "agt_main", "s", "llm", "m"),
            at=rig.deps.clock.now_ms(),
        )

    await rig.database.write(age)
    status, document, _ = await vera.call("GET", "/web/figures?hours=2")
    assert (status, [one["agent"] for one in document["agents"]]) == (
        200,
        ["Scout", "main", "worker"],
    )
    main = document["agents"][1]
    assert (main["turns"], main["failed"], main["cancelled"]) == (3, 1, 1)
    assert (main["p50_s"], main["p95_s"], main["wait_p50_s"]) == (2.0, 2.0, 1.5)
    assert (main["input_tokens"], main["output_tokens"], main["usd"]) == (10, 5, 0.25)
    assert main["by_hour"] == [0, 3]
    idle = document["agents"][0]
    assert (idle["turns"], idle["p50_s"], idle["usd"], idle["by_hour"]) == (0, None, None, [0, 0])
    for hours, spans in ((1, 1), (24, 24), (24 * 90, 48)):
        document = (await vera.call("GET", f"/web/figures?hours={hours}"))[1]
        assert {len(one["by_hour"]) for one in document["agents"]} == {spans}
    for wrong in ("0", "x", "100000"):
        assert (await vera.call("GET", f"/web/figures?hours={wrong}"))[0] == 400


@pytest.mark.parametrize(
    "values, share, wanted",
    [
        ([], 0.5, None),
        ([1000], 0.95, 1.0),
        ([4000, 1000, 3000, 2000, 5000], 0.5, 3.0),
        (list(range(0, 101_000, 1000)), 0.95, 95.0),
    ],
)
def test_a_quantile(values: list[int], share: float, wanted: float | None) -> None:
    assert views.quantile_s(values, share) == wanted


async def test_the_log_of_one_agent(rig: ApiFixture) -> None:
    vera, otto = await signed_in(rig, "vera", "otto")
    log_file = rig.deps.web.log_file
    assert log_file is not None
    lines: list[Any] = [
        {"at": "2026-11-21T08:00:00.000Z", "level": "info", "event": "old", "agent": "main"},
        {"at": "2026-11-21T08:00:01.000Z", "level": "warning", "event": "turn failed"}
        | {"agent": "main", "code": "x"},
        {"at": "2026-11-21T08:00:02.000Z", "level": "info", "event": "child"}
        | {"child": "telegram:main", "state": "running"},
        {"at": "2026-11-21T08:00:03.000Z", "level": "info", "event": "other", "agent": "Scout"},
        {"at": "2026-11-21T08:00:04.000Z", "level": "info", "event": 'about "main" only'},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    log_file.write_text('cut off", "agent": "main"}\n' + text + '{"agent": "main", "at": 5')
    at = rig.deps.clock.now_ms()

    def tell(tx: Tx) -> None:
        for kind, data in (
            (EventType.AGENT_STATE, {"name": "main", "state": "failed", "reason": "kept crashing"}),
            (EventType.CHAT_IN, {"text": "private words"}),
        ):
            append(tx, kind, at=at, agent_id="agt_main", data=data)

    await rig.database.write(tell)
    status, document, _ = await otto.call("GET", "/agents/MAIN/log")
    assert status == 200
    told = [(one["source"], one["level"], one["text"]) for one in document["lines"]]
    assert told == [
        ("log", "info", "old"),
        ("log", "warning", "turn failed"),
        ("log", "info", "child"),
        ("event", "warning", "agent.state: failed"),
    ]
    assert document["lines"][3]["facts"]["reason"] == "kept crashing"
    assert "private words" not in str(document)
    assert len((await otto.call("GET", "/agents/main/log?limit=2"))[1]["lines"]) == 2
    assert (await vera.call("GET", "/agents/main/log"))[0] == 403
    assert (await otto.call("GET", "/agents/ghost/log"))[0] == 404
    log_file.unlink()
    assert len((await otto.call("GET", "/agents/main/log"))[1]["lines"]) == 1


# -- the page itself -------------------------------------------------------------------------------


async def test_the_page_is_served_with_what_binds_a_browser(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "index.html": static.PageFile(b"<h1>hi</h1>", "text/html; charset=utf-8", '"e1"'),
        "app.js": static.PageFile(b"1", "text/javascript; charset=utf-8", '"e2"'),
    }
    monkeypatch.setattr(static, "page_files", lambda: files)
    stranger = Browser(rig)
    for path, body, media in (
        ("/", b"<h1>hi</h1>", "text/html; charset=utf-8"),
        ("/page/index.html", b"<h1>hi</h1>", "text/html; charset=utf-8"),
        ("/page/app.js", b"1", "text/javascript; charset=utf-8"),
    ):
        status, data, headers = await stranger.call("GET", path)
        assert (status, data, headers["Content-Type"]) == (200, body, media)
        policy = dict(
            part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-cache"
        again = await stranger.call("GET", path, headers={"If-None-Match": headers["ETag"]})
        assert (again[0], again[1]) == (304, b"")
    for path in ("/page/none.js", "/page/App.js", "/page/app.js/"):
        assert (await stranger.call("GET", path))[0] in (401, 404)
    assert (await stranger.call("GET", "/", headers={"Host": "evil.example"}))[0] == 403


def test_the_page_is_small_and_has_nothing_inline() -> None:
    files = static.page_files()
    assert sum(len(file.data) for file in files.values()) <= MOST_BYTES
    on_disk = {entry.name for entry in PAGE.iterdir()} if PAGE.is_dir() else set()
    assert set(files) == on_disk - {"__pycache__"}, "a file of a type that is not served"
    for name, file in files.items():
        if name.endswith(".html"):
            text = file.data.decode().lower()
            assert "style=" not in text
            assert " onclick=" not in text
            assert "<script>" not in text


async def test_the_page_is_told_its_words_before_anybody_signs_in(rig: ApiFixture) -> None:
    status, told, _ = await Browser(rig).call("GET", "/web/words/de-AT")
    assert (status, told["language"], told["words"]["Sign in"]) == (200, "de", "Anmelden")
    for language in ("en-GB", "tlh", "..%2Fsecrets"):
        status, told, _ = await Browser(rig).call("GET", f"/web/words/{language}")
        assert (status, told) == (200, {"language": "en", "words": {}})
