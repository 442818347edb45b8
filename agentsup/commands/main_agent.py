"""Commands of the main agent's chat: the agents, stop_all, failed messages, strangers with a code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import texts
from agentsup.commands.dispatch import (
    Command,
    CommandServices,
    columns,
    is_operator,
    page_of,
    turning,
    wanted_page,
)
from agentsup.kit.clock import Clock
from agentsup.mailbox.mail import SentMail, name_in
from agentsup.mailbox.queue import removed_counts
from agentsup.model.control import (
    AgentView,
    CommandButton,
    CommandButtons,
    CommandContext,
    CommandReply,
)
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.managed_bots import OFFER_MS, BotMaker
from agentsup.model.message import Message, MessageState
from agentsup.model.pairing import Pairing, PairingRequest, shown_code
from agentsup.model.platforms import TELEGRAM
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import agents

SHOWN = 10
AGENTS_PER_PAGE = 6
FAILED_PER_PAGE = 5


Reassign = Callable[[str, str, Principal], Awaitable[SentMail]]
"""Assigns the message of an id to the agent of a name."""


@dataclass(frozen=True, slots=True)
class _MainCommandSet:
    s: CommandServices
    reassign: Reassign
    bots: BotMaker

    async def agents(self, context: CommandContext, rest: str) -> CommandReply:
        verb, *more = rest.split()[:3] or [""]
        if verb == "add" and len(more) == 1:
            return await self._add(context, more[0])
        if verb == "bot" and len(more) == 2:
            return await self._give_bot(context, *more)
        number = wanted_page(rest)
        if number is None:
            return await self._one_agent(context, rest.split(maxsplit=1)[0])
        say = words(context.language)
        now = self.s.clock.now_ms()
        views = [one.seen_by(context.principal) for one in await self.s.control.agents()]
        page = page_of(views, number, AGENTS_PER_PAGE if context.has_buttons else len(views) or 1)
        heading = page.heading(say)
        lines = [heading] if heading else []
        lines += [texts.agent(view, now, say) for view in page.items]
        each = [
            CommandButton(texts.agent_label(view), f"/agents {view.name}") for view in page.items
        ]
        return CommandReply(
            "\n".join(lines), buttons=(*columns(each, 2), *turning(page, "/agents"))
        )

    async def _one_agent(self, context: CommandContext, name: str) -> CommandReply:
        say = words(context.language)
        view = (await self.s.control.agent(name)).seen_by(context.principal)
        rows: list[tuple[CommandButton, ...]] = []
        if is_operator(context):
            rows.append(_acts(view, say))
        rows.append((_to_agents(say), CommandButton("↻", f"/agents {view.name}")))
        return CommandReply(texts.agent(view, self.s.clock.now_ms(), say), buttons=tuple(rows))

    async def _add(self, context: CommandContext, name: str) -> CommandReply:
        """Add an agent that is not there, and offer to create its bot."""
        say = words(context.language)
        is_own = context.channel == TELEGRAM.name and not context.is_shared
        # The id of a private chat on Telegram is that of its person.
        maker = int(context.conversation.partition("/")[0]) if is_own else 0
        offer = await self.bots.offer(name, context.principal, maker=maker)
        key = say("bot.tap", agent=offer.agent) if is_own else ""
        minutes = OFFER_MS // 60_000
        link = say("bot.link", agent=offer.agent, link=offer.link, minutes=minutes)
        text = "\n".join(filter(None, (key, link)))
        return CommandReply(text, bot_offer=offer if is_own else None)

    async def _give_bot(self, context: CommandContext, bot_id: str, name: str) -> CommandReply:
        """Give a bot that somebody created to an agent."""
        say = words(context.language)
        if not bot_id.isdecimal():
            raise BadRequest(say("bot.unknown", id=bot_id), field="bot")
        return CommandReply(await self.bots.assign(int(bot_id), name, context.principal))

    async def agent_start(self, context: CommandContext, rest: str) -> CommandReply:
        name = _name(context, rest, "agent_start")
        view = await self.s.control.start_agent(name, context.principal)
        return _now(context, "agent.is", view)

    async def agent_stop(self, context: CommandContext, rest: str) -> CommandReply:
        name = _name(context, rest, "agent_stop")
        view = await self.s.control.stop_agent(name, context.principal)
        return _now(context, "agent.stays", view, agent=view.name)

    async def agent_restart(self, context: CommandContext, rest: str) -> CommandReply:
        name = _name(context, rest, "agent_restart")
        view = await self.s.control.restart_agent(name, context.principal)
        return _now(context, "agent.rebuilt", view)

    async def agent_diff(self, context: CommandContext, rest: str) -> CommandReply:
        return CommandReply(_diff_text(await self.s.control.diff(), words(context.language)))

    async def stop_all(self, context: CommandContext, rest: str) -> CommandReply:
        """Stop everything; in a sub-agent's chat, all chats of that agent."""
        say = words(context.language)
        is_main = (await self.s.control.agent(context.agent_name)).is_main
        scope = "all" if is_main else f"agent:{context.agent_id}"
        report = await self.s.control.stop(scope, context.principal, given_in=context.given_in)
        here = "" if is_main else say("stopped.this_agent", name=context.agent_name)
        return CommandReply(texts.stop(report, say, self.s.clock.now_ms(), also=here))

    async def failed(self, context: CommandContext, rest: str) -> CommandReply:
        verb, _, message_id = rest.partition(" ")
        message_id = message_id.strip()
        mailbox, say = self.s.mailbox, words(context.language)
        if verb == "requeue" and message_id:
            await mailbox.failed.requeue(message_id, context.principal)
            return CommandReply(say("failed.requeued", id=message_id), buttons=_to_failed(say))
        if verb == "replay" and message_id:
            accepted = await mailbox.failed.replay(message_id, context.principal, key=context.key)
            return CommandReply(
                say("failed.replayed", id=accepted.message_id), buttons=_to_failed(say)
            )
        if verb == "drop" and message_id:
            await mailbox.failed.drop(message_id, context.principal)
            return CommandReply(say("failed.dropped", id=message_id), buttons=_to_failed(say))
        if verb == "removed":
            return await self._of_removed(context)
        if verb == "reassign" and message_id:
            message_id, _, to = message_id.partition(" ")
            sent = await self.reassign(message_id, to.strip(), context.principal)
            text = say("failed.reassigned", id=message_id, name=sent.agent, new=sent.message_id)
            return CommandReply(text, buttons=_to_failed(say))
        if verb.startswith("msg_"):
            return await self._one_failed(context, verb)
        number = wanted_page(rest)
        if number is None:
            raise BadRequest(say("failed.say"), field="failed")
        return await self._all_failed(context, number)

    async def _all_failed(self, context: CommandContext, number: int) -> CommandReply:
        say = words(context.language)
        found = await self.s.mailbox.failed.list()
        waiting = await self.s.database.read(removed_counts, name="commands.removed")
        who = ", ".join(f"{name} ({count})" for name, count in waiting.items())
        of_removed = [say("failed.of_removed", who=who)] if waiting else []
        if not found:
            return CommandReply("\n".join([say("failed.none"), *of_removed]))
        page = page_of(found, number, FAILED_PER_PAGE if context.has_buttons else SHOWN)
        heading = page.heading(say)
        lines = [heading] if heading and context.has_buttons else []
        lines += [texts.failed_message(message) for message in page.items]
        if not context.has_buttons and page.count > page.number:
            left = page.total - page.first - len(page.items)
            lines.append(say("list.more_failed", n=left))
        lines += [say("failed.how"), *of_removed]
        each = [
            CommandButton(
                f"{number}. {texts.excerpt(message, 24)}", f"/failed {message.message_id}"
            )
            for number, message in enumerate(page.items, start=page.first + 1)
        ]
        return CommandReply(
            "\n".join(lines), buttons=(*columns(each, 1), *turning(page, "/failed"))
        )

    async def _of_removed(self, context: CommandContext) -> CommandReply:
        """The messages for agents that were removed, the latest first."""
        say = words(context.language)
        found = await self.s.mailbox.messages.list(removed=True, limit=SHOWN)
        if not found:
            return CommandReply(say("failed.none_removed"), buttons=_to_failed(say))
        names = await self.s.database.read(agents.names, name="commands.removed")
        lines = [f"{each.message_id}\n   {_waiting(each, names, say)}" for each in found]
        lines.append(say("failed.how_removed"))
        return CommandReply("\n".join(lines), buttons=_to_failed(say))

    async def _one_failed(self, context: CommandContext, message_id: str) -> CommandReply:
        say = words(context.language)
        message = await self.s.mailbox.messages.get(message_id)
        if message.state is not MessageState.DEAD:
            text = say("failed.not_failed", id=message_id, state=message.state.value)
            raise Conflict(text, message_id=message_id)
        name = name_in(self.s.directory, message.agent_id)

        def act(verb: str, confirm: str = "") -> CommandButton:
            label, command = say(f"button.{verb}"), f"/failed {verb} {message_id}"
            return CommandButton(label, command, once=True, operator=True, confirm=confirm)

        asked = say("confirm.drop", id=message_id, name=name, text=texts.excerpt(message))
        acts = (act("requeue"), act("replay"), act("drop", asked))
        to, how = say("failed.to", name=name), say("failed.how_one", id=message_id)
        return CommandReply(
            f"{texts.failed_message(message)}\n   {to}\n{how}", buttons=(acts, *_to_failed(say))
        )


def _waiting(message: Message, names: Mapping[str, str], say: LocalizedTexts) -> str:
    to = say("failed.to", name=names.get(message.agent_id, message.agent_id))
    return f"“{texts.excerpt(message)}” {to}"


def _to_failed(say: LocalizedTexts) -> CommandButtons:
    return ((CommandButton(say("button.to_failed"), "/failed"),),)


def _to_agents(say: LocalizedTexts) -> CommandButton:
    return CommandButton(say("button.to_agents"), "/agents")


def _now(context: CommandContext, key: str, view: AgentView, **facts: str) -> CommandReply:
    """The new state of an agent, with a button that leads back to it."""
    say = words(context.language)
    text = say(key, name=view.name, state=texts.state(view.status, say), **facts)
    back = (CommandButton(f"‹ {view.name}", f"/agents {view.name}"), _to_agents(say))
    return CommandReply(text, buttons=(back,))


def _acts(view: AgentView, say: LocalizedTexts) -> tuple[CommandButton, ...]:
    """Buttons for what an operator may do with an agent now."""
    name = view.name

    def act(verb: str, *, asks: bool = False) -> CommandButton:
        return CommandButton(
            say(f"button.{verb}"),
            f"/agent_{verb} {name}",
            once=True,
            operator=True,
            confirm=say(f"confirm.{verb}", name=name) if asks else "",
        )

    if view.desired == "down" or view.status in ("stopped", "failed"):
        return (act("start"),)
    restart = act("restart", asks=True)
    return (restart,) if view.is_main else (act("stop", asks=True), restart)


def main_commands(
    services: CommandServices, reassign: Reassign, bots: BotMaker
) -> tuple[Command, ...]:
    """The commands of main's chat, and ``/stop_all`` for every agent's chat."""
    run = _MainCommandSet(services, reassign, bots)
    return (
        Command(
            "agents", "[NAME | add NAME]", "every agent and its state", run.agents, main_only=True
        ),
        Command(
            "agent_start", "NAME", "start an agent, also a failed one", run.agent_start, True, True
        ),
        Command("agent_stop", "NAME", "stop an agent until started", run.agent_stop, True, True),
        Command("agent_restart", "NAME", "rebuild an agent", run.agent_restart, True, True),
        Command("agent_diff", "", "edits that were not applied", run.agent_diff, True, True),
        Command("stop_all", "", "stop all work now", run.stop_all, operator=True),
        Command(
            "failed",
            "[ID | requeue|replay|drop ID | removed | reassign ID AGENT]",
            "failed messages",
            run.failed,
            True,
            True,
        ),
    )


def _name(context: CommandContext, rest: str, command: str) -> str:
    if not rest:
        raise BadRequest(words(context.language)("agent.which", command=command), field="name")
    return rest.split(maxsplit=1)[0]


def _diff_text(diff: dict[str, object], say: LocalizedTexts) -> str:
    lines: list[str] = []
    if error := diff.get("config_error"):
        lines.append(say("diff.error", error=error))
    for key in ("pending", "overrides", "process"):
        rows = diff.get(key)
        if isinstance(rows, list) and rows:
            lines.append(say(f"diff.{key}"))
            lines.extend(f"   {row}" for row in rows)
    return "\n".join(lines) or say("diff.none")


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
