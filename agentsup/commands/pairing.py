"""``/pair``: strangers with a code are let in or refused, in main's chat, by operators."""

from __future__ import annotations

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command
from agentsup.kit.clock import Clock
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.errors import BadRequest
from agentsup.model.pairing import Pairing, PairingRequest, shown_code
from agentsup.model.principal import PersonRole

_ROLES = {role.name.lower(): role for role in PersonRole}


def pairing_command(pairing: Pairing, clock: Clock) -> Command:
    """The command: without a code it lists who asks."""

    async def run(context: CommandContext, rest: str) -> CommandReply:
        say, given = words(context.language), rest.split()
        if not given:
            return _listed(await pairing.requests(), say, clock.now_ms())
        if given[0].casefold() == "refuse" and len(given) == 2:
            refused = await pairing.refuse(given[1], context.principal)
            return CommandReply(say("pairing.refused", who=refused.stranger.shown))
        code, *more = given
        role = next((_ROLES[each.casefold()] for each in more if each.casefold() in _ROLES), None)
        names = [each for each in more if each.casefold() not in _ROLES]
        if len(more) > 2 or len(names) > 1:
            raise BadRequest(say("pairing.say"), field="pair")
        name = names[0] if names else ""
        done = await pairing.let_in(code, context.principal, role=role, name=name)
        where = say(
            "pairing.everywhere" if done.is_everywhere else "pairing.here", agent=done.agent
        )
        text = say(
            "pairing.done",
            who=done.request.stranger.shown,
            person=done.person,
            role=done.role.name.lower(),
            where=where,
        )
        return CommandReply(text)

    about = "who asks to be let in; let in or refuse"
    usage = "[CODE [ROLE] [NAME] | refuse CODE]"
    return Command("pair", usage, about, run, main_only=True, operator=True)


def _listed(
    found: tuple[tuple[str, PairingRequest], ...], say: LocalizedTexts, now: int
) -> CommandReply:
    if not found:
        return CommandReply(say("pairing.none"))
    lines = [
        say(
            "pairing.line",
            who=each.stranger.shown,
            agent=agent,
            code=shown_code(each.code),
            minutes=max(1, (each.expires_at - now + 59_999) // 60_000),
        )
        for agent, each in found
    ]
    rows = tuple(decision_buttons(each, say) for _, each in found)
    return CommandReply("\n".join((*lines, say("pairing.how"))), buttons=rows)


def decision_buttons(request: PairingRequest, say: LocalizedTexts) -> tuple[CommandButton, ...]:
    """Buttons that decide one request."""
    code, name = request.code, request.stranger.name

    def act(key: str, command: str) -> CommandButton:
        label = f"{say(f'pairing.{key}')}: {name}"
        return CommandButton(label, command, once=True, operator=True)

    return act("let_in", f"/pair {code}"), act("refuse", f"/pair refuse {code}")
