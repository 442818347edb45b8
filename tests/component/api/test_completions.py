"""The OpenAI-compatible front, through the official client and by hand."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import openai
import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.usage import reports
from agentsup.model.engine import Usage
from agentsup.model.errors import Overloaded
from agentsup.model.message import Lease, Message
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture

PATH = "/v1/chat/completions"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def data_lines(text: str) -> list[str]:
    """The data of a stream; a slow answer has comments between, which keep the connection open."""
    return [line for line in text.split("\n\n") if line and not line.startswith(":")]


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def said_before(rig: ApiFixture, lease: Lease) -> list[tuple[str, str]]:
    """What the turn of a lease is given of its session."""
    rows = await rig.database.read(
        lambda r: r.all(
            "SELECT role, text FROM transcript WHERE session_id = ? ORDER BY entry_id",
            (lease.message.session_id,),
        )
    )
    return [(row["role"], row["text"]) for row in rows]


async def answer(rig: ApiFixture, text: str, name: str = "main") -> Message:
    """Do the next turn of an agent as its stack does, transcript included."""
    lease = await rig.lease(name)
    await finish(rig, lease, text)
    return lease.message


async def finish(rig: ApiFixture, lease: Lease, text: str) -> None:
    from agentsup.agents.memory import append_tx

    def say(tx: Any) -> None:
        message = lease.message
        for role, said in (("user", message.text), ("assistant", text)):
            append_tx(
                tx,
                session_id=message.session_id,
                message_id=message.message_id,
                role=role,
                text=said,
                at=1,
            )
        reports.record_tx(
            tx,
            Usage(input_tokens=7, output_tokens=3),
            reports.UsageSource(
                message.message_id, message.agent_id, message.session_id, "scripted", ""
            ),
            at=1,
        )

    await rig.database.write(say)
    await rig.finish(lease, text)


async def test_an_answer_through_the_official_client(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    work.spawn(answer(rig, "Hello yourself."), name="turn:main")
    got = await client.chat.completions.create(
        model="MAIN", messages=[{"role": "user", "content": "hello"}], temperature=0.2
    )
    assert got.choices[0].message.content == "Hello yourself."
    assert (got.choices[0].finish_reason, got.model, got.object) == (
        "stop",
        "main",
        "chat.completion",
    )
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (7, 3)
    (message,) = await rig.mailbox.messages.list()
    assert (message.text, message.principal.label) == ("hello", "operator")
    assert got.id == f"chatcmpl-{message.message_id}"


async def test_an_answer_comes_from_the_commit_that_ends_the_turn(
    rig: ApiFixture,
    client: openai.AsyncOpenAI,
    work: TaskOwner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = rig.count_reads(monkeypatch, "completions.settled")

    async def turn() -> None:
        lease = await rig.lease("main")
        while not reads:
            await asyncio.sleep(0)
        await finish(rig, lease, "Hello yourself.")

    work.spawn(turn(), name="turn:main")
    got = await client.chat.completions.create(
        model="main", messages=[{"role": "user", "content": "hello"}]
    )
    assert got.choices[0].message.content == "Hello yourself."
    assert reads == ["completions.settled"]


async def test_the_agents_are_the_models(rig: ApiFixture, client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["Scout", "main", "worker"]
    assert (await client.models.retrieve("scout")).id == "Scout"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("ghost")
    assert caught.value.code == "model_not_found"


async def test_a_stream_comes_as_it_is_written(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    stream = await client.chat.completions.create(
        model="main",
        messages=[{"role": "user", "content": "count"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    lease = await rig.lease("main")
    rig.live.begin(lease.message.agent_id, "", lease.message.message_id)
    pieces = aiter(stream)
    first = await anext(pieces)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    rig.live.delta(lease.message.message_id, "one ")
    assert (await anext(pieces)).choices[0].delta.content == "one "
    rig.live.delta("msg_of_somebody_else", "secret")
    rig.live.delta(lease.message.message_id, "two")
    assert (await anext(pieces)).choices[0].delta.content == "two"
    rig.live.end(lease.message.message_id)
    await finish(rig, lease, "one two three")
    rest = [piece async for piece in pieces]
    assert rest[0].choices[0].delta.content == " three"
    assert rest[1].choices[0].finish_reason == "stop"
    assert (rest[2].choices, rest[2].usage.total_tokens) == ([], 10)  # type: ignore[union-attr]  # it was asked for
    assert {piece.id for piece in rest} == {first.id}
    await stream.close()


async def test_a_stream_is_server_sent_chunks_with_an_end(rig: ApiFixture, work: TaskOwner) -> None:
    work.spawn(answer(rig, "äöü"), name="turn:main")
    body = {"model": "main", "messages": [user("hi")], "stream": True}
    status, text, headers = await rig.call("POST", PATH, body)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    lines = data_lines(text)
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "äöü", None]
    assert all(c["object"] == "chat.completion.chunk" for c in chunks)


async def test_a_conversation_that_is_resent_goes_on_in_its_session(
    rig: ApiFixture, work: TaskOwner
) -> None:
    """The same session as long as the client tells what we told it; else a fresh one."""
    system = {"role": "system", "content": "Be brief."}

    async def say(*messages: dict[str, str], answered: str) -> tuple[Lease, list[tuple[str, str]]]:
        asking = work.spawn(
            rig.call("POST", PATH, {"model": "main", "messages": list(messages)}), name="ask"
        )
        lease = await rig.lease("main")
        before = await said_before(rig, lease)
        await finish(rig, lease, answered)
        status, document, _ = await asking
        assert (status, document["choices"][0]["message"]["content"]) == (200, answered)
        return lease, before

    first, before = await say(system, user("I am Ann"), answered="Hello Ann.")
    told = ("note", "Instructions of the client: Be brief.")
    assert before == [told]
    second, before = await say(
        system, user("I am Ann"), assistant("Hello Ann.\n"), user("Who am I?"), answered="Ann."
    )
    assert second.message.session_id == first.message.session_id
    assert second.message.text == "Who am I?"
    assert before == [told, ("user", "I am Ann"), ("assistant", "Hello Ann.")]
    # Asked again for another answer: the session has heard that question, so it is not this one.
    again, before = await say(
        system, user("I am Ann"), assistant("Hello Ann."), user("Who am I?"), answered="Ann!"
    )
    assert again.message.session_id != first.message.session_id
    assert before == [told, ("user", "I am Ann"), ("assistant", "Hello Ann.")]
    # Another answer than ours was put into its mouth.
    edited, before = await say(
        system, user("I am Ann"), assistant("Hello Bob."), user("Who?"), answered="Bob."
    )
    assert edited.message.session_id not in (first.message.session_id, again.message.session_id)
    assert before == [told, ("user", "I am Ann"), ("assistant", "Hello Bob.")]
    # An answer further up was written anew: that is another conversation, too.
    changed, before = await say(
        *(system, user("I am Ann"), assistant("Hello you."), user("Who am I?")),
        *(assistant("Ann."), user("Sure?")),
        answered="Yes.",
    )
    assert changed.message.session_id != first.message.session_id
    assert ("assistant", "Hello you.") in before
    goes_on, _ = await say(
        *(system, user("I am Ann"), assistant("Hello Ann."), user("Who am I?")),
        *(assistant("Ann!"), user("Sure?")),
        answered="Yes.",
    )
    assert goes_on.message.session_id == again.message.session_id
    # The same first words of another chat are another chat.
    other, before = await say(user("I am Ann"), answered="Hi.")
    assert (before, other.message.session_id != first.message.session_id) == ([], True)


async def test_a_named_conversation_lasts(rig: ApiFixture, work: TaskOwner) -> None:
    sessions, lease = [], None
    for text in ("one", "two"):
        body = {"model": "main", "messages": [user("zero"), assistant("0"), user(text)]}
        headers = {"X-Agentsup-Conversation": "desk"}
        asking = work.spawn(rig.call("POST", PATH, body, headers=headers), name="ask")
        lease = await rig.lease("main")
        sessions.append(lease.message.session_id)
        assert lease.message.text == text
        assert (await said_before(rig, lease))[:2] == [("user", "zero"), ("assistant", "0")]
        await finish(rig, lease, "ok")
        assert (await asking)[2]["X-Agentsup-Session"] == sessions[0]
    assert lease is not None
    assert len(await said_before(rig, lease)) == 6
    assert sessions[0] == sessions[1]


async def test_an_idempotency_key_gives_the_same_answer(rig: ApiFixture, work: TaskOwner) -> None:
    body = {"model": "main", "messages": [user("pay")]}
    headers = {"Idempotency-Key": "k1"}
    asks = [work.spawn(rig.call("POST", PATH, body, headers=headers), name="ask") for _ in range(3)]
    lease = await rig.lease("main")
    await finish(rig, lease, "paid")
    ids = {(await ask)[1]["id"] for ask in asks}
    later = await rig.call("POST", PATH, {**body, "stream": True}, headers=headers)
    assert ids == {f"chatcmpl-{lease.message.message_id}"}
    assert "paid" in later[1]
    assert len(await rig.mailbox.messages.list()) == 1
    other = {"model": "main", "messages": [user("pay twice")]}
    status, document, _ = await rig.call("POST", PATH, other, headers=headers)
    assert (status, document["error"]["code"]) == (409, "conflict")
    assert len(await rig.mailbox.messages.list()) == 1


async def test_a_client_that_leaves_loses_and_doubles_nothing(
    rig: ApiFixture, work: TaskOwner
) -> None:
    """The official client repeats after its own timeout, and says so: the repetition joins."""
    async with openai.AsyncOpenAI(
        api_key=OPERATOR_TOKEN, base_url=f"{rig.url}/v1", max_retries=6, timeout=0.8
    ) as hasty:
        asking = work.spawn(
            hasty.chat.completions.create(
                model="main", messages=[{"role": "user", "content": "slow"}]
            ),
            name="ask",
        )
        lease = await rig.lease("main")
        # Its place is given back before its repetition comes.
        for waits in (1, 0, 1):
            await rig.until_open("waits", waits)
        await finish(rig, lease, "done")
        got = await asking
    assert got.choices[0].message.content == "done"
    assert len(await rig.mailbox.messages.list()) == 1


async def test_a_stream_left_alone_is_answered_all_the_same(rig: ApiFixture) -> None:
    body = {"model": "main", "messages": [user("go on")], "stream": True}
    headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
    async with rig.client.post(rig.url + PATH, json=body, headers=headers) as response:
        assert response.status == 200
        lease = await rig.lease("main")
    await finish(rig, lease, "finished alone")
    message = await rig.mailbox.messages.get(lease.message.message_id)
    assert message.result_text == "finished alone"
    retry = {"X-Stainless-Retry-Count": "1"}
    _, text, _ = await rig.call("POST", PATH, body, headers=retry)
    assert "finished alone" in text
    assert len(await rig.mailbox.messages.list()) == 1
    # The same words once more are a new request.
    async with rig.client.post(rig.url + PATH, json=body, headers=headers):
        again = await rig.lease("main")
    assert again.message.message_id != lease.message.message_id


async def test_what_is_asked_again_much_later_is_meant_anew(
    rig: ApiFixture, work: TaskOwner
) -> None:
    """A client that counts a failed try of today must not get the answer of last week."""
    body = {"model": "main", "messages": [user("what is new?")]}
    retry = {"X-Stainless-Retry-Count": "1"}
    asking = work.spawn(rig.call("POST", PATH, body, headers=retry), name="ask")
    first = await rig.lease("main")
    again = work.spawn(rig.call("POST", PATH, body, headers=retry), name="again")
    await rig.until_open("waits", 2)
    await finish(rig, first, "this week's")
    for one in (asking, again, work.spawn(rig.call("POST", PATH, body, headers=retry), name="3")):
        assert read_whole((await one)[1])[0] == "this week's"

    def age(minutes: int) -> Any:
        set_back = "UPDATE messages SET finished_at = finished_at - ?"
        return rig.database.write(lambda tx: tx.execute(set_back, (minutes * 60_000,)) and None)

    await age(14)
    assert read_whole((await rig.call("POST", PATH, body, headers=retry))[1])[0] == "this week's"
    await age(2)
    asking = work.spawn(rig.call("POST", PATH, body, headers=retry), name="ask")
    assert (await answer(rig, "next week's")).message_id != first.message.message_id
    assert read_whole((await asking)[1])[0] == "next week's"


async def test_the_same_words_of_two_clients_at_once_are_two_requests(
    rig: ApiFixture, work: TaskOwner
) -> None:
    body = {"model": "main", "messages": [user("hello")]}
    asks = [work.spawn(rig.call("POST", PATH, body), name="ask") for _ in range(2)]
    sessions = {(await answer(rig, text)).session_id for text in ("one", "two")}
    texts = [read_whole((await ask)[1])[0] for ask in asks]
    assert (sorted(texts), len(sessions)) == (["one", "two"], 2)
    # Each goes on with what it was told: the one that is found in its session, the other in a
    # fresh one that is told everything.
    for text in texts:
        more = {"model": "main", "messages": [user("hello"), assistant(text), user("and?")]}
        asking = work.spawn(rig.call("POST", PATH, more), name="ask")
        lease = await rig.lease("main")
        assert await said_before(rig, lease) == [("user", "hello"), ("assistant", text)]
        await finish(rig, lease, "so")
        assert (await asking)[0] == 200


async def test_a_client_that_hangs_up_while_it_waits_ends_no_turn(
    rig: ApiFixture, work: TaskOwner
) -> None:
    body = {"model": "main", "messages": [user("long work")]}
    asking = work.spawn(rig.call("POST", PATH, body), name="ask")
    lease = await rig.lease("main")
    asking.cancel()
    await asyncio.wait({asking})
    await finish(rig, lease, "worked")
    assert (await rig.mailbox.messages.get(lease.message.message_id)).result_text == "worked"
    retry = {"X-Stainless-Retry-Count": "1"}
    assert read_whole((await rig.call("POST", PATH, body, headers=retry))[1])[0] == "worked"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_went_wrong_is_told_in_their_words(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner, stream: bool
) -> None:
    async def ask(text: str = "x", model: str = "main") -> Any:
        got = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], stream=stream
        )
        return [piece async for piece in got] if stream else got  # type: ignore[union-attr]  # as asked

    with pytest.raises(openai.NotFoundError):
        await ask(model="ghost")
    rig.directory.set_status("main", "failed", "kept crashing")
    with pytest.raises(openai.InternalServerError) as down:
        await ask()
    assert (down.value.status_code, down.value.code) == (503, "agent_down")
    rig.directory.set_status("main", "running")

    async def fail() -> None:
        await rig.finish(await rig.lease("main"), error="the model is out of money")

    work.spawn(fail(), name="fail")
    with pytest.raises(openai.APIError, match="out of money") as failed:
        await ask()
    assert failed.value.code == "engine_failed"
    for _ in range(5):
        await rig.call("POST", "/interagent/send_async", {"to": "main", "message": "x"})
    with pytest.raises(openai.RateLimitError) as full:
        await ask()
    assert full.value.response.headers["Retry-After"] == "1"
    rig.control.is_draining = True
    with pytest.raises(openai.InternalServerError) as draining:
        await ask()
    assert (draining.value.status_code, draining.value.code) == (503, "not_ready")


async def test_a_wrong_key_is_refused_and_a_failed_turn_not_repeated(
    rig: ApiFixture, work: TaskOwner
) -> None:
    async with openai.AsyncOpenAI(
        api_key="wrong", base_url=f"{rig.url}/v1", max_retries=0
    ) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    status, document, _ = await rig.call("GET", "/v1/models", token=rig.agent_tokens["main"])
    assert (status, document["error"]["type"]) == (403, "permission_error")

    async def fail() -> None:
        await rig.finish(await rig.lease("main"), error="broken")

    work.spawn(fail(), name="fail")
    async with openai.AsyncOpenAI(
        api_key=OPERATOR_TOKEN, base_url=f"{rig.url}/v1", max_retries=3
    ) as patient:
        with pytest.raises(openai.InternalServerError):
            await patient.chat.completions.create(
                model="main", messages=[{"role": "user", "content": "x"}]
            )
    assert len(await rig.mailbox.messages.list()) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"model": "main"},
        {"model": "", "messages": [user("x")]},
        {"model": "main", "messages": []},
        {"model": "main", "messages": [user("x")] * 5001},
        {"model": "main", "messages": [user("   ")]},
        {"model": "main", "messages": [user("x"), assistant("y")]},
        {"model": "main", "messages": [user("x")], "n": 2},
        {"model": "main", "messages": [{"role": "wizard", "content": "x"}]},
        {"model": "main", "messages": [{"role": "tool", "content": "x"}, user("y")]},
        {"model": "main", "messages": [{"role": "function", "content": "x"}, user("y")]},
        {
            "model": "main",
            "messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}, user("y")],
        },
        {"model": "main", "messages": [user("\ud800")]},
        {"model": "main", "messages": [{**user("x"), "name": "\ud800"}]},
        {"model": 5, "messages": [user("x")]},
        {
            "model": "main",
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        },
        {"model": "main", "messages": [{"role": "user", "content": [{}]}]},
        {"model": "main", "messages": [user("x")], "tool_choice": "required"},
        {
            "model": "main",
            "messages": [user("x")],
            "tool_choice": {"type": "function", "function": {"name": "pay"}},
        },
        {"model": "main", "messages": [user("x")], "function_call": {"name": "pay"}},
        {"model": "main", "messages": [user("x")], "response_format": {"type": "json_object"}},
        {"model": "main", "messages": [user("x")], "modalities": ["text", "audio"]},
        {"model": "main", "messages": [user("x")], "logprobs": True},
    ],
)
async def test_a_wrong_body_is_named(rig: ApiFixture, body: dict[str, Any]) -> None:
    status, document, _ = await rig.call("POST", PATH, body)
    assert status == 400, document
    error = document["error"]
    assert (error["type"], bool(error["message"])) == ("invalid_request_error", True)
    named = {"messages", "body", *body} - {"model"} if "model" in body else {"model"}
    assert error["param"] in {"model", *named}
    if set(body) - {"model", "messages"}:
        assert error["param"] not in ("model", "messages")
    assert await rig.mailbox.messages.list() == []


async def test_settings_of_a_model_are_left_to_the_agent(rig: ApiFixture, work: TaskOwner) -> None:
    body = {
        "model": "main",
        "messages": [user("x")],
        "temperature": 0.1,
        "top_p": 1,
        "seed": 5,
        "user": "u1",
        "metadata": {"a": "b"},
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "logprobs": False,
        "stop": None,
        "n": 1,
        "modalities": ["text"],
        "max_tokens": None,
        "parallel_tool_calls": True,
    }
    asking = work.spawn(rig.call("POST", PATH, body), name="ask")
    await answer(rig, "ok")
    assert (await asking)[0] == 200


async def test_a_body_that_is_too_large_is_told_in_their_words(rig: ApiFixture) -> None:
    body = {"model": "main", "messages": [user("x" * 1_100_000)]}
    data, headers = io.BytesIO(json.dumps(body).encode()), {"Content-Type": "application/json"}
    status, document, _ = await rig.call("POST", PATH, data=data, headers=headers)
    assert (status, document["error"]["code"]) == (413, "too_large")
    assert await rig.mailbox.messages.list() == []


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_given_whole_and_goes_on_in_its_session(
    rig: ApiFixture, work: TaskOwner, stream: bool
) -> None:
    """Limits of a model are named as ignored, and a stream may have told more than the answer."""

    async def say(*messages: dict[str, str]) -> tuple[Lease, str, str]:
        bounds = {"stop": ["two"], "max_tokens": 1}
        body = {"model": "main", "messages": list(messages), "stream": stream, **bounds}
        asking = work.spawn(rig.call("POST", PATH, body), name="ask")
        lease = await rig.lease("main")
        rig.live.begin(lease.message.agent_id, "", lease.message.message_id)
        rig.live.delta(lease.message.message_id, "I count. ")
        await asyncio.sleep(0)
        rig.live.end(lease.message.message_id)
        await finish(rig, lease, "one two three")
        status, got, headers = await asking
        assert (status, headers["X-Agentsup-Ignored"]) == (200, "stop, max_tokens")
        text, reason = read_stream(got) if stream else read_whole(got)
        return lease, text, reason

    first, text, reason = await say(user("count"))
    assert (text.endswith("one two three"), reason) == (True, "stop")
    assert text.startswith("I count.") == stream
    other, *_ = await say(user("count"), assistant("one two"), user("again"))
    assert other.message.session_id != first.message.session_id, "a shortened answer is not ours"
    second, *_ = await say(user("count"), assistant(text), user("again"))
    assert second.message.session_id == first.message.session_id


def read_whole(document: Any) -> tuple[str, str]:
    (choice,) = document["choices"]
    return choice["message"]["content"], choice["finish_reason"]


def read_stream(text: str) -> tuple[str, str]:
    lines = [line.removeprefix("data: ") for line in data_lines(text)]
    assert lines[-1] == "[DONE]", text
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    return "".join(one["delta"].get("content", "") for one in choices), choices[-1]["finish_reason"]


async def test_parts_of_text_are_one_text(rig: ApiFixture, work: TaskOwner) -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "text", "text": "here"}]
    body = {"model": "main", "messages": [user("first"), {"role": "user", "content": parts}]}
    asking = work.spawn(rig.call("POST", PATH, body), name="ask")
    assert (await answer(rig, "ok")).text == "first\n\nlook\nhere"
    assert (await asking)[0] == 200


async def test_a_full_house_is_told_before_anything_is_stored(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(kind: str) -> Any:
        raise Overloaded("too many", queue="api.waits", size=1, limit=1)

    from agentsup.api.server.listener import API

    monkeypatch.setattr(rig.server._app[API].connections, "admit", full)
    for stream in (False, True):
        body = {"model": "main", "messages": [user("x")], "stream": stream}
        status, document, _ = await rig.call("POST", PATH, body)
        assert (status, document["error"]["type"]) == (429, "rate_limit_error")
    assert await rig.mailbox.messages.list() == []


# -- files -----------------------------------------------------------------------------------------


def shown(data: bytes, text: str = "what is it?") -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    return {"role": "user", "content": parts}


async def test_a_picture_comes_as_a_file_of_the_message(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    first: Any = shown(b"\x89PNG one")
    asking = work.spawn(
        client.chat.completions.create(model="main", messages=[first]), name="asking"
    )
    lease = await rig.lease("main")
    text, file = lease.message.parts
    assert (text.text, file.name) == ("what is it?", "picture.png")
    assert (rig.deps.web.workspace("main") / file.path).read_bytes() == b"\x89PNG one"
    await finish(rig, lease, "a cat")
    assert (await asking).choices[0].message.content == "a cat"
    # The conversation is recognised by the picture, too: another one is another conversation.
    for data, is_same in ((b"\x89PNG one", True), (b"\x89PNG two", False)):
        again: Any = [shown(data), assistant("a cat"), user("and now?")]
        asking = work.spawn(
            client.chat.completions.create(model="main", messages=again), name="asking again"
        )
        later = await rig.lease("main")
        assert (later.message.session_id == lease.message.session_id) is is_same
        assert [part.type for part in later.message.parts] == ["text"]
        await finish(rig, later, "still")
        await asking


async def test_a_document_and_a_recording_come_as_files_without_a_text(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    bill = f"data:application/pdf;base64,{base64.b64encode(b'%PDF-').decode()}"
    parts: Any = [
        {"type": "file", "file": {"filename": "../../bill 1.pdf", "file_data": bill}},
        {"type": "input_audio", "input_audio": {"data": "T2dnUw==", "format": "ogg"}},
    ]
    asking = work.spawn(
        client.chat.completions.create(model="main", messages=[{"role": "user", "content": parts}]),
        name="asking",
    )
    lease = await rig.lease("main")
    _, document, recording = lease.message.parts
    assert (document.name, recording.name) == ("_.._bill_1.pdf", "voice.ogg")
    assert document.path.startswith("inbox/v1-")
    assert (rig.deps.web.workspace("main") / recording.path).read_bytes() == b"OggS"
    await finish(rig, lease, "read")
    await asking


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/secret.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": "x"},
    ],
)
async def test_a_file_that_is_not_in_the_request_is_refused(
    rig: ApiFixture, part: dict[str, Any]
) -> None:
    body = {"model": "main", "messages": [{"role": "user", "content": [part]}]}
    status, document, _ = await rig.call("POST", PATH, body)
    assert status == 400, document
    assert "messages[0].content[0]" in document["error"]["message"]


# Shortened from the templates of Open WebUI.
TASK = """### Task:
{task}

### Guidelines:
- Write in the language of the chat.

### Output:
JSON format: {{ "{wanted}": {example} }}

### Chat History:
<chat_history>
USER: how do I bake bread in the oven of my grandmother, who
lives far away?
ASSISTANT: With flour.
USER: how long?
ASSISTANT: An hour.
</chat_history>"""
CLIENT_TASKS = {
    "title": ('"your title"', "how do I bake bread in the oven of my…"),
    "tags": ('["tag1", "tag2"]', []),
    "follow_ups": ('["Question 1?"]', []),
    "queries": ('["query1"]', ["how long?"]),
}


@pytest.mark.parametrize("wanted", sorted(CLIENT_TASKS))
async def test_a_client_is_given_a_title_without_a_turn(
    rig: ApiFixture, client: openai.AsyncOpenAI, wanted: str
) -> None:
    example, expected = CLIENT_TASKS[wanted]
    text = TASK.format(task="Generate it.", wanted=wanted, example=example)
    made = await client.chat.completions.create(model="main", messages=[user(text)])  # type: ignore[list-item]
    assert json.loads(str(made.choices[0].message.content)) == {wanted: expected}
    assert await rig.database.read(lambda r: r.all("SELECT 1 FROM messages")) == []
    assert await rig.database.read(lambda r: r.all("SELECT 1 FROM sessions")) == []


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nRespond to the query.\n\n### Output:\nA clear answer.\n<user_query>x</user_query>",
        f"What does this do?\n{TASK.format(task='t', wanted='title', example='1')}",
        TASK.format(task="t", wanted="price", example="1"),
    ],
)
async def test_what_only_looks_like_a_task_of_a_client_is_a_turn(
    rig: ApiFixture, work: TaskOwner, text: str
) -> None:
    body = {"model": "main", "messages": [user(text)]}
    asking = work.spawn(rig.call("POST", PATH, body), name="ask")
    assert (await answer(rig, "An answer.")).text == text
    _, document, _ = await asking
    assert document["choices"][0]["message"]["content"] == "An answer."
