"""One turn with a language model: stream, call tools, ask, end."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pydantic_ai import (
    Agent,
    AgentRun,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    ModelSettings,
    RunContext,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage, UsageLimits

from agentsup.engines.failures import (
    BadModelOutput,
    ModelNotFound,
    RequestRejected,
    TurnLimitReached,
)
from agentsup.engines.llm import history
from agentsup.engines.llm.answers import (
    CUT,
    WRITTEN_CALL,
    AnswerReader,
    KnownModels,
    SegmentText,
    cut_of,
    printed_call,
    raise_if_broken,
)
from agentsup.engines.llm.errors import translate
from agentsup.engines.llm.history import call_ids
from agentsup.engines.llm.settings import LlmSettings
from agentsup.engines.llm.toolset import ASK_USER, HostToolset, takes_no_tools
from agentsup.kit.log import get_logger
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineNotice,
    ModelRequest,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

_log = get_logger(__name__)

_PREVIEW_CHARS = 200
_TOOL_RETRIES = 2
"""Number of times that the model may name a tool that does not exist, or send arguments that are no
JSON."""
_EMPTY_RETRIES = 1
"""Number of times that the model is asked again after an empty answer."""
_LAST_REQUEST = UsageLimits(request_limit=1 + _EMPTY_RETRIES, tool_calls_limit=0)
_MOST_TOOLS = 128
"""OpenAI takes no more, and models choose badly among more."""
_REFUSALS = 8
"""Number of times that a refused request is made again without the tool, or the history, that was
refused."""
_REFUSED_TOOL = "The tool {name} is left out, because the provider refuses it: {why}"
_NO_TOOLS = "The model is offered no tools, because its provider takes none: {why}"
_NO_ROOM = "{n} tools are left out, because the provider takes {most} at most: {names}"
_NAMED_MOST = 20
_ONE_AT_A_TIME = "Only one question can be open; ask this one again after the answer to the other."

Output = str | DeferredToolRequests
Run = AgentRun[None, Output]


class LlmSession:
    """One turn with a model. It holds only values: the client belongs to the engine."""

    def __init__(
        self,
        model: Model,
        settings: LlmSettings,
        host: EngineHost,
        known: KnownModels,
        *,
        max_steps: int | None = None,
        on_close: Callable[[], None] = lambda: None,
        instead: Callable[[ModelNotFound], Awaitable[Exception]] | None = None,
    ) -> None:
        """``max_steps`` is the agent's own limit of model requests, instead of the options'.
        ``instead`` makes the failure that names the models which the server has."""
        self._on_close = on_close
        self._instead = instead
        self._settings = settings
        self._known = known
        options = settings.options
        # Anthropic caches only what it is asked to; others ignore it.
        wanted = ModelSettings(cache=True)
        if options.temperature is not None:
            wanted["temperature"] = options.temperature
        if options.max_tokens is not None:
            wanted["max_tokens"] = options.max_tokens
        self._toolset = HostToolset(
            host,
            ask_user=options.ask_user,
            most=_MOST_TOOLS,
            refused=known.refused_of(settings.model_key),
        )
        self._recalled = ""
        self._call_ids: set[str] = set()
        self._agent: Agent[None, Output] = Agent(
            model,
            output_type=[str, DeferredToolRequests],
            toolsets=[self._toolset],
            model_settings=wanted,
            retries={"tools": _TOOL_RETRIES, "output": _EMPTY_RETRIES},
        )
        self._agent.output_validator(self._no_written_call)
        self._limits = UsageLimits(
            request_limit=max_steps or options.request_limit,
            tool_calls_limit=options.tool_calls_limit,
            total_tokens_limit=options.total_tokens_limit,
        )

    async def close(self) -> None:
        """Tell the engine; nothing remains after a run."""
        self._on_close()

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run one segment. Raises ``EngineFailed``; the usage of finished requests comes before."""
        if segment.pictures and not self._settings.options.pictures:
            yield EngineNotice(history.BLIND)
        given = segment
        for left in range(_REFUSALS, -1, -1):
            is_new = True
            try:
                async with aclosing(self._run(given)) as events:
                    async for event in events:
                        is_new = is_new and isinstance(event, ModelRequest) and not event.has_ended
                        yield event
            except ModelNotFound as refused:
                raise await self._instead(refused) if self._instead else refused from refused
            except RequestRejected as refused:
                words, why = str(refused.__cause__), refused.message
                tool = self._toolset.refused_in(words)
                if is_new and left and takes_no_tools(words) and self._toolset.offers_any:
                    self._toolset.exclude(None, why)
                    _log.warning("a provider takes no tools", model=self._settings.model, why=why)
                    yield EngineNotice(_NO_TOOLS.format(why=why))
                elif is_new and left and tool is not None:
                    self._toolset.exclude(tool, why)
                    _log.warning("a provider refuses a tool", tool=tool.name, why=why)
                    yield EngineNotice(_REFUSED_TOOL.format(name=tool.name, why=why))
                elif is_new and left and history.has_own_state(given):
                    # A provider that refuses a history would refuse it at every further turn.
                    given = replace(given, engine_state=None)
                else:
                    raise self._with_remedy(refused, segment) from refused
            else:
                return

    # -- inside ------------------------------------------------------------------------------------

    async def _run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        said, self._recalled = SegmentText(), segment.recalled
        prompt: history.Prompt | None = history.prompt_of(
            segment, sees=self._settings.options.pictures
        )
        resumed: DeferredToolResults | None = None
        if segment.resume is not None and segment.resume.checkpoint is not None:
            thawed = history.thaw(segment.resume.checkpoint, segment.resume.answer)
            before, prompt = history.recalling(thawed.messages, segment.recalled), None
            # The host decides whether a call may happen when it is made again.
            again = dict.fromkeys(thawed.again, True)
            self._toolset.expect(thawed.names)
            resumed = DeferredToolResults(calls=dict(thawed.answers), approvals=dict(again))
            said = SegmentText(
                [thawed.text] if thawed.text else [], is_new_step=True, used_tools=True
            )
        else:
            assert prompt is not None
            before, prompt = history.alternating(history.messages_before(segment), prompt)
        self._call_ids = call_ids(before)
        usage = RunUsage()
        is_last = segment.nudge == "wrap_up"
        self._toolset.is_closed = is_last and self._settings.endpoint.dialect != "anthropic"
        async with self._agent.iter(
            prompt,
            message_history=before,
            deferred_tool_results=resumed,
            instructions=segment.system or None,
            usage_limits=_LAST_REQUEST if is_last else self._limits,
            # Anthropic needs the tools that its history names, so they are only not to be chosen.
            model_settings=ModelSettings(tool_choice="none") if is_last else None,
        ) as run:
            try:
                async for event in self._steps(run, said):
                    if isinstance(event, RunUsage):
                        yield _usage(event, usage)
                        usage = event
                    else:
                        yield event
            except Exception as error:
                if run.usage.requests > usage.requests:
                    yield _usage(run.usage, usage)
                known = self._limit_of(error, run) or translate(
                    error, self._settings, run.all_messages(), used_tools=said.used_tools
                )
                if known is None:
                    raise
                raise known from error
            end = self._end(run, said)
            if said.cut and isinstance(end, EngineDone):
                note = "\n\n" + CUT[said.cut]
                yield TextDelta(note)
                end = replace(end, text=end.text + note)
            yield end

    def _with_remedy(self, refused: RequestRejected, segment: Segment) -> RequestRejected:
        message = refused.message
        if segment.pictures:
            message = f"{message}. {history.MAY_BE_BLIND}"
        if segment.history or segment.engine_state:
            message = f"{message}. {history.MAY_BE_HISTORY}"
        return RequestRejected(message)

    async def _steps(self, run: Run, said: SegmentText) -> AsyncIterator[EngineEvent | RunUsage]:
        reader: AnswerReader | None = None
        async for node in run:
            if Agent.is_model_request_node(node):
                was_written = said.cut == "printed"
                if was_written:
                    said.correct_step("")
                said.begin_step()
                yield ModelRequest()
                reader = self._reader()
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        news = reader.read(event)
                        if news is not None:
                            # Also without a text it is a sign of life.
                            yield said.add(news[0]) or ThinkingDelta(news[1])
                    rest = said.add(reader.end(stream.response))
                is_call = printed_call(reader.splitter.answer, self._toolset.is_tool)
                if rest is not None and (was_written or not is_call):
                    yield rest
                yield ModelRequest(has_ended=True)
                if (notice := self._left_out()) is not None:
                    yield notice
                yield copy.copy(run.usage)  # the library goes on counting in the same object
            elif Agent.is_call_tools_node(node):
                if reader is not None:
                    self._settle(reader, node.model_response, said)
                reader = None  # a run that is continued begins with calls of its history
                async with node.stream(run.ctx) as calls:
                    async for call in calls:
                        reported = _from_tool(call, said, self._toolset.real_name)
                        if reported is not None:
                            yield reported

    def _no_written_call(self, ctx: RunContext[None], output: Output) -> Output:
        """Ask once more if the answer is a call that the model wrote as text."""
        is_tool = self._toolset.is_tool
        if ctx.retry == 0 and isinstance(output, str) and printed_call(output, is_tool):
            raise ModelRetry(WRITTEN_CALL)
        return output

    def _left_out(self) -> EngineNotice | None:
        """Return the notice about tools for which there was no room, once."""
        names = self._toolset.left_out
        if not names:
            return None
        shown = ", ".join(names[:_NAMED_MOST]) + (", …" if len(names) > _NAMED_MOST else "")
        text = _NO_ROOM.format(n=len(names), most=_MOST_TOOLS, names=shown)
        if not self._known.tells(text):
            return None
        _log.warning("tools are left out of requests", model=self._settings.model, why=text)
        return EngineNotice(text)

    def _reader(self) -> AnswerReader:
        known = self._settings.template_opens_thought
        if known is None:
            known = self._known.may_open(self._settings.model_key)
        return AnswerReader(may_open=known)

    def _settle(self, reader: AnswerReader, response: ModelResponse, said: SegmentText) -> None:
        """Correct a whole response before the library judges it. Raises ``EngineFailed`` if it has
        not come to its end."""
        raise_if_broken(response)
        reader.settle(response, self._toolset.nearest, self._call_ids)
        said.correct_step(reader.splitter.answer)
        said.cut = cut_of(response)
        has_calls = any(isinstance(part, ToolCallPart) for part in response.parts)
        is_call = printed_call(reader.splitter.answer, self._toolset.is_tool)
        if is_call and not has_calls and not said.cut:
            said.cut = "printed"
        if reader.splitter.answer and not said.cut:
            self._known.learn(self._settings.model_key, reader.splitter)

    def _limit_of(self, error: Exception, run: Run) -> TurnLimitReached | None:
        """Return the failure of a run that is out of steps, with the state for a summary."""
        most = self._limits.total_tokens_limit
        is_out_of_tokens = most is not None and run.usage.total_tokens > most
        if not isinstance(error, UsageLimitExceeded) or is_out_of_tokens:
            return None
        return TurnLimitReached(
            f"the turn reached its limit of {self._limits.request_limit} model requests or "
            f"{self._limits.tool_calls_limit} tool calls; raise max_steps, or request_limit and "
            "tool_calls_limit in engine_options, if it was meant to go on",
            state=history.dump(self._messages(run)),
        )

    def _end(self, run: Run, said: SegmentText) -> EngineDone | Suspended:
        result = run.result
        if result is None:
            raise BadModelOutput("the model's run ended without a result")
        if isinstance(result.output, DeferredToolRequests):
            return self._question(result.output, run, said)
        text = "".join(said.text) or result.output
        return EngineDone("ok", text=text, engine_state=history.dump(self._messages(run)))

    def _messages(self, run: Run) -> list[ModelMessage]:
        return history.forgetting(run.all_messages(), self._recalled)

    def _question(self, waiting: DeferredToolRequests, run: Run, said: SegmentText) -> Suspended:
        real = self._toolset.real_name
        saved = history.Checkpoint(
            messages=self._messages(run),
            text="".join(said.text),
            again=[call.tool_call_id for call in waiting.approvals],
            names={call.tool_name: real(call.tool_name) for call in waiting.approvals},
        )
        if not waiting.calls:
            # One question at a time: the other calls are made again too, and then ask.
            return self._toolset.waiting[saved.again[0]].ending(saved.freeze())
        first, *others = waiting.calls
        args = _arguments(first)
        options = args.get("options")
        saved.ask_id = first.tool_call_id
        saved.answers = {call.tool_call_id: _ONE_AT_A_TIME for call in others}
        return Suspended(
            checkpoint=saved.freeze(),
            text=str(args.get("text") or "The agent has a question, but did not say which."),
            options=tuple(str(o) for o in options) if isinstance(options, list) else (),
        )


def _from_tool(event: Any, said: SegmentText, real: Callable[[str], str]) -> EngineEvent | None:
    """Return what the person sees of a call; the question tool is shown as a question."""
    if isinstance(event, FunctionToolCallEvent) and event.part.tool_name != ASK_USER:
        said.used_tools = True
        return ToolStarted(real(event.part.tool_name), _arguments(event.part))
    if isinstance(event, FunctionToolResultEvent) and event.part.tool_name != ASK_USER:
        part = event.part
        ok = isinstance(part, ToolReturnPart) and part.outcome == "success"
        return ToolFinished(real(part.tool_name or ""), ok, str(part.content)[:_PREVIEW_CHARS])
    return None


def _arguments(call: ToolCallPart) -> dict[str, Any]:
    try:
        return dict(call.args_as_dict())
    except (ValueError, AssertionError, TypeError):
        return {"invalid": str(call.args)[:_PREVIEW_CHARS]}


def _usage(now: RunUsage, before: RunUsage) -> Usage:
    """Return the usage between the two."""
    usd = float(now.cost - (before.cost or 0)) if now.cost is not None else None
    return Usage(
        now.input_tokens - before.input_tokens,
        now.output_tokens - before.output_tokens,
        usd,
        cache_read_tokens=now.cache_read_tokens - before.cache_read_tokens,
        cache_write_tokens=now.cache_write_tokens - before.cache_write_tokens,
    )
