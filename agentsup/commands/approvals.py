"""``/approvals``: lists and revokes grants for calls."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.approvals import Grant, Grants
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command, is_operator
from agentsup.model.agent import MAIN
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Forbidden
from agentsup.store import clock_time


def approval_commands(grants: Grants, name_of: Callable[[str], str]) -> tuple[Command, ...]:
    """The command; in the chat of main it shows all agents. ``name_of`` gives the name of an id."""

    def line(grant: Grant, say: LocalizedTexts) -> str:
        what = grant.tool
        if grant.pattern:
            where = grant.workspace or say("approval.anywhere")
            what = say("approval.what_pattern", tool=what, pattern=grant.pattern, where=where)
        if grant.until_at is not None:
            end = say("approval.end_until", when=clock_time(grant.until_at))
        else:
            end = say(f"approval.end_{grant.scope}", message=grant.message_id)
        used = say("approval.unused")
        if grant.last_used_at is not None:
            used = say.count("approval.used", grant.uses, when=clock_time(grant.last_used_at))
        return say(
            "approval.line",
            agent=name_of(grant.agent_id),
            what=what,
            end=end,
            used=used,
            who=grant.granted_by,
            id=grant.grant_id,
        )

    def scope(context: CommandContext) -> str | None:
        return None if context.agent_name == MAIN else context.agent_id

    async def run(context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        verb, _, given = rest.partition(" ")
        if verb.casefold() == "revoke" and given.strip():
            if not is_operator(context):
                role = context.principal.role.name.lower()
                raise Forbidden(say("help.operators", name="approvals revoke", role=role))
            taken = await grants.revoke(given.strip(), context.principal, scope(context))
            text = say(
                "approval.revoked",
                id=taken.grant_id,
                tool=taken.tool,
                agent=name_of(taken.agent_id),
            )
            return CommandReply(text)
        if rest:
            raise BadRequest(say("approval.say"), field="approvals")
        found = await grants.all(scope(context))
        if not found:
            return CommandReply(say("approval.none"))
        lines = [say("approval.head"), *(f"• {line(one, say)}" for one in found)]
        if not is_operator(context):
            return CommandReply("\n".join(lines))
        acts = tuple(
            (
                CommandButton(
                    f"✖ {name_of(one.agent_id)}: {one.pattern or one.tool}",
                    f"/approvals revoke {one.grant_id}",
                    once=True,
                ),
            )
            for one in found[:10]
        )
        return CommandReply("\n".join((*lines, say("approval.how"))), buttons=acts)

    about = "which calls need not be asked about; revoke a grant"
    return (Command("approvals", "[revoke ID]", about, run),)
