"""What an applied edit says, in one line."""

from __future__ import annotations

from agentsup.config.diff import ChangePlan, FieldChange
from agentsup.daemon.runtime.edit_news import edited_line
from agentsup.model.agent_fields import FieldClass


def test_the_line_of_an_edit_stays_one() -> None:
    change = FieldChange("a", "b", FieldClass.LIVE)
    changes = {f"field_{n}": change for n in range(9)}
    plan = ChangePlan(
        added=tuple(f"new_{n}" for n in range(20)),
        changed={f"agent_{n}": changes for n in range(20)},
        settings={"limits.depth": change, "api.port": FieldChange(1, 2, FieldClass.PROCESS)},
    )
    line = edited_line(plan)
    assert line.endswith("+ new_7, 32 more, limits.depth. No other agent was touched.")
    assert edited_line(ChangePlan(changed={"a": changes})) == (
        "Edit applied: ~ a (field_0, field_1, field_2, field_3, 5 more; goes on). "
        "No other agent was touched."
    )
    assert edited_line(ChangePlan(removed=("a",))) == ""
