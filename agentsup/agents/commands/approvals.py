"""``/approvals``: leave that stands for calls, and taking it back."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.approvals.grants import Grant, Grants
from agentsup.catalogue import Words, words
from agentsup.model.agent import MAIN
from agentsup.model.control import Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Forbidden


def approval_commands(grants: Grants, name_of: Callable[[str], str]) -> tuple[Command, ...]:
    """The command; in the chat of main it shows all agents. ``name_of`` tells an agent's name."""

    def line(grant: Grant, say: Words) -> str:
        return say(
            "approval.line_pattern" if grant.pattern else f"approval.line_{grant.scope}",
            agent=name_of(grant.agent_id),
            tool=grant.tool,
            pattern=grant.pattern,
            message=grant.message_id,
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
            told = say(
                "approval.revoked",
                id=taken.grant_id,
                tool=taken.tool,
                agent=name_of(taken.agent_id),
            )
            return CommandReply(told)
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
                Button(
                    f"✖ {name_of(one.agent_id)}: {one.pattern or one.tool}",
                    f"/approvals revoke {one.grant_id}",
                    once=True,
                ),
            )
            for one in found[:10]
        )
        return CommandReply("\n".join((*lines, say("approval.how"))), buttons=acts)

    about = "which calls need not be asked about; take leave back"
    return (Command("approvals", "[revoke ID]", about, run),)
