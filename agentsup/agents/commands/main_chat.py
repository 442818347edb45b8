"""Commands of the main agent's chat: the agents, stop_all, dead letters."""

from __future__ import annotations

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat import CommandServices
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.agents.commands.pages import columns, page_of, turning, wanted_page
from agentsup.model.control import AgentView, Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.message import State

SHOWN = 10
AGENTS_PER_PAGE = 6
DEAD_PER_PAGE = 5


class _MainCommandSet:
    def __init__(self, services: CommandServices) -> None:
        self._s = services

    async def agents(self, context: CommandContext, rest: str) -> CommandReply:
        number = wanted_page(rest)
        if number is None:
            return await self._one_agent(context, rest.split(maxsplit=1)[0])
        now = self._s.clock.now_ms()
        views = await self._s.control.agents()
        page = page_of(views, number, AGENTS_PER_PAGE if context.has_buttons else len(views) or 1)
        lines = [page.heading] if page.heading else []
        lines += [texts.agent(view, now) for view in page.items]
        each = [Button(texts.agent_label(view), f"/agents {view.name}") for view in page.items]
        return CommandReply(
            "\n".join(lines), buttons=(*columns(each, 2), *turning(page, "/agents"))
        )

    async def _one_agent(self, context: CommandContext, name: str) -> CommandReply:
        view = await self._s.control.agent(name)
        rows: list[tuple[Button, ...]] = []
        if is_operator(context):
            rows.append(_acts(view))
        rows.append((Button("‹ Agents", "/agents"), Button("↻", f"/agents {view.name}")))
        return CommandReply(texts.agent(view, self._s.clock.now_ms()), buttons=tuple(rows))

    async def agent_start(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.start_agent(_name(rest, "agent_start"), context.principal)
        return CommandReply(f"{view.name} is {view.status}.", buttons=_back_to(view))

    async def agent_stop(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.stop_agent(_name(rest, "agent_stop"), context.principal)
        return CommandReply(
            f"{view.name} is {view.status} and stays so, also after a restart, until "
            f"/agent_start {view.name}. Its mail waits.",
            buttons=_back_to(view),
        )

    async def agent_restart(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.restart_agent(_name(rest, "agent_restart"), context.principal)
        return CommandReply(f"{view.name} is being rebuilt: {view.status}.", buttons=_back_to(view))

    async def agent_diff(self, context: CommandContext, rest: str) -> CommandReply:
        del context, rest
        return CommandReply(_diff_text(await self._s.control.diff()))

    async def stop_all(self, context: CommandContext, rest: str) -> CommandReply:
        del rest
        return CommandReply(texts.stop(await self._s.control.stop("all", context.principal)))

    async def dead(self, context: CommandContext, rest: str) -> CommandReply:
        verb, _, message_id = rest.partition(" ")
        message_id = message_id.strip()
        mailbox = self._s.mailbox
        if verb == "requeue" and message_id:
            await mailbox.requeue(message_id, context.principal)
            return CommandReply(f"{message_id} is queued again.", buttons=_TO_DEAD)
        if verb == "replay" and message_id:
            accepted = await mailbox.replay(message_id, context.principal)
            return CommandReply(f"Sent again as {accepted.message_id}.", buttons=_TO_DEAD)
        if verb == "drop" and message_id:
            await mailbox.drop(message_id, context.principal)
            return CommandReply(f"{message_id} was dropped.", buttons=_TO_DEAD)
        if verb.startswith("msg_"):
            return await self._one_dead(verb)
        number = wanted_page(rest)
        if number is None:
            raise BadRequest("say /dead, /dead ID, or /dead requeue|replay|drop ID", field="dead")
        return await self._all_dead(context, number)

    async def _all_dead(self, context: CommandContext, number: int) -> CommandReply:
        found = await self._s.mailbox.dead_list()
        if not found:
            return CommandReply("There are no dead letters.")
        page = page_of(found, number, DEAD_PER_PAGE if context.has_buttons else SHOWN)
        lines = [page.heading] if page.heading and context.has_buttons else []
        lines += [texts.dead(message) for message in page.items]
        if not context.has_buttons and page.count > page.number:
            left = page.total - page.first - len(page.items)
            lines.append(f"and {left} more: `agentsup dead list`")
        lines.append("/dead requeue ID, /dead replay ID, /dead drop ID")
        each = [
            Button(f"{place}. {texts.excerpt(message, 24)}", f"/dead {message.message_id}")
            for place, message in enumerate(page.items, start=page.first + 1)
        ]
        return CommandReply("\n".join(lines), buttons=(*columns(each, 1), *turning(page, "/dead")))

    async def _one_dead(self, message_id: str) -> CommandReply:
        message = await self._s.mailbox.get(message_id)
        if message.state is not State.DEAD:
            raise Conflict(
                f"{message_id} is {message.state.value}, no dead letter", message_id=message_id
            )
        entry = self._s.directory.by_id(message.agent_id)
        name = entry.name if entry is not None else message.agent_id
        acts = (
            Button("Requeue", f"/dead requeue {message_id}", once=True, operator=True),
            Button("Replay", f"/dead replay {message_id}", once=True, operator=True),
            Button(
                "Drop",
                f"/dead drop {message_id}",
                once=True,
                operator=True,
                confirm=f"Drop {message_id} to {name} for good?\n“{texts.excerpt(message)}”",
            ),
        )
        return CommandReply(
            f"{texts.dead(message)}\n   to {name}\n"
            f"/dead requeue {message_id} tries it again at its place, replay sends it as a new "
            "one, drop gives it up.",
            buttons=(acts, *_TO_DEAD),
        )


_TO_DEAD = ((Button("‹ Dead letters", "/dead"),),)


def _back_to(view: AgentView) -> tuple[tuple[Button, ...], ...]:
    return ((Button(f"‹ {view.name}", f"/agents {view.name}"), Button("‹ Agents", "/agents")),)


def _acts(view: AgentView) -> tuple[Button, ...]:
    """What an operator may do with an agent now."""
    name = view.name
    start = Button("Start", f"/agent_start {name}", once=True, operator=True)
    if view.desired == "down" or view.status in ("stopped", "failed"):
        return (start,)
    restart = Button(
        "Restart",
        f"/agent_restart {name}",
        once=True,
        operator=True,
        confirm=f"Rebuild {name} now? Its running turns end first or go on afterwards.",
    )
    if view.is_main:
        return (restart,)
    stop = Button(
        "Stop",
        f"/agent_stop {name}",
        once=True,
        operator=True,
        confirm=f"Stop {name} until it is started again? Its mail waits.",
    )
    return (stop, restart)


class _StopOfOne:
    """``/stop_all`` given to a sub-agent: all chats of that agent."""

    def __init__(self, services: CommandServices) -> None:
        self._s = services

    async def stop_all(self, context: CommandContext, rest: str) -> CommandReply:
        if await self._is_main(context):
            return await _MainCommandSet(self._s).stop_all(context, rest)
        report = await self._s.control.stop(f"agent:{context.agent_id}", context.principal)
        return CommandReply(
            f"{texts.stop(report)} This concerned all chats of {context.agent_name}; "
            "/stop_all in the chat of main stops everything."
        )

    async def _is_main(self, context: CommandContext) -> bool:
        return (await self._s.control.agent(context.agent_name)).is_main


def main_commands(services: CommandServices) -> tuple[Command, ...]:
    """The commands of main's chat, and ``/stop_all`` for all of them."""
    run = _MainCommandSet(services)
    return (
        Command("agents", "[NAME]", "every agent and how it is", run.agents, main_only=True),
        Command("agent_start", "NAME", "start or revive an agent", run.agent_start, True, True),
        Command("agent_stop", "NAME", "stop an agent until started", run.agent_stop, True, True),
        Command("agent_restart", "NAME", "rebuild an agent", run.agent_restart, True, True),
        Command("agent_diff", "", "what an edit left pending", run.agent_diff, True, True),
        Command("stop_all", "", "stop all work now", _StopOfOne(services).stop_all, operator=True),
        Command("dead", "[ID | requeue|replay|drop ID]", "dead letters", run.dead, True, True),
    )


def _name(rest: str, command: str) -> str:
    if not rest:
        raise BadRequest(f"say which agent: /{command} NAME", field="name")
    return rest.split(maxsplit=1)[0]


def _diff_text(diff: dict[str, object]) -> str:
    lines: list[str] = []
    if error := diff.get("config_error"):
        lines.append(f"Not applied: {error}")
    for key, title in (
        ("pending", "Pending"),
        ("overrides", "Overrides"),
        ("process", "Needs a restart of the daemon"),
    ):
        rows = diff.get(key)
        if isinstance(rows, list) and rows:
            lines.append(f"{title}:")
            lines.extend(f"   {row}" for row in rows)
    return "\n".join(lines) or "The running agents are as the files say."
