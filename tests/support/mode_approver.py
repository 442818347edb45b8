"""Decisions while no person can be asked: by the agent's permission mode and the tool's safety."""

from __future__ import annotations

from agentsup.model.hook import Allow, CallFacts, Deny, Suspend, Verdict
from agentsup.model.tool import Safety

BYPASS = "bypassPermissions"
PLAN = "plan"


class ModeApprover:
    """Implements ``model.hook.Approver`` without anybody to ask: dangerous calls are denied."""

    async def decide(self, call: CallFacts) -> Verdict:
        """Allow safe and moderate calls; in mode ``plan`` only safe ones, in ``bypassPermissions``
        all."""
        if call.permission_mode == BYPASS or call.safety is Safety.SAFE:
            return Allow()
        what = call.own_name or call.name
        if call.permission_mode == PLAN:
            return Deny(f"{what} changes something, and {call.agent_name} is in plan mode")
        if call.safety is Safety.MODERATE:
            return Allow()
        return Deny(
            f"{what} is dangerous, and nobody can be asked about it; an operator allows it by "
            f'setting "permission_mode": "{BYPASS}" for {call.agent_name}'
        )

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        """Deny, because nobody answers."""
        return Deny(f"nobody can be asked about {call.own_name or call.name}")
