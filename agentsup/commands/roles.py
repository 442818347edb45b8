"""``/role`` and ``/route``: the role of this chat's session, and the role that fits a text."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.roles import NONE, LiveRoleRegistry, RoleCatalog, Score, usable
from agentsup.catalogue import words
from agentsup.commands.dispatch import Command, CommandServices, is_operator, key_of
from agentsup.mailbox.messages import sessions
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotFound
from agentsup.store import Reader, Tx
from agentsup.tasks import session_targets

SHOWN = 5
AS_AGENT = "-"


@dataclass(frozen=True, slots=True)
class _RoleCommands:
    s: CommandServices
    live_roles: LiveRoleRegistry

    async def role(self, context: CommandContext, rest: str) -> CommandReply:
        return await (self._switch(context, rest) if rest else self._show(context))

    async def _show(self, context: CommandContext) -> CommandReply:
        say = words(context.language)
        key = key_of(context)

        def own(reader: Reader) -> str | None:
            session_id = sessions.current(reader, context.agent_id, key)
            return session_targets.role_of(reader, session_id) if session_id else None

        found = await self.s.database.read(own, name="command.role")
        view = await self.s.control.agent(context.agent_name)
        if found is None:
            line = say("role.agents", role=view.role or say("role.none"), name=view.name)
        else:
            line = say("role.here", role=found or say("role.none"))
        registry = await self.live_roles.refresh()
        served = registry.served(self.live_roles.tools())
        lines = [line, *(f"{role.name} - {role.description}" for role in served)]
        if is_operator(context):
            lines += [say("role.broken", finding=str(each)) for each in registry.findings[:SHOWN]]
            lines.append(say("role.how"))
        return CommandReply("\n".join(lines))

    async def _switch(self, context: CommandContext, wanted: str) -> CommandReply:
        """Switch the session's role. Raises ``Forbidden``, ``NotFound`` and ``Conflict``."""
        say = words(context.language)
        if not is_operator(context):
            raise Forbidden(say("role.operators"))
        name: str | None
        registry = await self.live_roles.refresh()
        if wanted == AS_AGENT:
            name = None
        elif wanted.casefold() == NONE:
            name = ""
        else:
            role, problem = usable(wanted, registry)
            if role is None:
                raise NotFound(problem, role=wanted)
            if not role.is_served(self.live_roles.tools()):
                names = ", ".join(role.ceiling)
                raise Conflict(say("role.no_tools", role=role.name, names=names), role=role.name)
            name = role.name
        now, key = self.s.clock.now_ms(), key_of(context)

        apart = {role.name for role in registry.all() if role.session_isolation}
        view = await self.s.control.agent(context.agent_name)

        def switch(tx: Tx) -> bool:
            session_id = sessions.resolve_tx(
                tx, context.agent_id, key, at=now, entropy=self.s.entropy
            )
            before, after = (
                (view.role or "") if one is None else one
                for one in (session_targets.role_of(tx, session_id), name)
            )
            is_apart = before != after and bool({before, after} & apart)
            if is_apart:
                # A session in an isolated role is never read in another role, and vice versa.
                session_id = sessions.new_tx(
                    tx, context.agent_id, key, at=now, entropy=self.s.entropy
                )
            session_targets.switch_role_tx(tx, session_id, name, by=context.principal.label, at=now)
            return is_apart

        is_apart = await self.s.database.write(switch, name="command.role")
        if name is None:
            text = say("role.agents", role=view.role or say("role.none"), name=view.name)
        else:
            text = say("role.now", role=name or say("role.none"))
        return CommandReply(f"{text}\n{say('session.new')}" if is_apart else text)

    async def route(self, context: CommandContext, rest: str) -> CommandReply:
        """Show the roles that fit a text. Raises ``BadRequest`` without a text."""
        say = words(context.language)
        if not rest:
            raise BadRequest(say("route.say"), field="text")
        found = await RoleCatalog(self.live_roles).route(rest)
        if not found.best:
            return CommandReply(say("route.nobody"))
        many = {"simple": say("route.simple"), "compound": say("route.compound")}
        complexity = many.get(found.complexity) or say("route.complex")
        head = say("route.best", role=found.best, complexity=complexity)
        return CommandReply("\n".join([head, *map(_line, found.scores[:SHOWN])]))


def role_commands(services: CommandServices, shelf: LiveRoleRegistry) -> tuple[Command, ...]:
    """The two commands, over the live roles."""
    run = _RoleCommands(services, shelf)
    return (
        Command("role", "[NAME|none|-]", "the role of this chat's session", run.role),
        Command("route", "TEXT", "the role that fits a text, and why", run.route),
    )


def _line(score: Score) -> str:
    why = ", ".join(f"{sign.kind} “{sign.text}” {sign.points:+d}" for sign in score.signs)
    return f"{score.role} {score.points}: {why}"
