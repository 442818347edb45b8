"""`/v1`: chat completions and models in the shapes of the OpenAI API. A model is an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import hdrs, web

from agentsup.api.completions import asking, shapes
from agentsup.api.completions.accept import Taken, Wanted, accept, told_tx
from agentsup.api.completions.request import CompletionBody, asked
from agentsup.api.completions.settling import Settled, settled
from agentsup.api.completions.shaping import Bounds, Shaper, shaped
from agentsup.api.connections import closing
from agentsup.api.problems import encode, openai_error
from agentsup.api.route import Call, Route, reply
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import usage
from agentsup.mailbox.bus import check_up
from agentsup.model.errors import (
    AgentsupError,
    BadRequest,
    EngineFailed,
    Overloaded,
    StoreUnavailable,
)
from agentsup.model.message import Message, Outcome, State
from agentsup.observe.live import LiveTurn

CONVERSATION: Final = "X-Agentsup-Conversation"
KEY: Final = "Idempotency-Key"
RETRY: Final = "X-Stainless-Retry-Count"
"""The official clients count their repetitions of a request here."""
WAIT_S: Final = 590.0
"""A little less than the patience of the official clients; a repetition joins what runs."""
LONG_BODY: Final = 64 * 1024
_MAX_NAME: Final = 200


async def completions(call: Call) -> web.StreamResponse:
    """Ask an agent; the answer whole or piece by piece."""
    body: CompletionBody = call.body
    entry = call.deps.directory.lookup(body.model)
    is_long = (call.request.content_length or LONG_BODY) >= LONG_BODY
    wanted = Wanted(
        entry,
        # Hashing a long conversation takes milliseconds, which are not the loop's to give.
        await asyncio.to_thread(asked, body.messages) if is_long else asked(body.messages),
        conversation=_header(call, CONVERSATION),
        idempotency_key=_header(call, KEY),
        is_retry=_header(call, RETRY) not in ("", "0"),
    )
    check_up(entry, call.by)
    created = call.deps.clock.now_ms() // 1000
    if body.stream:
        with call.api.connections.admit("waits"):
            answer = _Answer(call, entry.name, await accept(call, wanted), created, body.bounds)
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return await _Stream(answer, entry.agent_id).run(with_usage=with_usage)
    taken, now = await call.wait(partial(_ask, call, wanted), name="completion")
    return await _whole(_Answer(call, entry.name, taken, created, body.bounds), now)


async def _ask(call: Call, wanted: Wanted) -> tuple[Taken, Settled]:
    taken = await accept(call, wanted)
    return taken, await settled(call.deps, taken.message_id, WAIT_S)


def _header(call: Call, name: str) -> str:
    text = call.request.headers.get(name, "").strip()
    if len(text) > _MAX_NAME:
        raise BadRequest(f"{name} is longer than {_MAX_NAME} characters", field=name)
    return text


@dataclass(frozen=True, slots=True)
class _Answer:
    """What every piece of an answer says of itself."""

    call: Call
    agent: str
    taken: Taken
    created: int
    bounds: Bounds

    @property
    def message_id(self) -> str:
        return self.taken.message_id

    def question(self, now: Settled) -> str:
        """The question that its message waits for, as its reader sees it; or empty."""
        return asking.told(now.question, self.call.by.language) if now.question else ""

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.message_id}",
            "object": kind,
            "created": self.created,
            "model": self.agent,
        }

    async def told(self, message: Message, text: str) -> None:
        """Before its end is sent: this is what the reader knows as the answer."""
        if text.strip() != message.result_text.strip():
            at = self.call.deps.clock.now_ms()
            # Where it can't be kept, the answer is good all the same; its chat begins a session.
            with contextlib.suppress(StoreUnavailable, Overloaded):
                await self.call.deps.web.database.write(
                    lambda tx: told_tx(tx, message.message_id, text, at), name="completions.told"
                )

    async def usage(self) -> dict[str, int]:
        used = await self.call.deps.web.database.read(
            lambda reader: usage.of_message(reader, self.message_id), name="completions.usage"
        )
        return {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
        }


async def _whole(answer: _Answer, now: Settled) -> web.Response:
    note, message = answer.taken.note, now.message
    text, reason = answer.question(now), "stop"
    if not _is_told(answer, now):
        _check(message, answer.agent)
        text, reason = shaped(message.result_text, answer.bounds)
        await answer.told(message, asking.joined(note, text))
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": asking.joined(note, text),
            "refusal": None,
        },
        "logprobs": None,
        "finish_reason": reason,
    }
    document = {
        **answer.head("chat.completion"),
        "choices": [choice],
        "usage": await answer.usage(),
    }
    response = reply(document)
    response.headers["X-Agentsup-Message"] = message.message_id
    response.headers["X-Agentsup-Session"] = message.session_id
    return response


def _is_told(answer: _Answer, now: Settled) -> bool:
    """Whether there is a question to tell, or a word on a closed one whose work has no answer."""
    return now.question is not None or (bool(answer.taken.note) and not _is_answered(now.message))


def _is_answered(message: Message) -> bool:
    return message.state is State.DONE and message.outcome is Outcome.OK


def _check(message: Message, agent: str) -> None:
    """Raise `EngineFailed` unless the message was answered."""
    if _is_answered(message):
        return
    if message.state is State.CANCELLED:
        raise EngineFailed(f"the request to {agent} was stopped", engine_code="stopped")
    why = message.error_text or "no reason was recorded"
    raise EngineFailed(f"{agent} could not answer: {why}", engine_code=message.error_code)


# -- a stream --------------------------------------------------------------------------------------


class _Stream:
    """The text of a running turn as it comes, and at its end what is missing of the answer.

    A reader that leaves ends the stream and not the turn.
    """

    def __init__(self, answer: _Answer, agent_id: str) -> None:
        self._answer = answer
        self._agent_id = agent_id
        self._call = answer.call
        self._limits = answer.call.deps.limits
        self._changed = asyncio.Event()
        self._is_closing = False
        self._turns: list[LiveTurn] = []
        self._read: list[int] = []
        self._sent = ""
        """Of the answer, before it is shaped."""
        self._shaper = Shaper(answer.bounds)
        self._said = ""
        """All that was passed on."""
        self._is_block_due = False

    async def run(self, *, with_usage: bool) -> web.StreamResponse:
        """Write until the answer is whole, the reader leaves or the listener closes."""
        response = web.StreamResponse(
            headers={
                hdrs.CONTENT_TYPE: "text/event-stream",
                "X-Accel-Buffering": "no",
                "X-Agentsup-Message": self._answer.message_id,
            }
        )
        await response.prepare(self._call.request)
        owner = TaskOwner("completion")
        unfollow = self._call.deps.live.follow(self._agent_id, "", self._begin)
        try:
            with (
                self._call.api.connections.ended_by(self._close),
                contextlib.suppress(ConnectionError, TimeoutError),
            ):
                ended = owner.spawn(
                    settled(self._call.deps, self._answer.message_id, None),
                    name=f"completion:{self._answer.agent}",
                )
                ended.add_done_callback(lambda _: self._changed.set())
                await self._write_all(response, ended, with_usage=with_usage)
                return response
        finally:
            unfollow()
            for turn in self._turns:
                turn.leave()
            await owner.close(1.0)
        if self._call.request.transport is not None:
            self._call.request.transport.abort()
        return response

    async def _write_all(
        self,
        response: web.StreamResponse,
        ended: asyncio.Task[Settled],
        *,
        with_usage: bool,
    ) -> None:
        await self._chunk(response, {"role": "assistant", "content": ""})
        note = self._answer.taken.note
        await self._say(response, note)
        self._is_block_due = bool(note)
        try:
            while not ended.done():
                await self._pass_on(response)
                await self._wait(response)
                if self._is_closing and not ended.done():
                    raise closing()
            now = ended.result()
            is_told = _is_told(self._answer, now)
            if not is_told:
                _check(now.message, self._answer.agent)
        except AgentsupError as error:
            await self._data(response, openai_error(error))
            return
        await self._pass_on(response)
        if not is_told:
            rest = missing(self._sent, now.message.result_text)
            await self._say(response, self._shaper.more(rest))
        await self._say(response, self._shaper.rest())
        self._is_block_due = bool(self._said)
        await self._say(response, self._answer.question(now))
        if not is_told:
            await self._answer.told(now.message, self._said)
        reason = "stop" if is_told else self._shaper.finish_reason
        await self._chunk(response, {}, finish_reason=reason)
        if with_usage:
            head = self._answer.head("chat.completion.chunk")
            await self._data(response, {**head, "choices": [], "usage": await self._answer.usage()})
        await self._write(response, b"data: [DONE]\n\n")
        await response.write_eof()

    def _begin(self, turn: LiveTurn) -> None:
        if turn.message_id == self._answer.message_id:
            self._turns.append(turn)
            self._read.append(0)
            turn.on_change = self._changed.set
            self._changed.set()

    async def _close(self) -> None:
        self._is_closing = True
        self._changed.set()

    async def _wait(self, response: web.StreamResponse) -> None:
        try:
            async with asyncio.timeout(self._limits.heartbeat_s):
                await self._changed.wait()
        except TimeoutError:
            await self._write(response, b": alive\n\n")
        self._changed.clear()

    async def _pass_on(self, response: web.StreamResponse) -> None:
        for number, turn in enumerate(self._turns):
            text = turn.text(self._read[number])
            self._read[number] = turn.length
            self._sent += text
            await self._say(response, self._shaper.more(text))

    async def _say(self, response: web.StreamResponse, text: str) -> None:
        if text:
            content = f"\n\n{text}" if self._is_block_due else text
            self._is_block_due = False
            self._said += content
            await self._chunk(response, {"content": content})

    async def _chunk(
        self,
        response: web.StreamResponse,
        delta: Mapping[str, Any],
        *,
        finish_reason: str | None = None,
    ) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        head = self._answer.head("chat.completion.chunk")
        await self._data(response, {**head, "choices": [choice]})

    async def _data(self, response: web.StreamResponse, document: Mapping[str, Any]) -> None:
        await self._write(response, b"data: " + encode(document) + b"\n\n")

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._limits.stall_s):
            await response.write(data)


def missing(sent: str, answer: str) -> str:
    """What a reader who has `sent` still needs to have the answer."""
    if answer.startswith(sent):
        return answer[len(sent) :]
    if sent.rstrip().endswith(answer.rstrip()):
        return ""
    return f"\n\n{answer}"


# -- models ----------------------------------------------------------------------------------------


async def models(call: Call) -> web.Response:
    """The agents as models."""
    names = call.deps.directory.names()
    return reply({"object": "list", "data": [_model(name) for name in names]})


async def model(call: Call) -> web.Response:
    """One agent as a model."""
    return reply(_model(call.deps.directory.lookup(call.named("name")).name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "agentsup"}


ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        completions,
        "Ask an agent as clients of the OpenAI API do; `stream` gives server-sent chunks",
        {200: shapes.ChatCompletion},
        body=CompletionBody,
        takes_work=True,
        refusals=(404, 409, 429, 502, 504),
        headers={
            CONVERSATION: "name of a lasting conversation; only the last texts are said in it",
            KEY: "the same key gives the same answer",
        },
    ),
    Route(
        "GET",
        "/v1/models",
        models,
        "The agents as models",
        {200: shapes.ModelList},
    ),
    Route(
        "GET",
        "/v1/models/{name}",
        model,
        "One agent as a model",
        {200: shapes.Model},
        refusals=(404,),
    ),
)
