"""``/traces``: lists, trees and figures, and whose words are in them."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox.messages import Completion
from agentsup.model.message import DeliverTo, MessageOutcome, NewMessage, text_parts
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.observe import Redactor
from agentsup.observe.traces import views
from tests.component.api.browser import Browser
from tests.component.api.conftest import ApiFixture

TRACE = "ab" * 16


async def traced(
    rig: ApiFixture, person: str = "ute", *, trace: str = TRACE, text: str = "hello"
) -> str:
    """A finished message of a person, its turn and a call that failed; the message's id."""
    who = Principal(PrincipalKind.PERSON, person, person, PersonRole.USER)
    new = NewMessage(
        agent_id="agt_main",  # type: ignore[arg-type]  # an id is a text in all but name
        session_key=f"chat:web:{person}",
        parts=text_parts(text),
        principal=who,
        deliver_to=DeliverTo("chat", agent_id="agt_main", channel="web", conversation=person),
        traceparent=f"00-{trace}-{trace[:16]}-01",
    )
    message_id = (await rig.mailbox.queue.accept(new)).message_id
    await rig.mailbox.leases.complete(
        await rig.lease("main"), Completion(MessageOutcome.OK, text="done")
    )
    now = rig.deps.clock.now_ms()
    await rig.database.write(
        lambda tx: tx.execute(
            "INSERT INTO tool_calls (call_id, message_id, name, effect, args_hash, state, code,"
            " started_at, ended_at) VALUES (?, ?, 'exec', 'blind', '', 'failed', 'timed_out', ?, ?)",
            (f"{message_id}:1", message_id, now, now + 7),
        )
    )
    return str(message_id)


def spans(shown: Any) -> list[Any]:
    """The turn and its call; deliveries stand beside them."""
    return [span for span in shown["spans"] if span["kind"] in ("turn", "tool")]


async def test_a_trace_is_found_by_all_its_names_and_stands_as_a_tree(rig: ApiFixture) -> None:
    message_id = await traced(rig)
    listed = (await rig.call("GET", "/traces"))[1]
    (row,) = listed["traces"]
    assert (row["message_id"], row["state"], row["failed"], row["spans"]) == (
        message_id,
        "ok",
        1,
        2,
    )
    shown = (await rig.call("GET", "/traces/last"))[1]
    for name in (message_id, TRACE, TRACE[:9]):
        assert (await rig.call("GET", f"/traces/{name}"))[1] == shown
    assert shown["trace_id"] == TRACE
    turn, call = spans(shown)
    assert (turn["kind"], turn["depth"], call["kind"], call["depth"]) == ("turn", 0, "tool", 1)
    assert (call["name"], call["duration_ms"]) == ("exec", 7.0)
    for name in ("nothing", "msg_nothing", "ab", "f" * 32):
        assert (await rig.call("GET", f"/traces/{name}"))[0] == 404


class Traces:
    """What the API asks about traces: it knows one secret."""

    redactor = Redactor(["sesame-opens"])

    def counts(self) -> dict[str, int]:
        return {}

    def excerpt(self, text: str) -> str:
        return views.excerpt(text, self.redactor.text)


async def test_a_list_shows_the_first_words_without_secrets_and_nobody_elses(
    rig: ApiFixture,
) -> None:
    object.__setattr__(rig.deps, "traces", Traces())
    text = f"it is sesame-opens,\nthen {'on and ' * 40}on"
    await traced(rig, "uwe", trace="cd" * 16, text=text)
    await traced(rig, "ute")
    hers, his = (await rig.call("GET", "/traces"))[1]["traces"]
    assert (hers["text"], hers["private"]) == ("hello", False)
    assert his["text"].startswith("it is [redacted], then on and")
    assert (len(his["text"]), his["text"][-1]) == (views.CHARS, "…")
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with rig.client.get(
        f"{rig.url}/traces", headers=browser.headers(is_post=False)
    ) as response:
        hers, own = (await response.json())["traces"]
    assert (hers["text"], hers["private"]) == ("", True)
    assert (own["text"], own["private"]) == (his["text"], False)


async def test_lists_go_in_pages_and_by_agent_and_state(rig: ApiFixture) -> None:
    for number in range(3):
        await traced(rig, trace=f"{number + 1:032x}")
    first = (await rig.call("GET", "/traces?limit=2"))[1]
    rest = (await rig.call("GET", f"/traces?limit=2&cursor={first['next_cursor']}"))[1]
    assert (len(first["traces"]), len(rest["traces"]), rest["next_cursor"]) == (2, 1, None)
    assert (await rig.call("GET", "/traces?agent=worker"))[1]["traces"] == []
    assert len((await rig.call("GET", "/traces?agent=main&state=ok"))[1]["traces"]) == 3
    assert (await rig.call("GET", "/traces?state=odd"))[0] == 400
    assert (await rig.call("GET", "/traces?agent=nobody"))[0] == 404


async def test_figures_name_times_and_errors(rig: ApiFixture) -> None:
    await traced(rig)
    figures = (await rig.call("GET", "/traces/metrics"))[1]
    (main,) = figures["agents"]
    assert main["turns"]["count"] == 1
    assert main["tools"][0]["p95_ms"] == 7.0
    assert figures["errors"] == [{"agent": "main", "kind": "tool", "code": "timed_out", "count": 1}]
    assert (await rig.call("GET", "/traces/metrics?hours=0"))[0] == 400
    assert (await rig.call("GET", "/traces/metrics?agent=worker"))[1]["agents"] == []


async def test_a_person_reads_own_words_and_sees_that_others_have_some(rig: ApiFixture) -> None:
    own = await traced(rig, "uwe", trace="cd" * 16)
    hers = await traced(rig, "ute")
    browser = Browser(rig)
    await browser.sign_in("uwe")
    for message_id, is_own in ((own, True), (hers, False)):
        async with rig.client.get(
            f"{rig.url}/traces/{message_id}", headers=browser.headers(is_post=False)
        ) as response:
            shown = await response.json()
        turn, call = spans(shown)
        assert (turn["state"], call["state"], call["code"]) == ("ok", "failed", "timed_out")
        told = ("exec", {"effect": "blind"}) if is_own else ("", {})
        assert (call["name"], call["attributes"]) == told
        assert call["private"] is not is_own
