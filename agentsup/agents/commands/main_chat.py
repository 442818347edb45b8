"""Commands of the main agent's chat: the agents, stop_all, dead letters."""

from __future__ import annotations

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat import CommandServices
from agentsup.agents.commands.dispatch import Command
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import BadRequest

SHOWN = 10


class _MainCommandSet:
    def __init__(self, services: CommandServices) -> None:
        self._s = services

    async def agents(self, context: CommandContext, rest: str) -> CommandReply:
        del context, rest
        now = self._s.clock.now_ms()
        views = await self._s.control.agents()
        return CommandReply("\n".join(texts.agent(view, now) for view in views))

    async def agent_start(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.start_agent(_name(rest, "agent_start"), context.principal)
        return CommandReply(f"{view.name} is {view.status}.")

    async def agent_stop(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.stop_agent(_name(rest, "agent_stop"), context.principal)
        return CommandReply(
            f"{view.name} is {view.status} and stays so, also after a restart, until "
            f"/agent_start {view.name}. Its mail waits."
        )

    async def agent_restart(self, context: CommandContext, rest: str) -> CommandReply:
        view = await self._s.control.restart_agent(_name(rest, "agent_restart"), context.principal)
        return CommandReply(f"{view.name} is being rebuilt: {view.status}.")

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
            return CommandReply(f"{message_id} is queued again.")
        if verb == "replay" and message_id:
            accepted = await mailbox.replay(message_id, context.principal)
            return CommandReply(f"Sent again as {accepted.message_id}.")
        if verb == "drop" and message_id:
            await mailbox.drop(message_id, context.principal)
            return CommandReply(f"{message_id} was dropped.")
        if verb:
            raise BadRequest("say /dead, or /dead requeue|replay|drop ID", field="dead")
        found = await mailbox.dead_list()
        if not found:
            return CommandReply("There are no dead letters.")
        lines = [texts.dead(m) for m in found[:SHOWN]]
        if len(found) > SHOWN:
            lines.append(f"and {len(found) - SHOWN} more: `agentsup dead list`")
        lines.append("/dead requeue ID, /dead replay ID, /dead drop ID")
        return CommandReply("\n".join(lines))


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
        Command("agents", "", "every agent and how it is", run.agents, main_only=True),
        Command("agent_start", "NAME", "start or revive an agent", run.agent_start, True, True),
        Command("agent_stop", "NAME", "stop an agent until started", run.agent_stop, True, True),
        Command("agent_restart", "NAME", "rebuild an agent", run.agent_restart, True, True),
        Command("agent_diff", "", "what an edit left pending", run.agent_diff, True, True),
        Command("stop_all", "", "stop all work now", _StopOfOne(services).stop_all, operator=True),
        Command("dead", "[requeue|replay|drop ID]", "dead letters", run.dead, True, True),
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
