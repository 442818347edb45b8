"""The dialogue with an agent in one segment: its session, its prompt and its permission requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsup import __version__
from agentsup.engines.acp import choices, mapping, prompts
from agentsup.engines.acp.choices import AcpOptions
from agentsup.engines.acp.refusal import AUTH_REQUIRED, AgentRefused, failure_of, said_by
from agentsup.engines.clean import as_dict
from agentsup.engines.event_queue import EventQueue
from agentsup.engines.failures import (
    AuthFailed,
    NeverReady,
    NotConfigured,
    ProgramEnded,
)
from agentsup.engines.process import (
    EngineProcess,
    ProgramDialogue,
    ProgramLaunch,
    ProgramSession,
)
from agentsup.engines.programs.presets import Preset
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, time_limit
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineNotice,
    Permission,
    PermissionRequest,
    Segment,
    Usage,
    unseen,
)
from agentsup.model.errors import EngineFailed
from agentsup.model.tool import OUR_MCP_SERVER

if TYPE_CHECKING:
    from agentsup.engines.acp.wire import Wire

_log = get_logger(__name__)

_QUEUED = 256
"""Events that may wait for the reader; more slow the agent."""
_OBEY_S = 0.15
"""Seconds that an agent may take to answer a cancelled prompt, so that it stores the turn."""
_END_S = 0.5
_LISTENS = ("end_turn", "cancelled")
"""Stop reasons of a prompt after which an agent accepts another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpLaunch(ProgramLaunch):
    """How the agent of one spec is started and signed in."""

    preset: Preset
    options: AcpOptions
    auth_method: str
    """The sign-in over the protocol to ask for, if any."""
    has_model: bool
    """Whether the command or the environment names the model already."""


@dataclass(frozen=True)
class AcpSession(ProgramSession):
    """One turn with an agent."""

    launch: AcpLaunch
    wire: Any
    """The module of that name, imported where the library is installed."""

    exit_s = 0.5

    def dialogue(self, child: EngineProcess, segment: Segment) -> ProgramDialogue:
        return _AcpDialogue(self, child, segment)


class _AcpDialogue(ProgramDialogue):
    """The dialogue of one segment with a running agent."""

    def __init__(self, session: AcpSession, child: EngineProcess, segment: Segment) -> None:
        self._turn_state = mapping.AcpTurnState()
        self._session = session
        self._segment = segment
        self._child = child
        self._launch = launch = session.launch
        self._spec = session.spec
        self._owner = TaskOwner(f"acp {launch.preset.name}", on_error=_seen_already)
        self._inbox = EventQueue[EngineEvent](_QUEUED)
        self._asking: set[asyncio.Task[Permission]] = set()
        self._denied = ""
        self._words: list[str] = []
        """People's words with denials, which the protocol can't carry."""
        self._session_id = ""
        self._sees = False
        """Whether the agent takes pictures."""
        self._takes_updates = False
        """Whether updates are of this turn, and not the replay of an earlier session."""
        self._prompt: asyncio.Task[dict[str, Any]] | None = None
        self._wire: Wire = session.wire.Wire(
            child, __version__, on_update=self._on_update, on_permission=self._on_permission
        )

    async def run(self) -> AsyncGenerator[EngineEvent]:
        segment = self._segment
        saved, notices = await self._begin()
        for notice in notices:
            yield notice
        self._turn_state = mapping.AcpTurnState(
            usd_before=saved.usd if saved else 0.0,
            answer=self._session.answer(),
        )
        self._takes_updates = True
        pictures = [each.data for each in segment.pictures] if self._sees else []
        if segment.pictures and not self._sees:
            yield EngineNotice(f"{self._launch.title} can't be shown pictures; it has their paths")
        missed = () if self._sees else segment.pictures
        text = "\n".join(
            [prompts.prompt_of(segment, saved), *(unseen(each.path) for each in missed)]
        )
        async with aclosing(self._prompted(text, pictures)) as events:
            async for event in events:
                yield event
        if more := self._follow_up():
            for event in self._turn_state.answer.end():
                yield event
            async with aclosing(self._prompted(more)) as events:
                async for event in events:
                    yield event
        for event in self._turn_state.close():
            yield event

    async def _prompted(
        self, text: str, pictures: Sequence[bytes] = ()
    ) -> AsyncGenerator[EngineEvent]:
        """Run one prompt to its end."""
        prompt = self._owner.spawn(
            self._wire.prompt(self._session_id, text, pictures),
            name=f"acp-prompt:{self._session_id}",
        )
        self._prompt = prompt
        prompt.add_done_callback(lambda _: self._inbox.ring())
        while not prompt.done() or self._inbox.items:
            if self._inbox.items:
                yield self._inbox.take()
            else:
                await self._inbox.news()
        if used := mapping.usage_of(prompt.result()):
            yield used

    def _follow_up(self) -> str:
        """Return a further prompt for this turn, or "". An agent's model learns only that a call
        was denied, so what a person said about it is sent as a prompt."""
        assert self._prompt is not None
        if not self._words or self._prompt.result().get("stopReason") not in _LISTENS:
            return ""
        return prompts.denial_prompt(self._words)

    def end(self) -> EngineDone:
        assert self._prompt is not None
        answer = self._prompt.result()
        system = prompts.digest(self._segment.system) if self._segment.system else ""
        usd = self._turn_state.usd_total or 0.0
        state = prompts.SavedSession(self._session_id, system, usd).dump(self._launch.preset.name)
        reason = answer.get("stopReason")
        end = mapping.end_of(
            reason if isinstance(reason, str) else "none",
            said=self._turn_state.said,
            denied=self._denied,
            state=state,
            has_acted=self._turn_state.has_acted,
        )
        if not isinstance(end, EngineDone):
            raise end
        return end

    async def break_off(self) -> Sequence[Usage]:
        prompt = self._prompt
        if prompt is None or prompt.done() or self._child.returncode is not None:
            return ()
        self._inbox.close()
        for asking in self._asking:
            asking.cancel()
        try:
            async with time_limit(_OBEY_S):
                await self._wire.cancel(self._session_id)
                await asyncio.wait({prompt})
        except (TimeoutError, EngineFailed, ConnectionError):
            return ()
        if prompt.cancelled() or prompt.exception() is not None:
            return ()
        used = mapping.usage_of(prompt.result())
        return () if used is None else (used,)

    async def failure(self, error: Exception) -> Exception | None:
        if not isinstance(error, AgentRefused | ProgramEnded):
            return None
        preset, ended = self._launch.preset, self._launch.preset.ended
        said = said_by(error) if isinstance(error, AgentRefused) else error.message
        if ended is not None and ended.is_said_in(said):
            return AuthFailed(
                f"{preset.title} is not signed in, as {ended.why}: {preset.sign_in} ({said})"
            )
        if isinstance(error, ProgramEnded):
            return None
        return failure_of(error, preset, has_acted=self._turn_state.has_acted)

    async def close(self) -> None:
        try:
            await self.break_off()
        finally:
            self._inbox.close()
            await self._wire.close()
            await self._owner.close(_END_S)

    # -- beginning ---------------------------------------------------------------------------------

    async def _begin(self) -> tuple[prompts.SavedSession | None, list[EngineNotice]]:
        """Open the agent's session. Returns the saved state (None for a new one) and notices."""
        limit_s = self._launch.options.start_timeout_s
        try:
            async with time_limit(limit_s):
                return await self._open()
        except TimeoutError:
            said = self._child.said_text()
            raise NeverReady(
                f"{self._launch.title} was not ready within {limit_s:g} s "
                f"(engine_options.start_timeout_s){f'; it said: {said}' if said else ''}"
            ) from None

    async def _open(self) -> tuple[prompts.SavedSession | None, list[EngineNotice]]:
        answer = await self._wire.initialize()
        able = as_dict(answer.get("agentCapabilities"))
        self._sees = as_dict(able.get("promptCapabilities")).get("image") is True
        servers, left_out = self._session.wire.mcp_servers(
            self._spec.mcp_servers, as_dict(able.get("mcpCapabilities"))
        )
        notices = [
            EngineNotice(f"{self._launch.title} can't use the MCP server {name}")
            for name in left_out
            if name != OUR_MCP_SERVER  # nobody configured it, and every turn would report it
        ]
        await self._sign_in(answer)
        saved = prompts.read_state(self._segment.engine_state, self._launch.preset.name)
        opened = await self._reopen(saved, able, servers) if saved is not None else None
        if saved is None or opened is None:
            saved = None
            opened = await self._wire.new_session(self._spec.workspace, list(servers), self._meta)
            self._session_id = opened["sessionId"]
        # The agent has read its settings now, perhaps also files that were planted meanwhile.
        await self._session.launcher.homes.check_again(self._launch.home, self._launch.title)
        await self._choose_mode(opened)
        await self._choose(opened)
        return saved, notices

    async def _sign_in(self, answer: Mapping[str, Any]) -> None:
        """Sign in by the configured method; without one, the agent signs in by itself."""
        method = self._launch.auth_method
        offered = {as_dict(each).get("id") for each in answer.get("authMethods") or ()}
        if method and method in offered:
            await self._wire.authenticate(method)
        elif self._launch.options.auth_method:
            names = ", ".join(sorted(str(each) for each in offered)) or "none"
            raise NotConfigured(
                f"{self._launch.title} has no sign-in {method!r} (engine_options.auth_method), "
                f"only {names}"
            )

    async def _reopen(
        self, saved: prompts.SavedSession, able: Mapping[str, Any], servers: Sequence[Any]
    ) -> dict[str, Any] | None:
        """Open the earlier session; None if the agent can't open it any more."""
        cwd, key = self._spec.workspace, saved.session_id
        can_resume = as_dict(able.get("sessionCapabilities")).get("resume") is not None
        if not (can_resume or able.get("loadSession")):
            return None
        try:
            opened = await self._wire.reopen_session(
                cwd, key, list(servers), self._meta, replays=not can_resume
            )
        except AgentRefused as refused:
            if refused.code == AUTH_REQUIRED:
                raise
            _log.info(f"{self._launch.title} can't go on with its session: {said_by(refused)}")
            return None
        self._session_id = key
        return opened

    @property
    def _meta(self) -> Mapping[str, Any]:
        return self._launch.home.settings.session_meta

    async def _choose_mode(self, opened: Mapping[str, Any]) -> None:
        """Set the mode in which the agent asks for permissions, whatever its settings say."""
        wanted = self._launch.home.settings.mode
        modes = as_dict(opened.get("modes"))
        offered = {as_dict(each).get("id") for each in modes.get("availableModes") or ()}
        if wanted and wanted in offered and modes.get("currentModeId") != wanted:
            await self._wire.set_mode(self._session_id, wanted)

    async def _choose(self, opened: Mapping[str, Any]) -> None:
        """Set the session's model and effort as the entry says, if the command line did not.

        Raises ``NotConfigured`` if the agent has no such option, or no such value.
        """
        offered = choices.choices_of(opened)
        if self._spec.model and not self._launch.has_model:
            answer = await self._set(offered, choices.MODEL, self._spec.model)
            offered = choices.choices_of(answer) or offered  # another model may know other efforts
        if self._spec.reasoning_effort:
            await self._set(offered, choices.EFFORT, self._spec.reasoning_effort)

    async def _set(
        self, offered: tuple[choices.SessionOption, ...], category: str, wanted: str
    ) -> dict[str, Any]:
        """Set an option of the session. Returns the agent's answer, empty if it was set already."""
        option, value = choices.choose(offered, category, wanted, title=self._launch.title)
        if option.current == value:
            return {}
        return await self._wire.set_option(self._session_id, option.option_id, value)

    # -- while the turn runs -----------------------------------------------------------------------

    async def _on_update(self, params: dict[str, Any]) -> None:
        if not self._takes_updates or params.get("sessionId") != self._session_id:
            return
        await self._report(self._turn_state.take(as_dict(params.get("update"))))

    async def _on_permission(self, params: dict[str, Any]) -> str | None:
        options = [as_dict(each) for each in params.get("options") or ()]
        if not self._takes_updates or params.get("sessionId") != self._session_id:
            return mapping.choose(options, Permission(False)).option_id
        request, events = self._turn_state.about(as_dict(params.get("toolCall")))
        await self._report(events)
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
            await self._report(self._turn_state.denied(request.request_id, verdict.denied))
        return verdict.option_id

    async def _report(self, events: Sequence[EngineEvent]) -> None:
        for event in events:
            await self._inbox.put(event)

    async def _ask(self, request: PermissionRequest) -> Permission:
        """Return the host's answer; the process counts as paused while a person is waited for."""
        ours = mapping.our_call(request, self._launch.preset.our_title)
        return await self._child.waiting(self._session.host.permit(ours))


def _seen_already(task: asyncio.Task[Any], error: BaseException) -> None:
    """Do nothing: the error is raised where the task's result is read."""
