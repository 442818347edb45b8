"""``/v1``: chat completions and models in the shapes of the OpenAI API. A model is an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from aiohttp import hdrs, web
from pydantic import Field

from agentsup.api.completions import asking, files
from agentsup.api.completions.accept import (
    AcceptedCompletion,
    CompletionRequest,
    Settled,
    accept,
    settled,
)
from agentsup.api.completions.request import CompletionBody, asked, client_task_answer
from agentsup.api.documents.document import Document
from agentsup.api.http.connections import closing
from agentsup.api.http.problems import encode, openai_error
from agentsup.api.http.route import Call, get, post, reply
from agentsup.kit.compute import compute
from agentsup.kit.tasks import TaskOwner, is_set_within
from agentsup.mailbox.mail import check_up
from agentsup.mailbox.usage import reports
from agentsup.model.errors import AgentsupError, BadRequest, EngineFailed
from agentsup.model.message import Message, MessageOutcome, MessageState
from agentsup.observe import LiveTurn


class CompletionMessage(Document):
    role: Literal["assistant"]
    content: str
    refusal: None


class CompletionChoice(Document):
    index: Literal[0]
    message: CompletionMessage
    logprobs: None
    finish_reason: Literal["stop", "length"]


class CompletionUsage(Document):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(Document):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="seconds since 1970-01-01 UTC")
    model: str = Field(description="the agent that answered")
    choices: list[CompletionChoice]
    usage: CompletionUsage


class Model(Document):
    id: str = Field(description="name of the agent")
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Document):
    object: Literal["list"]
    data: list[Model]


class OpenAIErrorFacts(Document):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Document):
    error: OpenAIErrorFacts


CONVERSATION: Final = "X-Agentsup-Conversation"
KEY: Final = "Idempotency-Key"
IGNORED: Final = "X-Agentsup-Ignored"
"""The header of an answer that names the settings of the request that have no effect."""
RETRY: Final = "X-Stainless-Retry-Count"
"""The header in which the official clients count their retries of a request."""
WAIT_S: Final = 590.0
"""A little less than the timeout of the official clients; a retry joins the running message."""
LONG_BODY: Final = 64 * 1024
_MAX_NAME: Final = 200


@post(
    "/v1/chat/completions",
    {200: ChatCompletion},
    takes_work=True,
    refusals=(404, 409, 429, 502, 504),
    headers={
        CONVERSATION: "name of a lasting conversation; only the last texts are said in it",
        KEY: "the same key gives the same answer",
    },
)
async def completions(call: Call, body: CompletionBody) -> web.StreamResponse:
    """Ask an agent as clients of the OpenAI API do; `stream` gives server-sent chunks."""
    entry = call.deps.directory.lookup(body.model)
    is_long = (call.request.content_length or LONG_BODY) >= LONG_BODY
    # Hashing a long conversation takes milliseconds, which would block the event loop.
    prompt = (
        await compute(partial(asked, body.messages), key=f"completions:{call.by.subject}")
        if is_long
        else asked(body.messages)
    )
    check_up(entry, call.by)
    created = call.deps.clock.now_ms() // 1000
    if not body.stream and (text := client_task_answer(prompt)):
        head = _head("chat.completion", f"task-{created}", created, entry.name)
        return reply(_completion(head, text, _tokens(0, 0)))
    wanted = CompletionRequest(
        entry,
        prompt,
        parts=await files.put(call, entry.name, prompt.files),
        conversation=_header(call, CONVERSATION),
        idempotency_key=_header(call, KEY),
        is_retry=_header(call, RETRY) not in ("", "0"),
    )
    if body.stream:
        with call.api.connections.admit("waits"):
            answer = _Answer(call, entry.name, await accept(call, wanted), created, body.ignored)
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return await _Stream(answer, entry.agent_id).run(with_usage=with_usage)
    taken, now = await call.wait(partial(_ask, call, wanted), name="completion")
    return await _whole(_Answer(call, entry.name, taken, created, body.ignored), now)


async def _ask(call: Call, wanted: CompletionRequest) -> tuple[AcceptedCompletion, Settled]:
    taken = await accept(call, wanted)
    return taken, await settled(call.deps, taken.message_id, WAIT_S)


def _header(call: Call, name: str) -> str:
    text = call.request.headers.get(name, "").strip()
    if len(text) > _MAX_NAME:
        raise BadRequest(f"{name} is longer than {_MAX_NAME} characters", field=name)
    return text


@dataclass(frozen=True, slots=True)
class _Answer:
    """The facts that every document or chunk of an answer repeats."""

    call: Call
    agent: str
    taken: AcceptedCompletion
    created: int
    ignored: str

    def question(self, now: Settled) -> str:
        """The text of the question that the message waits for, or empty."""
        return asking.question_text(now.question, self.call.by.language) if now.question else ""

    def head(self, kind: str) -> dict[str, Any]:
        return _head(kind, self.taken.message_id, self.created, self.agent)

    @property
    def headers(self) -> dict[str, str]:
        said = {"X-Agentsup-Message": self.taken.message_id}
        return {**said, IGNORED: self.ignored} if self.ignored else said

    async def usage(self) -> dict[str, int]:
        used = await self.call.deps.database.read(
            reports.of_message, self.taken.message_id, name="completions.usage"
        )
        return _tokens(used.input_tokens, used.output_tokens)


def _head(kind: str, name: str, created: int, agent: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{name}", "object": kind, "created": created, "model": agent}


def _tokens(given: int, answered: int) -> dict[str, int]:
    return {
        "prompt_tokens": given,
        "completion_tokens": answered,
        "total_tokens": given + answered,
    }


def _completion(head: Mapping[str, Any], text: str, usage: Mapping[str, int]) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    return {**head, "choices": [choice], "usage": usage}


async def _whole(answer: _Answer, now: Settled) -> web.Response:
    note, message = answer.taken.note, now.message
    text = answer.question(now)
    if not _is_question_or_note(answer, now):
        _check(message, answer.agent)
        text = message.result_text
    said, usage = asking.joined(note, text), await answer.usage()
    response = reply(_completion(answer.head("chat.completion"), said, usage))
    response.headers.update(answer.headers)
    response.headers["X-Agentsup-Session"] = message.session_id
    return response


def _is_question_or_note(answer: _Answer, now: Settled) -> bool:
    """Whether a question is the answer, or a note on a closed one whose message has no answer."""
    return now.question is not None or (bool(answer.taken.note) and not _is_answered(now.message))


def _is_answered(message: Message) -> bool:
    return message.state is MessageState.DONE and message.outcome is MessageOutcome.OK


def _check(message: Message, agent: str) -> None:
    """Raise ``EngineFailed`` unless the message was answered."""
    if _is_answered(message):
        return
    if message.state is MessageState.CANCELLED:
        raise EngineFailed(f"the request to {agent} was stopped", engine_code="stopped")
    why = message.error_text or "no reason was recorded"
    raise EngineFailed(f"{agent} could not answer: {why}", engine_code=message.error_code)


# -- a stream --------------------------------------------------------------------------------------


class _Stream:
    """The text of a running turn as it is written, and at its end the missing rest of the answer.

    A reader that disconnects ends the stream and not the turn.
    """

    def __init__(self, answer: _Answer, agent_id: str) -> None:
        self._answer = answer
        self._agent_id = agent_id
        self._call = answer.call
        self._changed = asyncio.Event()
        self._is_closing = False
        self._turns: list[LiveTurn] = []
        self._read: list[int] = []
        self._sent = ""
        """The text of the answer so far."""
        self._has_said = False
        self._is_block_due = False
        self._response = web.StreamResponse(
            headers={
                hdrs.CONTENT_TYPE: "text/event-stream",
                "X-Accel-Buffering": "no",
                **answer.headers,
            }
        )

    async def run(self, *, with_usage: bool) -> web.StreamResponse:
        """Write until the answer is complete, the reader disconnects or the listener closes."""
        await self._response.prepare(self._call.request)
        owner = TaskOwner("completion")
        unfollow = self._call.deps.live.follow(self._agent_id, "", self._begin)
        try:
            with (
                self._call.api.connections.ended_by(self._close),
                contextlib.suppress(ConnectionError, TimeoutError),
            ):
                ended = owner.spawn(
                    settled(self._call.deps, self._answer.taken.message_id, None),
                    name=f"completion:{self._answer.agent}",
                )
                ended.add_done_callback(lambda _: self._changed.set())
                await self._write_all(ended, with_usage=with_usage)
                return self._response
        finally:
            unfollow()
            for turn in self._turns:
                turn.unlisten(self._changed.set)
            await owner.close(1.0)
        self._call.cut()
        return self._response

    async def _write_all(self, ended: asyncio.Task[Settled], *, with_usage: bool) -> None:
        await self._chunk({"role": "assistant", "content": ""})
        note = self._answer.taken.note
        await self._say(note)
        self._is_block_due = bool(note)
        try:
            while not ended.done():
                await self._pass_on()
                await self._wait()
                if self._is_closing and not ended.done():
                    raise closing()
            now = ended.result()
            was_shown = _is_question_or_note(self._answer, now)
            if not was_shown:
                _check(now.message, self._answer.agent)
        except AgentsupError as error:
            await self._data(openai_error(error))
            return
        await self._pass_on()
        if not was_shown:
            await self._say(missing(self._sent, now.message.result_text))
        self._is_block_due = self._has_said
        await self._say(self._answer.question(now))
        await self._chunk({}, finish_reason="stop")
        if with_usage:
            head = self._answer.head("chat.completion.chunk")
            await self._data({**head, "choices": [], "usage": await self._answer.usage()})
        await self._call.write(self._response, b"data: [DONE]\n\n")
        await self._response.write_eof()

    def _begin(self, turn: LiveTurn) -> None:
        if turn.message_id == self._answer.taken.message_id:
            self._turns.append(turn)
            self._read.append(0)
            turn.listen(self._changed.set)
            self._changed.set()

    async def _close(self) -> None:
        self._is_closing = True
        self._changed.set()

    async def _wait(self) -> None:
        if not await is_set_within(self._changed, self._call.deps.limits.heartbeat_s):
            await self._call.write(self._response, b": alive\n\n")
        self._changed.clear()

    async def _pass_on(self) -> None:
        for number, turn in enumerate(self._turns):
            text = turn.text(self._read[number])
            self._read[number] = turn.length
            self._sent += text
            await self._say(text)

    async def _say(self, text: str) -> None:
        if text:
            content = f"\n\n{text}" if self._is_block_due else text
            self._is_block_due = False
            self._has_said = True
            await self._chunk({"content": content})

    async def _chunk(self, delta: Mapping[str, Any], *, finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        head = self._answer.head("chat.completion.chunk")
        await self._data({**head, "choices": [choice]})

    async def _data(self, document: Mapping[str, Any]) -> None:
        await self._call.write(self._response, b"data: " + encode(document) + b"\n\n")


def missing(sent: str, answer: str) -> str:
    """The text that a reader who has ``sent`` still needs to have the whole answer."""
    if answer.startswith(sent):
        return answer[len(sent) :]
    if sent.rstrip().endswith(answer.rstrip()):
        return ""
    return f"\n\n{answer}"


# -- models ----------------------------------------------------------------------------------------


@get("/v1/models")
async def models(call: Call) -> ModelList:
    """The agents as models."""
    data = [_model(name) for name in call.deps.directory.names()]
    return ModelList.model_construct(object="list", data=data)


@get("/v1/models/{name}", refusals=(404,))
async def model(call: Call) -> Model:
    """One agent as a model."""
    return _model(call.deps.directory.lookup(call.named("name")).name)


def _model(name: str) -> Model:
    return Model.model_construct(id=name, object="model", created=0, owned_by="agentsup")
