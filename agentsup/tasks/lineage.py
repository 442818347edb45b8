"""Where work that is handed on may go: how deep, how often, and never in a circle. Pure."""

from __future__ import annotations

from agentsup.model.errors import DepthExceeded, LoopDetected
from agentsup.model.message import Message
from agentsup.model.task import MAX_DELEGATIONS, MAX_RUN_DEPTH

__all__ = [
    "agent_target",
    "check_count",
    "check_depth",
    "check_new",
    "path_to",
    "role_target",
    "subject_of",
]

_AGENT, _ROLE = "agent:", "role:"


def agent_target(agent_id: str) -> str:
    """Work done in an agent's place."""
    return f"{_AGENT}{agent_id}"


def role_target(name: str) -> str:
    """Work done in a role."""
    return f"{_ROLE}{name}"


def subject_of(target: str) -> tuple[str, str]:
    """The agent's id and the role that a target names; one of them, or none, is set."""
    if target.startswith(_AGENT):
        return target.removeprefix(_AGENT), ""
    return "", target.removeprefix(_ROLE) if target.startswith(_ROLE) else ""


def path_to(parent: Message | None, agent_id: str, target: str) -> tuple[str, ...]:
    """The open requests above a run in the mailbox of ``agent_id``, itself included where it is
    done in another's place. Raises ``LoopDetected`` for whoever is on that way already."""
    if parent is None:
        return ()
    above = parent.path
    if agent_id != parent.agent_id:
        above = (*above, parent.agent_id)
        check_new(agent_id, above)
        return above
    as_agent, as_role = subject_of(target)
    stand_in = as_agent or (target if as_role else "")
    if not stand_in:
        return above
    check_new(stand_in, (*above, parent.agent_id))
    return (*above, stand_in)


def check_new(whose: str, above: tuple[str, ...]) -> None:
    """Raise ``LoopDetected`` for whoever is on the way ``above`` already."""
    if whose in above:
        raise LoopDetected(
            "this work can't be handed to whoever handed it on: they are at it already. "
            "Do it yourself, or answer with what you know",
            path=list(above),
        )


def check_depth(depth: int) -> None:
    """Raise ``DepthExceeded`` for a run below too many others."""
    if depth > MAX_RUN_DEPTH:
        raise DepthExceeded(
            f"work may be handed on {MAX_RUN_DEPTH} times, and this is the last of them: "
            "do it yourself, or answer with what you know",
            depth=depth,
            limit=MAX_RUN_DEPTH,
        )


def check_count(count: int) -> None:
    """Raise ``DepthExceeded`` where one request has set off too many runs, this one included."""
    if count > MAX_DELEGATIONS:
        raise DepthExceeded(
            f"this request has handed work on {MAX_DELEGATIONS} times, the most allowed. Sum up "
            "now what you have, and say what is left to do",
            limit=MAX_DELEGATIONS,
        )
