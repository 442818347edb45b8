"""The ``engine_options`` of an agent that speaks the protocol."""

from __future__ import annotations

from pydantic import Field

from agentsup.engines.process import ProgramOptions


class AcpOptions(ProgramOptions):
    """``command``: the agent's command line (a preset has its own). ``start_timeout_s``: how long
    it may take until it can be talked to. ``auth_method``: the id of a sign-in over the protocol,
    asked for before a session is opened."""

    start_timeout_s: float = Field(default=90.0, gt=0)
    auth_method: str = ""
