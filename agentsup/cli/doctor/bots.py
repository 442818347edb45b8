"""Problems of agents and their bots that the running daemon reports, besides their engines."""

from __future__ import annotations

from collections.abc import Iterator

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.check import WARN, Check


def check_agents(location: DaemonLocation) -> Iterator[Check]:
    """The warnings of each agent; none if no daemon answers. Those of engines have their check."""
    try:
        answer = DaemonClient.to(location).ask("GET", "/agents", timeout_s=5.0)
    except CommandFailed:
        return
    if answer.status != 200:
        return
    for one in answer.document["agents"]:
        for warning in one["warnings"]:
            if warning != one["engine_problem"]:
                yield Check("agent", WARN, f"{one['name']}: {warning}")
