"""The codes that statistics count as timeouts are those of the error classes that say so."""

from __future__ import annotations

from collections.abc import Iterator

from agentsup.agents.mcp import failures as of_servers
from agentsup.engines import failures as of_engines
from agentsup.model.errors import TIMEOUT_CODES, AgentsupError


def errors(of: type[AgentsupError] = AgentsupError) -> Iterator[type[AgentsupError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from errors(kind)


def test_each_error_that_says_that_time_ran_out_is_among_the_codes() -> None:
    assert of_servers.__name__
    assert of_engines.__name__
    found = {
        kind.code
        for kind in errors()
        if kind.__module__.startswith("agentsup.")
        and (kind.__name__.endswith(("TimedOut", "Timeout")) or "time" in kind.code)
    }
    assert found == TIMEOUT_CODES
