"""Limits of delegation: how deep, how often, and never in a circle. Pure."""

from __future__ import annotations

from agentsup.model.errors import DepthExceeded, LoopDetected
from agentsup.model.message import Message
from agentsup.model.task import MAX_DELEGATIONS, MAX_RUN_DEPTH

_AGENT, _ROLE = "agent:", "role:"


def agent_target(agent_id: str) -> str:
    """The target of work that is done as another agent (its persona)."""
    return f"{_AGENT}{agent_id}"


def role_target(name: str) -> str:
    """The target of work that is done in a role."""
    return f"{_ROLE}{name}"


def subject_of(target: str) -> tuple[str, str]:
    """The agent's id and the role that a target names; at most one of them is not empty."""
    if target.startswith(_AGENT):
        return target.removeprefix(_AGENT), ""
    return "", target.removeprefix(_ROLE) if target.startswith(_ROLE) else ""


def path_to(parent: Message | None, agent_id: str, target: str) -> tuple[str, ...]:
    """The path of a run in the mailbox of ``agent_id``.

    If the run is done as another agent or in a role, that target is included. Raises
    ``LoopDetected`` if the agent or target is on the path already.
    """
    if parent is None:
        return ()
    above = parent.path
    if agent_id != parent.agent_id:
        above = (*above, parent.agent_id)
        check_new(agent_id, above)
        return above
    as_agent, as_role = subject_of(target)
    acting_agent = as_agent or (target if as_role else "")
    if not acting_agent:
        return above
    check_new(acting_agent, (*above, parent.agent_id))
    return (*above, acting_agent)


def check_new(whose: str, above: tuple[str, ...]) -> None:
    """Raise ``LoopDetected`` if ``whose`` is on the path ``above`` already."""
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
    """Raise ``DepthExceeded`` if one request has caused too many runs, this one included."""
    if count > MAX_DELEGATIONS:
        raise DepthExceeded(
            f"this request has handed work on {MAX_DELEGATIONS} times, the most allowed. Sum up "
            "now what you have, and say what is left to do",
            limit=MAX_DELEGATIONS,
        )
