"""Allowed transitions between states of a child."""

from __future__ import annotations

from types import MappingProxyType

from agentsup.model.errors import IllegalTransition
from agentsup.model.health import AgentState

_S = AgentState

TRANSITIONS = MappingProxyType(
    {
        _S.STOPPED: frozenset({_S.STARTING}),
        _S.STARTING: frozenset({_S.RUNNING, _S.DEGRADED, _S.BACKOFF, _S.STOPPING}),
        _S.RUNNING: frozenset({_S.DEGRADED, _S.BACKOFF, _S.STOPPING}),
        _S.DEGRADED: frozenset({_S.RUNNING, _S.BACKOFF, _S.STOPPING}),
        _S.STOPPING: frozenset({_S.STOPPED, _S.STARTING, _S.BACKOFF}),
        _S.BACKOFF: frozenset({_S.STARTING, _S.FAILED, _S.STOPPING}),
        _S.FAILED: frozenset({_S.STARTING, _S.STOPPED}),
    }
)
"""From each state, the states that may come next. A life that ends by itself passes through
``backoff`` if it failed and through ``stopping`` if not. A rebuild goes from ``stopping``
straight to ``starting``, and to ``backoff`` if requests to rebuild come too fast."""


def check_transition(child_id: str, old: AgentState, new: AgentState) -> None:
    """Raise ``IllegalTransition`` unless ``new`` may follow ``old``."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(
            f"{child_id} cannot go from {old} to {new}", child_id=child_id, old=old, new=new
        )
