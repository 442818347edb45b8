"""``/role`` and ``/route``: the role of this chat's session, and where a text belongs."""

from __future__ import annotations

from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.agents.roles import rows
from agentsup.agents.roles.book import RoleShelf
from agentsup.agents.roles.bounds import usable
from agentsup.agents.roles.desk import RoleDesk
from agentsup.agents.roles.role import NONE
from agentsup.agents.roles.routing import Score
from agentsup.catalogue import words
from agentsup.mailbox import sessions
from agentsup.mailbox.naming import chat_key
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotFound
from agentsup.store.database import Reader, Tx

SHOWN = 5
AS_AGENT = "-"


class _RoleCommands:
    def __init__(self, services: CommandServices, shelf: RoleShelf) -> None:
        self._s = services
        self._shelf = shelf

    async def role(self, context: CommandContext, rest: str) -> CommandReply:
        return await (self._switch(context, rest) if rest else self._show(context))

    async def _show(self, context: CommandContext) -> CommandReply:
        say = words(context.language)
        key = _key(context)

        def own(reader: Reader) -> str | None:
            session_id = sessions.current(reader, context.agent_id, key)
            return rows.role_of(reader, session_id) if session_id else None

        found = await self._s.database.read(own, name="command.role")
        view = await self._s.control.agent(context.agent_name)
        if found is None:
            line = say("role.agents", role=view.role or say("role.none"), name=view.name)
        else:
            line = say("role.here", role=found or say("role.none"))
        book = await self._shelf.refresh()
        served = book.served(self._shelf.tools())
        lines = [line, *(f"{role.name} - {role.description}" for role in served)]
        if is_operator(context):
            lines += [say("role.broken", finding=str(each)) for each in book.findings[:SHOWN]]
            lines.append(say("role.how"))
        return CommandReply("\n".join(lines))

    async def _switch(self, context: CommandContext, wanted: str) -> CommandReply:
        """Raises ``Forbidden``, ``NotFound`` and ``Conflict``."""
        say = words(context.language)
        if not is_operator(context):
            raise Forbidden(say("role.operators"))
        name: str | None
        book = await self._shelf.refresh()
        if wanted == AS_AGENT:
            name = None
        elif wanted.casefold() == NONE:
            name = ""
        else:
            role, problem = usable(wanted, book)
            if role is None:
                raise NotFound(problem, role=wanted)
            if not role.is_served(self._shelf.tools()):
                names = ", ".join(role.ceiling)
                raise Conflict(say("role.no_tools", role=role.name, names=names), role=role.name)
            name = role.name
        now, key = self._s.clock.now_ms(), _key(context)

        apart = {role.name for role in book.all() if role.session_isolation}
        view = await self._s.control.agent(context.agent_name)

        def switch(tx: Tx) -> bool:
            session_id = sessions.resolve_tx(
                tx, context.agent_id, key, at=now, entropy=self._s.entropy
            )
            before, after = (
                (view.role or "") if one is None else one
                for one in (rows.role_of(tx, session_id), name)
            )
            is_apart = before != after and bool({before, after} & apart)
            if is_apart:
                # What is said in such a role is not read in another one, nor the other way round.
                session_id = sessions.new_tx(
                    tx, context.agent_id, key, at=now, entropy=self._s.entropy
                )
            rows.switch_tx(tx, session_id, name, by=context.principal.label, at=now)
            return is_apart

        is_apart = await self._s.database.write(switch, name="command.role")
        if name is None:
            told = say("role.agents", role=view.role or say("role.none"), name=view.name)
        else:
            told = say("role.now", role=name or say("role.none"))
        return CommandReply(f"{told}\n{say('session.new')}" if is_apart else told)

    async def route(self, context: CommandContext, rest: str) -> CommandReply:
        """Raises ``BadRequest`` without a text."""
        say = words(context.language)
        if not rest:
            raise BadRequest(say("route.say"), field="text")
        found = await RoleDesk(self._shelf).route(rest)
        if not found.best:
            return CommandReply(say("route.nobody"))
        many = {"simple": say("route.simple"), "compound": say("route.compound")}
        complexity = many.get(found.complexity) or say("route.complex")
        head = say("route.best", role=found.best, complexity=complexity)
        return CommandReply("\n".join([head, *map(_line, found.scores[:SHOWN])]))


def role_commands(services: CommandServices, shelf: RoleShelf) -> tuple[Command, ...]:
    """The two commands, over the live roles."""
    run = _RoleCommands(services, shelf)
    return (
        Command("role", "[NAME|none|-]", "the role of this chat's session", run.role),
        Command("route", "TEXT", "which role a text is for, and why", run.route),
    )


def _line(score: Score) -> str:
    why = ", ".join(f"{sign.kind} “{sign.text}” {sign.points:+d}" for sign in score.signs)
    return f"{score.role} {score.points}: {why}"


def _key(context: CommandContext) -> str:
    return chat_key(context.channel, context.conversation)
