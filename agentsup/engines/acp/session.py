"""One turn with an agent: its process, its session, its prompt, and what it asks leave for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentsup import __version__
from agentsup.engines.acp import choices, mapping
from agentsup.engines.acp.event_queue import EventQueue
from agentsup.engines.acp.options import AcpOptions
from agentsup.engines.acp.refusal import AUTH_REQUIRED, AgentRefused, failure_of, said_by
from agentsup.engines.child import Child, ChildLimits, ChildManager, EngineHome
from agentsup.engines.child.preparing import HomePreparer
from agentsup.engines.failures import NotConfigured, ProviderTimedOut
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import (
    Done,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Notice,
    Permission,
    PermissionRequest,
    Segment,
    Usage,
)
from agentsup.model.errors import EngineFailed
from agentsup.model.tool import OUR_MCP_SERVER

if TYPE_CHECKING:
    from agentsup.engines.acp.wire import Wire

_log = logging.getLogger(__name__)

_OBEY_S = 0.15
"""How long an agent may take to answer a prompt that was cancelled, so that it keeps the turn."""
_LEAVE_S = 0.5
_END_S = 0.5
_LISTENS = ("end_turn", "cancelled")
"""Ends of a prompt after which an agent takes another one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How the agent of one spec is started and spoken of."""

    engine: str
    title: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    home: EngineHome
    options: AcpOptions
    remedy: str = ""
    sign_in: str = "sign in with its own command"
    auth_method: str = ""
    our_title: str = ""
    has_model: bool = False
    """The command or the environment says the model already."""


class AcpSession:
    """Implements ``EngineSession``: one process for each segment."""

    def __init__(
        self, wire: Any, children: ChildManager, launch: Launch, spec: EngineSpec, host: EngineHost
    ) -> None:
        """``wire`` is the module of that name, imported where the library is installed."""
        self._wire = wire
        self._children = children
        self._launch = launch
        self._spec = spec
        self._host = host

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        """Run one segment. Raises ``EngineFailed``."""
        launch = self._launch
        limits = ChildLimits(memory_mb=launch.options.memory_mb)
        for notice in await self._children.homes.prepare(launch.home, launch.title):
            yield notice
        async with self._children.open(
            launch.argv,
            self._spec,
            self._host,
            env=launch.env,
            home=launch.home.place,
            secrets=launch.secrets,
            limits=limits,
            remedy=launch.remedy,
            slot=self._host.slot,
        ) as child:
            turn = _Turn(self._wire, child, launch, self._spec, self._host, self._children.homes)
            try:
                async with aclosing(turn.run(segment)) as events:
                    async for event in events:
                        yield event
                end = turn.end(segment)
                await turn.close()
                await child.leave(_LEAVE_S)
            except asyncio.CancelledError:
                # What was used until now is told all the same; the cancellation goes on after it.
                if used := await turn.break_off():
                    yield used
                raise
            except AgentRefused as refused:
                raise failure_of(
                    refused,
                    title=launch.title,
                    sign_in=launch.sign_in,
                    has_acted=turn.book.has_acted,
                ) from refused
            finally:
                await turn.close()
        yield end

    async def close(self) -> None:
        """Nothing is held between segments."""


class _Turn:
    """The dialogue of one segment with a running agent."""

    def __init__(
        self,
        wire: Any,
        child: Child,
        launch: Launch,
        spec: EngineSpec,
        host: EngineHost,
        homes: HomePreparer,
    ) -> None:
        self.book = mapping.Book()
        self._module = wire
        self._child = child
        self._launch = launch
        self._spec = spec
        self._host = host
        self._homes = homes
        self._owner = TaskOwner(f"acp {launch.engine}", on_error=_seen_already)
        self._inbox = EventQueue()
        self._asking: set[asyncio.Task[Permission]] = set()
        self._denied = ""
        self._words: list[str] = []
        """What people said with denials, which the protocol can't carry."""
        self._session_id = ""
        self._is_heard = False
        """Updates are of this turn, not of a session that is told anew."""
        self._prompt: asyncio.Task[dict[str, Any]] | None = None
        self._wire: Wire = wire.Wire(
            child, __version__, on_update=self._on_update, on_permission=self._on_permission
        )

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        kept, notices = await self._begin(segment)
        for notice in notices:
            yield notice
        self.book = mapping.Book(usd_before=kept.usd if kept else 0.0)
        self._is_heard = True
        async with aclosing(self._prompted(mapping.prompt_of(segment, kept))) as events:
            async for event in events:
                yield event
        if more := self._follow_up():
            async with aclosing(self._prompted(more)) as events:
                async for event in events:
                    yield event
        for event in self.book.close():
            yield event

    async def _prompted(self, text: str) -> AsyncGenerator[EngineEvent]:
        """Run one prompt to its end."""
        prompt = self._owner.spawn(
            self._wire.prompt(self._session_id, text), name=f"acp-prompt:{self._session_id}"
        )
        self._prompt = prompt
        prompt.add_done_callback(lambda _: self._inbox.ring())
        while not prompt.done() or self._inbox.items:
            for event in await self._inbox.take():
                yield event
        if used := mapping.usage_of(prompt.result()):
            yield used

    def _follow_up(self) -> str:
        """What to say once more in this turn: an agent's model learns that a call was denied, and
        nothing else, so what a person said with it is told as a prompt."""
        assert self._prompt is not None
        if not self._words or self._prompt.result().get("stopReason") not in _LISTENS:
            return ""
        return mapping.told_words(self._words)

    def end(self, segment: Segment) -> Done:
        """The end of a turn that ran to its end. Raises ``EngineFailed``, ``AgentRefused``."""
        assert self._prompt is not None
        answer = self._prompt.result()
        system = mapping.digest(segment.system) if segment.system else ""
        usd = self.book.usd_total or 0.0
        state = mapping.Kept(self._session_id, system, usd).dump(self._launch.engine)
        reason = answer.get("stopReason")
        end = mapping.end_of(
            reason if isinstance(reason, str) else "none",
            said="".join(self.book.said),
            denied=self._denied,
            state=state,
            has_acted=self.book.has_acted,
        )
        if not isinstance(end, Done):
            raise end
        return end

    async def break_off(self) -> Usage | None:
        """Ask for the end of the running prompt and give the agent a moment to obey, so that it
        keeps the turn; what was used, if it says so."""
        prompt = self._prompt
        if prompt is None or prompt.done() or self._child.returncode is not None:
            return None
        self._inbox.close()
        for asking in self._asking:
            asking.cancel()
        try:
            async with asyncio.timeout(_OBEY_S):
                await self._wire.cancel(self._session_id)
                await asyncio.wait({prompt})
        except (TimeoutError, EngineFailed, ConnectionError):
            return None
        if prompt.cancelled() or prompt.exception() is not None:
            return None
        return mapping.usage_of(prompt.result())

    async def close(self) -> None:
        """End the connection and what waits on it; may be called repeatedly."""
        try:
            await self.break_off()
        finally:
            self._inbox.close()
            await self._wire.close()
            await self._owner.close(_END_S)

    # -- beginning ---------------------------------------------------------------------------------

    async def _begin(self, segment: Segment) -> tuple[mapping.Kept | None, list[Notice]]:
        """Open the agent's session; what was kept of it where it is an earlier one."""
        limit_s = self._launch.options.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._open(segment)
        except TimeoutError:
            said = self._child.stderr_text()
            raise ProviderTimedOut(
                f"{self._launch.title} was not ready within {limit_s:g} s "
                f"(engine_options.start_timeout_s){f'; it said: {said}' if said else ''}"
            ) from None

    async def _open(self, segment: Segment) -> tuple[mapping.Kept | None, list[Notice]]:
        answer = await self._wire.initialize()
        able = _object(answer.get("agentCapabilities"))
        servers, left_out = self._module.mcp_servers(
            self._spec.mcp_servers, _object(able.get("mcpCapabilities"))
        )
        notices = [
            Notice(f"{self._launch.title} can't use the MCP server {name}")
            for name in left_out
            if name != OUR_MCP_SERVER  # nobody asked for it, and every turn would tell
        ]
        await self._sign_in(answer)
        kept = mapping.read_state(segment.engine_state, self._launch.engine)
        opened = await self._reopen(kept, able, servers) if kept is not None else None
        if kept is None or opened is None:
            kept = None
            opened = await self._new(servers)
            self._session_id = opened["sessionId"]
        # It has read its settings now: what was written into the workspace meanwhile may have counted.
        await self._homes.look_again(self._launch.home, self._launch.title)
        await self._choose_mode(opened)
        notices += await self._choose(opened)
        return kept, notices

    async def _sign_in(self, answer: Mapping[str, Any]) -> None:
        """Sign in by the method that was asked for; without one, that is the agent's own affair."""
        method = self._launch.options.auth_method or self._launch.auth_method
        offered = {_object(each).get("id") for each in answer.get("authMethods") or ()}
        if method and method in offered:
            await self._wire.authenticate(method)
        elif self._launch.options.auth_method:
            names = ", ".join(sorted(str(each) for each in offered)) or "none"
            raise NotConfigured(
                f"{self._launch.title} has no sign-in {method!r} (engine_options.auth_method), "
                f"only {names}"
            )

    async def _reopen(
        self, kept: mapping.Kept, able: Mapping[str, Any], servers: Sequence[Any]
    ) -> dict[str, Any] | None:
        """The earlier session, or None where the agent can't open it any more."""
        cwd, key = self._spec.workspace, kept.session_id
        can_resume = _object(able.get("sessionCapabilities")).get("resume") is not None
        try:
            if can_resume:
                opened = await self._wire.resume_session(cwd, key, list(servers), self._meta)
            elif able.get("loadSession"):
                opened = await self._wire.load_session(cwd, key, list(servers), self._meta)
            else:
                return None
        except AgentRefused as refused:
            if refused.code == AUTH_REQUIRED:
                raise
            _log.info("%s can't go on with its session: %s", self._launch.title, said_by(refused))
            return None
        self._session_id = key
        return opened

    async def _new(self, servers: Sequence[Any]) -> dict[str, Any]:
        opened: dict[str, Any] = await self._wire.new_session(
            self._spec.workspace, list(servers), self._meta
        )
        return opened

    @property
    def _meta(self) -> Mapping[str, Any]:
        return self._launch.home.settings.session_meta

    async def _choose_mode(self, opened: Mapping[str, Any]) -> None:
        """Have the agent ask, whatever mode its settings have put it into."""
        wanted = self._launch.home.settings.mode
        modes = _object(opened.get("modes"))
        offered = {_object(each).get("id") for each in modes.get("availableModes") or ()}
        if wanted and wanted in offered and modes.get("currentModeId") != wanted:
            await self._wire.set_mode(self._session_id, wanted)

    async def _choose(self, opened: Mapping[str, Any]) -> list[Notice]:
        """Set the session's model and effort as the entry says, where the command line did not.

        Raises ``NotConfigured`` where the agent doesn't let its model be chosen, or has no such. An
        effort that it doesn't know is told as a notice: it thinks as it does without.
        """
        offered = choices.choices_of(opened)
        if self._spec.model and not self._launch.has_model:
            answer = await self._set(offered, choices.MODEL, self._spec.model)
            offered = choices.choices_of(answer) or offered  # another model may know other efforts
        if self._spec.reasoning_effort:
            try:
                await self._set(offered, choices.EFFORT, self._spec.reasoning_effort)
            except NotConfigured as error:
                return [Notice(error.message)]
        return []

    async def _set(
        self, offered: tuple[choices.Choice, ...], category: str, wanted: str
    ) -> dict[str, Any]:
        """Set what the session lets be chosen; the agent's answer, empty if it is so already."""
        option, value = choices.choose(offered, category, wanted, title=self._launch.title)
        if option.current == value:
            return {}
        answer: dict[str, Any] = await self._wire.set_option(
            self._session_id, option.option_id, value
        )
        return answer

    # -- during --------------------------------------------------------------------------------------

    async def _on_update(self, params: dict[str, Any]) -> None:
        if not self._is_heard or params.get("sessionId") != self._session_id:
            return
        await self._inbox.put(self.book.take(_object(params.get("update"))))

    async def _on_permission(self, params: dict[str, Any]) -> str | None:
        options = [_object(each) for each in params.get("options") or ()]
        if not self._is_heard or params.get("sessionId") != self._session_id:
            return mapping.choose(options, Permission(False)).option_id
        request, events = self.book.about(_object(params.get("toolCall")))
        await self._inbox.put(events)
        asking = self._owner.spawn(self._ask(request), name=f"acp-permit:{request.request_id}")
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._asking.discard(asking)
            asking.cancel()
        if asking.cancelled() or asking.exception() is not None:
            return None  # the turn ends; the guard has seen why
        verdict = mapping.choose(options, asking.result())
        if verdict.denied:
            what = request.title or request.tool
            self._denied = f"{what} was denied: {verdict.denied}"
            if asking.result().words:
                self._words.append(f"{what}: {asking.result().words}")
            await self._inbox.put(self.book.denied(request.request_id, verdict.denied))
        return verdict.option_id

    async def _ask(self, request: PermissionRequest) -> Permission:
        """The host's answer; the process counts as held while a person is waited for."""
        ours = mapping.our_call(request, self._launch.our_title)
        return await self._child.waiting(self._host.permit(ours))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _seen_already(task: asyncio.Task[Any], error: BaseException) -> None:
    """The error is raised where the task's result is asked for."""
