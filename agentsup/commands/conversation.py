"""Commands of every agent's chat: sessions, stop, status, model, questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentsup.agents.memory import first_words
from agentsup.approvals import Grants
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import background, texts
from agentsup.commands.answers import SHOWN, answer_commands, open_here
from agentsup.commands.background import BackgroundList
from agentsup.commands.dispatch import (
    Command,
    CommandServices,
    columns,
    is_operator,
    key_of,
    page_of,
    turning,
    wanted_page,
)
from agentsup.commands.models import model_command, override_commands
from agentsup.commands.texts import short_id
from agentsup.mailbox.delivery import outbox, preview
from agentsup.mailbox.messages import keys, sessions, speaker_of
from agentsup.model.agent import OFFLINE
from agentsup.model.control import (
    CommandButton,
    CommandContext,
    CommandReply,
)
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.message import TERMINAL, MessageState
from agentsup.store import Reader
from agentsup.tasks import session_targets

SESSIONS_PER_PAGE = 8
_TITLE = 40
"""The most characters of a session's title in a list."""
MOST_LISTED = 200
"""The most sessions that can be paged through."""


class _ChatCommandSet:
    """The handlers of these commands; one instance for the daemon."""

    def __init__(self, services: CommandServices) -> None:
        self._s = services
        self._background = BackgroundList(services)

    async def start(self, context: CommandContext, rest: str) -> CommandReply:
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
        lines = [say("start.hello", name=view.name, state=state, engine=engine)]
        problem = view.seen_by(context.principal).engine_problem
        if problem and problem not in engine:
            lines.append(say("start.problem", problem=problem))
        return CommandReply("\n".join(lines))

    async def new(self, context: CommandContext, rest: str) -> CommandReply:
        now = self._s.clock.now_ms()
        await self._s.database.write(
            lambda tx: sessions.new_tx(
                tx, context.agent_id, key_of(context), at=now, entropy=self._s.entropy, title=rest
            ),
            name="command.new",
        )
        return CommandReply(words(context.language)("session.new"))

    async def stop(self, context: CommandContext, rest: str) -> CommandReply:
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
        parts = [text, *background.lines(works, say), *([say("background.how")] if works else [])]
        rows = (*background.buttons(works, say), (CommandButton(say("button.to_tasks"), "/tasks"),))
        return CommandReply("\n".join(parts), buttons=rows if works else ())

    async def interrupt(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        session_id = await self._session_id(context)
        if not session_id:
            return CommandReply(say("stopped.no_turn"))
        report = await self._s.control.interrupt(session_id, context.principal)
        if report.running + report.parked == 0:
            return CommandReply(say("stopped.no_turn"))
        return CommandReply(say("stopped.interrupted"))

    async def status(self, context: CommandContext, rest: str) -> CommandReply:
        who = context.principal
        view = (await self._s.control.agent(context.agent_name)).seen_by(who)
        daemon = (await self._s.control.status()).seen_by(who)
        say = words(context.language)
        lines = [texts.agent(view, self._s.clock.now_ms(), say)]
        session_id = await self._session_id(context)
        if session_id:
            lines.append("   " + say("status.session", id=session_id))
            role = await self._s.database.read(session_targets.role_of, session_id)
            if role is not None:
                lines.append("   " + say("role.here", role=role or say("role.none")))
        lines.extend(background.lines(await self._background.all(context), say))
        asked = await open_here(self._s.mailbox, self._s.database, context)
        if asked:
            lines.append(say("status.asked"))
            lines.extend(f"   {texts.question(q)}" for q in asked[:SHOWN])
        granted = await Grants(self._s.database, self._s.clock).all(context.agent_id)
        if granted:
            lines.append("   " + say.count("approval.granted", len(granted)))
        time = texts.duration(daemon.uptime_s)
        lines.append(say("status.daemon", version=daemon.version, time=time))
        if daemon.config_error:
            lines.append(say("status.config_error", error=daemon.config_error))
        return CommandReply("\n".join(lines))

    async def sessions(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        number = wanted_page(rest) or 1
        most, size = (MOST_LISTED, SESSIONS_PER_PAGE) if context.has_buttons else (SHOWN, SHOWN)
        current = await self._session_id(context)
        # Other people's sessions are private; an operator sees all of them.
        key = None if is_operator(context) else key_of(context)
        found = await self._s.database.read(
            lambda r: sessions.list_of(
                r, context.agent_id, key=key, without=keys.OF_TASKS, limit=most
            )
        )
        if not found:
            return CommandReply(say("session.none"))
        page = page_of(found, number, size)
        heading = page.heading(say)
        lines = [heading] if heading else []
        each = []
        began = await self._s.database.read(
            lambda r: first_words(r, [one.session_id for one in page.items])
        )
        for session in page.items:
            mark = "▸" if session.session_id == current else " "
            title = session.title or preview(began.get(session.session_id, ""), _TITLE)
            where = session.key.removeprefix("chat:")
            other = "" if title and session.key == key_of(context) else f" ({where})"
            at = texts.date(session.updated_at)
            lines.append(f"{mark} {short_id(session.session_id)}  {at}  {title}{other}".rstrip())
            label = f"{mark} {title or where}".strip()
            each.append(CommandButton(label, f"/session {session.session_id}"))
        lines.append(say("session.how_all" if is_operator(context) else "session.how"))
        fresh = CommandButton(say("button.new_session"), "/new", once=True)
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
            lambda tx: sessions.point_tx(
                tx,
                context.agent_id,
                key_of(context),
                session_id,
                by=speaker_of(context.principal),
            ),
            name="command.session",
        )
        return CommandReply(
            say("session.goes_on", id=session_id),
            buttons=((CommandButton(say("button.to_sessions"), "/sessions"),),),
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
        message = await self._s.mailbox.messages.get(rest)
        to = message.deliver_to
        is_here = (message.agent_id, to.channel, to.conversation) == context.address
        if not is_operator(context) and not is_here:
            raise Forbidden(say("cancel.elsewhere", id=rest), message_id=rest)
        if message.state in TERMINAL or message.state is MessageState.DEAD:
            raise Conflict(say("cancel.ended", state=message.state.value), message_id=rest)
        if message.state is not MessageState.QUEUED:
            raise Conflict(say("cancel.running"), message_id=rest)
        await self._s.mailbox.control.cancel(rest, context.principal)
        return CommandReply(say("cancel.done", text=texts.excerpt(message)))

    async def _session_id(self, context: CommandContext) -> str:
        found = await self._s.database.read(
            sessions.current, context.agent_id, key_of(context), name="mailbox.current_session"
        )
        return found or ""

    async def _find_session(self, context: CommandContext, wanted: str) -> str:
        """The session with that id or key. Raises ``Forbidden`` for a session of another chat."""

        def find(reader: Reader) -> sessions.ConversationSession:
            pointed = sessions.current(reader, context.agent_id, wanted)
            if pointed is None:
                own = None if is_operator(context) else key_of(context)
                named = sessions.named(reader, context.agent_id, wanted, key=own)
                if len(named) > 1:
                    began = first_words(reader, [one.session_id for one in named])
                    raise Conflict(_which(wanted, named, began, words(context.language)))
                pointed = named[0].session_id if named else None
            return sessions.find(reader, pointed or wanted, agent_id=context.agent_id)

        found = await self._s.database.read(find, name="command.find_session")
        if found.key != key_of(context) and not is_operator(context):
            say = words(context.language)
            raise Forbidden(say("session.elsewhere", id=wanted), session_id=found.session_id)
        return found.session_id


def _which(
    given: str,
    named: Sequence[sessions.ConversationSession],
    began: Mapping[str, str],
    say: LocalizedTexts,
) -> str:
    """The sessions that a short id may mean, each with its whole id."""
    lines = [say("session.several", id=given)]
    for one in named:
        title = one.title or preview(began.get(one.session_id, one.key), _TITLE)
        lines.append(f"   {one.session_id}  {title}")
    return "\n".join(lines)


def chat_commands(services: CommandServices) -> tuple[Command, ...]:
    """The commands that every agent's chat offers."""
    run = _ChatCommandSet(services)
    return (
        Command("start", "", "who this agent is", run.start),
        Command("new", "[TITLE]", "start a new session", run.new),
        Command("stop", "", "end the running turn and drop what waits in this chat", run.stop),
        Command("interrupt", "", "end the running turn only", run.interrupt),
        Command("status", "", "state of this agent, open questions", run.status),
        model_command(services.control),
        *override_commands(services.control),
        Command("session", "[ID]", "show the session, or go on with another", run.session),
        Command("sessions", "", "the latest sessions", run.sessions),
        *answer_commands(services.mailbox, services.database, services.clock),
        Command("again", "NUMBER", "show again what may not have arrived", run.again),
        Command("cancel", "ID", "take back a message that waits", run.cancel),
    )
