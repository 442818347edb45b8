"""An agent that asks its client something: a text that ends, and the next request answers it."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from agentsup.channels.core.receiving import ChatOrigin
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.messages import sessions
from agentsup.model.engine import Suspended
from agentsup.model.message import Lease, MessageState
from agentsup.model.principal import OPERATOR
from agentsup.model.question import APPROVAL, AskedCall, QuestionState
from tests.component.api.conftest import ApiFixture
from tests.component.api.test_completions import answer, assistant, finish, user

HOW = "✎ Answer with your next message, by a number or its words"


class Chat:
    """A conversation as a client of the OpenAI API holds it."""

    def __init__(
        self,
        rig: ApiFixture,
        client: openai.AsyncOpenAI,
        work: TaskOwner,
        *,
        stream: bool,
        name: str = "",
    ) -> None:
        self.rig, self.work, self.stream = rig, work, stream
        self.said: list[Any] = []
        self.headers = {"X-Agentsup-Conversation": name} if name else {}
        self._client = client

    async def _ask(self) -> tuple[str, str]:
        create = self._client.chat.completions.create
        if not self.stream:
            got = await create(model="main", messages=self.said, extra_headers=self.headers)
            (choice,) = got.choices
            return choice.message.content or "", choice.finish_reason
        text, reason = "", ""
        async with await create(
            model="main", messages=self.said, stream=True, extra_headers=self.headers
        ) as pieces:
            async for piece in pieces:
                text += piece.choices[0].delta.content or ""
                reason = piece.choices[0].finish_reason or reason
        return text, reason

    def say(self, text: str) -> Any:
        """Send a text; a task that gives what came back, which is now part of the conversation."""
        self.said.append(user(text))

        async def run() -> str:
            got, reason = await self._ask()
            assert reason == "stop"
            self.said.append(assistant(got))
            return got

        return self.work.spawn(run(), name="say")


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def chat(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner, request: pytest.FixtureRequest
) -> Chat:
    return Chat(rig, client, work, stream=request.param)


async def ask(
    rig: ApiFixture, text: str = "Which one?", *options: str, timeout_s: float | None = None
) -> Lease:
    """The next turn of main asks, as its engine does, after a few words."""
    lease = await rig.lease("main")
    rig.live.begin(lease.message.agent_id, "", lease.message.message_id)
    rig.live.delta(lease.message.message_id, "Let me see.")
    rig.live.end(lease.message.message_id)
    asked = Suspended(checkpoint=b"", text=text, options=options, timeout_s=timeout_s)
    await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, lease, asked))
    return lease


async def only_question(rig: ApiFixture, state: QuestionState) -> Any:
    (question,) = await rig.mailbox.questions.list(None)
    assert question.state is state
    return question


async def test_a_question_is_an_answer_and_the_next_text_answers_it(
    rig: ApiFixture, chat: Chat
) -> None:
    asking = chat.say("paint it")
    lease = await ask(rig, "Which one?", "the red one", "the blue one")
    got = await asking
    question = await only_question(rig, QuestionState.OPEN)
    shown = f"Which one?\n\n1. the red one\n2. the blue one\n\n{HOW} ({question.question_id})."
    assert got.endswith(shown)
    assert got in (shown, f"Let me see.\n\n{shown}")
    # What is no option is told so, and the question stands.
    got = await chat.say("green")
    assert got == f"Please answer with one of: the red one · the blue one\n\n{shown}"
    again = chat.say("2")
    resumed = await rig.lease("main")
    assert resumed.message.message_id == lease.message.message_id
    assert (await only_question(rig, QuestionState.ANSWERED)).answer == "the blue one"
    await finish(rig, resumed, "Painted blue.")
    assert await again == "Painted blue."
    # And the conversation goes on in its session.
    more = chat.say("thanks")
    assert (await answer(rig, "Gladly.")).session_id == lease.message.session_id
    assert await more == "Gladly."
    assert len(await rig.mailbox.messages.list()) == 2


async def test_a_free_answer_is_taken_as_it_is(rig: ApiFixture, chat: Chat) -> None:
    asking = chat.say("write a card")
    await ask(rig, "What shall it say?")
    assert "Your next message is the answer (q_" in await asking
    again = chat.say("Dear Ann,\nhello")
    resumed = await rig.lease("main")
    assert (await only_question(rig, QuestionState.ANSWERED)).answer == "Dear Ann,\nhello"
    second = Suspended(checkpoint=b"", text="And the end?")
    await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, resumed, second))
    assert (await again).startswith("And the end?")
    last = chat.say("Yours")
    await finish(rig, await rig.lease("main"), "written")
    assert await last == "written"


async def test_a_repetition_finds_the_question_too(rig: ApiFixture, work: TaskOwner) -> None:
    """Of the request that led to it, and of the one that answered it."""
    path, headers = "/v1/chat/completions", {"X-Stainless-Retry-Count": "1"}
    first = {"model": "main", "messages": [user("paint it")]}
    asking = work.spawn(rig.call("POST", path, first), name="ask")
    lease = await ask(rig, "Which?", "red", "blue")
    text = (await asking)[1]["choices"][0]["message"]["content"]
    again = await rig.call("POST", path, first, headers=headers)
    assert again[1]["choices"][0]["message"]["content"] == text
    second = {"model": "main", "messages": [*first["messages"], assistant(text), user("red")]}
    keyed = {"Idempotency-Key": "k"}
    asks = [work.spawn(rig.call("POST", path, second, headers=keyed), name="a") for _ in range(2)]
    resumed = await rig.lease("main")
    asks.append(work.spawn(rig.call("POST", path, second, headers=keyed), name="a"))
    await finish(rig, resumed, "red it is")
    for one in asks:
        status, document, _ = await one
        assert (status, document["choices"][0]["message"]["content"]) == (200, "red it is")
    assert [m.message_id for m in await rig.mailbox.messages.list()] == [lease.message.message_id]


async def test_another_answer_put_into_its_mouth_answers_nothing(
    rig: ApiFixture, chat: Chat
) -> None:
    asking = chat.say("paint it")
    lease = await ask(rig, "Which?", "red", "blue")
    await asking
    chat.said[-1] = assistant("What colour do you like?")
    other = chat.say("red")
    assert (await answer(rig, "I like it, too.")).session_id != lease.message.session_id
    assert await other == "I like it, too."
    await only_question(rig, QuestionState.OPEN)


async def test_a_late_answer_is_told_so_and_what_came_of_it(rig: ApiFixture, chat: Chat) -> None:
    asking = chat.say("paint it")
    lease = await ask(rig, "Which?", "red", "blue")
    await asking
    question = await only_question(rig, QuestionState.OPEN)
    await rig.mailbox.questions.answer(question.question_id, "red", OPERATOR)
    late = chat.say("blue")
    resumed = await rig.lease("main")
    await finish(rig, resumed, "Painted red.")
    got = await late
    assert got.startswith("operator answered this at ")
    assert got.endswith(": red\n\nPainted red.")
    more = chat.say("oh well")
    assert (await answer(rig, "Sorry.")).session_id == lease.message.session_id
    await more


async def test_an_answer_past_its_time_waits_for_what_comes_of_it(
    rig: ApiFixture, chat: Chat
) -> None:
    """Nobody has closed the question yet: it is late all the same, and not asked once more."""
    asking = chat.say("paint it")
    await ask(rig, "Which?", "red", "blue", timeout_s=3600)
    assert "⏳ Please answer by " in await asking
    past = "UPDATE questions SET deadline_at = 1000"
    await rig.database.write(lambda tx: tx.execute(past) and None)
    late = chat.say("blue")
    while not (await rig.mailbox.deadlines.expire()).question_ids:
        pass
    await finish(rig, await rig.lease("main"), "Left it white.")
    assert await late == (
        "Too late: this question expired at 1970-01-01 00:00 UTC.\n\nLeft it white."
    )
    more = chat.say("ok")
    lease = await rig.lease("main")
    await finish(rig, lease, "ok")
    await more
    assert len({m.session_id for m in await rig.mailbox.messages.list()}) == 1


async def test_a_question_whose_work_was_stopped_is_withdrawn(rig: ApiFixture, chat: Chat) -> None:
    asking = chat.say("paint it")
    await ask(rig, "Which?", "red", "blue")
    await asking
    await rig.mailbox.control.stop("all", OPERATOR)
    got = await chat.say("red")
    assert got.startswith("This question was withdrawn at ")
    more = chat.say("start over")
    assert (await answer(rig, "From the beginning.")).state is MessageState.LEASED
    assert await more == "From the beginning."


async def test_a_lasting_conversation_answers_without_its_history(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    chat = Chat(rig, client, work, stream=False, name="desk")
    asking = chat.say("paint it")
    lease = await ask(rig, "Which?", "red", "blue")
    await asking
    chat.said = []
    assert (await chat.say("green")).startswith("Please answer with one of: red · blue")
    chat.said = []
    again = chat.say("Blue")
    resumed = await rig.lease("main")
    assert resumed.message.message_id == lease.message.message_id
    await finish(rig, resumed, "done")
    assert await again == "done"


CUT = AskedCall("{}", "d" * 64, "rm -rf the hidden part")


async def approve(rig: ApiFixture, call: AskedCall = CUT) -> Lease:
    """The next turn of main waits for the approval of a call, shown in part only."""
    lease = await rig.lease("main")
    asked = Suspended(
        b"", "rm -rf …", ("once", "run", "any", "deny"),
        kind=APPROVAL, tool="exec", call=call, call_id="m:k:1",
    )  # fmt: skip
    await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, lease, asked))
    return lease


async def test_a_cut_call_is_told_whole_and_allowed_by_the_next_text(
    rig: ApiFixture, chat: Chat
) -> None:
    asking = chat.say("clean up")
    await approve(rig)
    told = await asking
    assert told.startswith("rm -rf the hidden part\n\n1. once\n2. run\n3. deny\n\n")
    again = chat.say("1")
    await finish(rig, await rig.lease("main"), "clean")
    assert await again == "clean"
    assert (await only_question(rig, QuestionState.ANSWERED)).answer == "once"


@pytest.mark.parametrize("call", [CUT, AskedCall("{}", "d" * 64)], ids=["cut", "short"])
async def test_a_client_that_was_not_told_of_a_call_allows_nothing(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner, call: AskedCall
) -> None:
    """Another one of the same lasting conversation was told; its words are about something else."""
    first = Chat(rig, client, work, stream=False, name="desk")
    asking = first.say("clean up")
    await approve(rig, call)
    told = await asking
    way = f"once {(await only_question(rig, QuestionState.OPEN)).question_id}"
    for text in ("1", "once", "once q_other"):
        other = Chat(rig, client, work, stream=False, name="desk")
        got = await other.say(text)
        await only_question(rig, QuestionState.OPEN)
        assert got == (
            "Below is a call that waits for an answer. Read it, and give its id with the answer, "
            f"as in: {way}\n\n{told}"
        )
    # A client that keeps no history says which call it means.
    last = Chat(rig, client, work, stream=False, name="desk")
    allowed = last.say(way)
    await finish(rig, await rig.lease("main"), "clean")
    assert await allowed == "clean"
    assert (await only_question(rig, QuestionState.ANSWERED)).answer == "once"


async def test_a_call_can_be_denied_by_whoever_answers(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    first = Chat(rig, client, work, stream=False, name="desk")
    asking = first.say("clean up")
    await approve(rig)
    await asking
    denied = Chat(rig, client, work, stream=False, name="desk").say("deny")
    await finish(rig, await rig.lease("main"), "left as it is")
    assert await denied == "left as it is"
    assert (await only_question(rig, QuestionState.ANSWERED)).answer == "deny"


async def test_what_was_asked_in_a_chat_is_not_answered_from_here(
    rig: ApiFixture, client: openai.AsyncOpenAI, work: TaskOwner
) -> None:
    """A chat that was switched into the session asks its own people."""
    chat = Chat(rig, client, work, stream=False, name="desk")
    asking = chat.say("hello")
    first = await answer(rig, "hello")
    await asking
    await rig.database.write(
        sessions.point_tx, first.agent_id, "chat:console:local", first.session_id
    )
    await rig.deps.inbox.say(
        agent_name="main",
        where=ChatOrigin("console", "local"),
        text="paint it",
        principal=OPERATOR,
        external_id="1",
    )
    await ask(rig, "Which?", "red", "blue")
    chat.said = []
    waiting = chat.say("red")
    while len(await rig.mailbox.messages.list()) < 3:
        pass
    question = await only_question(rig, QuestionState.OPEN)
    await rig.mailbox.questions.answer(question.question_id, "blue", OPERATOR)
    await answer(rig, "painted blue")
    await answer(rig, "red what?")
    assert await waiting == "red what?"
