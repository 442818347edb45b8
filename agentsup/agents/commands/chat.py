"""Commands of every agent's chat: sessions, stop, status, model, questions."""

from __future__ import annotations

from agentsup.agents.commands import background, texts
from agentsup.agents.commands.answers import SHOWN, answer_commands, open_here
from agentsup.agents.commands.background import BackgroundList
from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.agents.commands.overrides import override_commands
from agentsup.agents.commands.pages import columns, page_of, turning, wanted_page
from agentsup.agents.recovery.decisions import FALLBACK, TIERS
from agentsup.agents.roles import rows as role_rows
from agentsup.approvals.grants import Grants
from agentsup.catalogue import Words, words
from agentsup.mailbox import outbox, sessions
from agentsup.mailbox.naming import chat_key
from agentsup.model.agent import OFFLINE
from agentsup.model.control import AgentView, Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.message import TERMINAL, State
from agentsup.model.principal import PersonRole
from agentsup.store.database import Reader

SESSIONS_PER_PAGE = 8
KEPT = 200
"""Sessions that can be paged through."""


class _ChatCommandSet:
    """The handlers; one instance for the daemon."""

    def __init__(self, services: CommandServices) -> None:
        self._s = services
        self._background = BackgroundList(services)

    async def start(self, context: CommandContext, rest: str) -> CommandReply:
        del rest
        say = words(context.language)
        view = await self._s.control.agent(context.agent_name)
        if view.engine == OFFLINE:
            engine = say("start.offline")
            if view.engine_reason:
                engine = f"{engine} ({view.engine_reason})"
        elif view.model:
            engine = say("start.engine", engine=view.engine, model=view.model)
        else:
            engine = view.engine
        state = texts.state(view.status, say)
        return CommandReply(say("start.hello", name=view.name, state=state, engine=engine))

    async def new(self, context: CommandContext, rest: str) -> CommandReply:
        now = self._s.clock.now_ms()
        await self._s.database.write(
            lambda tx: sessions.new_tx(
                tx, context.agent_id, _key(context), at=now, entropy=self._s.entropy, title=rest
            ),
            name="command.new",
        )
        return CommandReply(words(context.language)("session.new"))

    async def stop(self, context: CommandContext, rest: str) -> CommandReply:
        del rest
        say = words(context.language)
        session_id = await self._session_id(context)
        if session_id:
            report = await self._s.control.stop(
                f"session:{session_id}", context.principal, given_in=context.given_in
            )
            text = texts.stop(report, say)
        else:
            text = say("stopped.nothing_here")
        works = await self._background.all(context)
        told = [text, *background.lines(works, say), *([say("background.how")] if works else [])]
        rows = (*background.buttons(works, say), (Button(say("button.to_tasks"), "/tasks"),))
        return CommandReply("\n".join(told), buttons=rows if works else ())

    async def interrupt(self, context: CommandContext, rest: str) -> CommandReply:
        del rest
        say = words(context.language)
        session_id = await self._session_id(context)
        if not session_id:
            return CommandReply(say("stopped.no_turn"))
        report = await self._s.control.interrupt(session_id, context.principal)
        if report.running + report.parked == 0:
            return CommandReply(say("stopped.no_turn"))
        return CommandReply(say("stopped.interrupted"))

    async def status(self, context: CommandContext, rest: str) -> CommandReply:
        del rest
        who = context.principal
        view = (await self._s.control.agent(context.agent_name)).seen_by(who)
        daemon = (await self._s.control.status()).seen_by(who)
        say = words(context.language)
        lines = [texts.agent(view, self._s.clock.now_ms(), say)]
        session_id = await self._session_id(context)
        if session_id:
            lines.append("   " + say("status.session", id=session_id))
            role = await self._s.database.read(lambda r: role_rows.role_of(r, session_id))
            if role is not None:
                lines.append("   " + say("role.here", role=role or say("role.none")))
        lines.extend(background.lines(await self._background.all(context), say))
        asked = await open_here(self._s.mailbox, self._s.database, context)
        if asked:
            lines.append(say("status.asked"))
            lines.extend(f"   {texts.question(q)}" for q in asked[:SHOWN])
        leave = await Grants(self._s.database, self._s.clock).all(context.agent_id)
        if leave:
            lines.append("   " + say.count("approval.standing", len(leave)))
        time = texts.duration(daemon.uptime_s)
        lines.append(say("status.daemon", version=daemon.version, time=time))
        if daemon.config_error:
            lines.append(say("status.config_error", error=daemon.config_error))
        return CommandReply("\n".join(lines))

    async def model(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        if not rest:
            view = await self._s.control.agent(context.agent_name)
            model = view.model or say("model.default")
            lines = [say("model.uses", name=view.name, model=model, engine=view.engine)]
            if view.fallback_model:
                lines.append(say("model.fallback_is", model=view.fallback_model))
            return CommandReply(
                "\n".join(lines),
                buttons=await self._models(view, say) if is_operator(context) else (),
            )
        if context.principal.role < PersonRole.OPERATOR:
            raise Forbidden(say("model.operators"))
        if rest in TIERS:
            return await self._tier(context, rest, say)
        value = None if rest == "-" else rest
        changed = await self._s.control.set_override(
            context.agent_name, "model", value, context.principal
        )
        if value is None:
            await self._s.control.set_override(
                context.agent_name, "model_tier", None, context.principal
            )
        return CommandReply(
            say("model.now", name=changed.agent, model=changed.value or say("model.default")),
            buttons=((Button(say("button.to_model"), "/model"),),),
        )

    async def _tier(self, context: CommandContext, tier: str, say: Words) -> CommandReply:
        """Let the primary or the fallback model answer, from the next turn on."""
        view = await self._s.control.agent(context.agent_name)
        if tier == FALLBACK and not view.fallback_model:
            raise Conflict(say("model.no_fallback", name=view.name))
        await self._s.control.set_override(
            context.agent_name, "model_tier", tier, context.principal
        )
        if tier == FALLBACK:
            text = say("model.tier_fallback", name=view.name, model=view.fallback_model)
        else:
            model = view.model or say("model.default")
            text = say("model.tier_primary", name=view.name, model=model)
        return CommandReply(
            text,
            buttons=((Button(say("button.to_model"), "/model"),),),
        )

    async def _models(self, view: AgentView, say: Words) -> tuple[tuple[Button, ...], ...]:
        """The models in use here on the same engine, and the way back to the file."""
        views = await self._s.control.agents()
        known = sorted({v.model for v in views if v.engine == view.engine and v.model})[:SHOWN]
        each = [
            Button(("● " if name == view.model else "") + name, f"/model {name}", operator=True)
            for name in known
        ]
        as_in_file = Button(say("button.as_in_file"), "/model -", operator=True)
        return (*columns(each, 1), (as_in_file,))

    async def sessions(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        number = wanted_page(rest) or 1
        most, size = (KEPT, SESSIONS_PER_PAGE) if context.has_buttons else (SHOWN, SHOWN)
        current = await self._session_id(context)
        # What others talk about with this agent is theirs; an operator sees all of it.
        key = None if is_operator(context) else _key(context)
        found = await self._s.database.read(
            lambda r: sessions.list_of(r, context.agent_id, key=key, limit=most)
        )
        if not found:
            return CommandReply(say("session.none"))
        page = page_of(found, number, size)
        heading = page.heading(say)
        lines = [heading] if heading else []
        each = []
        for session in page.items:
            mark = "▸" if session.session_id == current else " "
            title = session.title or session.key
            lines.append(f"{mark} {session.session_id}  {title}")
            each.append(Button(f"{mark} {title}".strip(), f"/session {session.session_id}"))
        lines.append(say("session.how_all" if is_operator(context) else "session.how"))
        fresh = Button(say("button.new_session"), "/new", once=True)
        return CommandReply(
            "\n".join(lines), buttons=(*columns(each, 1), *turning(page, "/sessions"), (fresh,))
        )

    async def session(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        if not rest:
            current = await self._session_id(context)
            return CommandReply(
                say("session.here", id=current) if current else say("session.none_here")
            )
        session_id = await self._find_session(context, rest)
        await self._s.database.write(
            lambda tx: sessions.point_tx(tx, context.agent_id, _key(context), session_id),
            name="command.session",
        )
        return CommandReply(
            say("session.goes_on", id=session_id),
            buttons=((Button(say("button.to_sessions"), "/sessions"),),),
        )

    async def again(self, context: CommandContext, rest: str) -> CommandReply:
        if not rest.isdecimal():
            raise BadRequest(words(context.language)("again.say"), field="number")
        now = self._s.clock.now_ms()
        await self._s.database.write(
            lambda tx: outbox.again_tx(
                tx,
                int(rest),
                agent_id=context.agent_id,
                channel=context.channel,
                conversation=context.conversation,
                at=now,
            ),
            name="command.again",
        )
        return CommandReply(words(context.language)("again.done"))

    async def cancel(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        if not rest:
            raise BadRequest(say("cancel.say"), field="message_id")
        message = await self._s.mailbox.get(rest)
        to = message.deliver_to
        if not is_operator(context) and (message.agent_id, to.channel, to.conversation) != (
            context.agent_id,
            context.channel,
            context.conversation,
        ):
            raise Forbidden(say("cancel.elsewhere", id=rest), message_id=rest)
        if message.state in TERMINAL or message.state is State.DEAD:
            raise Conflict(say("cancel.ended", state=message.state.value), message_id=rest)
        if message.state is not State.QUEUED:
            raise Conflict(say("cancel.running"), message_id=rest)
        await self._s.mailbox.cancel(rest, context.principal)
        return CommandReply(say("cancel.done", text=texts.excerpt(message)))

    async def _session_id(self, context: CommandContext) -> str:
        def current(reader: Reader) -> str:
            found = reader.scalar(
                "SELECT session_id FROM pointers WHERE agent_id = ? AND key = ?",
                (context.agent_id, _key(context)),
            )
            return str(found or "")

        return await self._s.database.read(current, name="command.session_id")

    async def _find_session(self, context: CommandContext, wanted: str) -> str:
        """The session meant by its id or key. Raises ``Forbidden`` for one that others began."""

        def find(reader: Reader) -> sessions.Session:
            pointed = reader.scalar(
                "SELECT session_id FROM pointers WHERE agent_id = ? AND key = ?",
                (context.agent_id, wanted),
            )
            return sessions.find(reader, str(pointed or wanted), agent_id=context.agent_id)

        found = await self._s.database.read(find, name="command.find_session")
        if found.key != _key(context) and not is_operator(context):
            say = words(context.language)
            raise Forbidden(say("session.elsewhere", id=wanted), session_id=found.session_id)
        return found.session_id


def chat_commands(services: CommandServices) -> tuple[Command, ...]:
    """The commands that every agent's chat offers."""
    run = _ChatCommandSet(services)
    return (
        Command("start", "", "who this agent is", run.start),
        Command("new", "[TITLE]", "begin a fresh session", run.new),
        Command("stop", "", "end the running turn and drop what waits in this chat", run.stop),
        Command("interrupt", "", "end the running turn only", run.interrupt),
        Command("status", "", "state of this agent, open questions", run.status),
        Command("model", "[NAME|primary|fallback]", "show or change the model", run.model),
        *override_commands(services.control),
        Command("session", "[ID]", "show the session, or go on with another", run.session),
        Command("sessions", "", "the latest sessions", run.sessions),
        *answer_commands(services.mailbox, services.database, services.clock),
        Command("again", "NUMBER", "show again what may not have arrived", run.again),
        Command("cancel", "ID", "take back a message that waits", run.cancel),
    )


def _key(context: CommandContext) -> str:
    return chat_key(context.channel, context.conversation)
