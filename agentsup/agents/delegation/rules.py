"""Rules of delegation: which agent may delegate to which agent or role. Pure.

Work done in the persona of another agent is done for the caller, on the caller's budget. Across
roles this must be granted. An agent that is asked (``why_not_ask``) works in its own mailbox
instead, with its own tools.
"""

from __future__ import annotations

from agentsup.model.agent import AgentSpec


def why_not_agent(caller: AgentSpec, role: str, target: AgentSpec) -> str:
    """Why ``caller`` may not have work done in the persona of ``target``; empty if it may.

    ``role`` is the role in which the caller works, or empty.
    """
    theirs = target.role or ""
    if caller.can_delegate_to is None:
        if not theirs or theirs.casefold() == role.casefold():
            return ""
        return (
            f"{caller.name} {_is_in(role)}, {target.name} is in the role {theirs}, and work is "
            f"handed across roles only where that is granted: {_grant(caller, target.name)}"
        )
    return "" if caller.may_delegate_to(target.name) else _not_listed(caller, target.name)


def why_not_role(caller: AgentSpec, role: str, wanted: str) -> str:
    """Why ``caller``, working in ``role``, may not have work done in the role ``wanted``.

    Empty if it may. A caller in no role may use every role.
    """
    listed = caller.can_delegate_to is not None and caller.may_delegate_to(wanted)
    if listed or not role or role.casefold() == wanted.casefold():
        return ""
    return (
        f"{caller.name} is in the role {role} and may not have work done in the role {wanted}: "
        f"{_grant(caller, wanted)}"
    )


def why_not_ask(caller: AgentSpec, name: str) -> str:
    """Why ``caller`` may not send work to the mailbox of the agent ``name``; empty if it may."""
    return "" if caller.may_delegate_to(name) else _not_listed(caller, name)


def _not_listed(caller: AgentSpec, name: str) -> str:
    listed = ", ".join(caller.can_delegate_to or ()) or "nobody"
    return (
        f"{caller.name} may not hand work to {name}: its can_delegate_to lists {listed}; "
        f"{_grant(caller, name)}"
    )


def _grant(caller: AgentSpec, name: str) -> str:
    names = ", ".join(f'"{each}"' for each in (*(caller.can_delegate_to or ()), name))
    return f'write "can_delegate_to": [{names}] into the entry of {caller.name} in agents.json'


def _is_in(role: str) -> str:
    return f"is in the role {role}" if role else "is in no role"
