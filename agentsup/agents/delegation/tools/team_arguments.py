"""The arguments of the tools that give work to other agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, model_validator

from agentsup.agents.delegation.service import MAX_WAIT_S
from agentsup.agents.tools.arguments import (
    Arguments,
    Check,
    Flag,
    Needed,
    Text,
    between,
    choice,
    strings,
    whole,
)

MAX_TASKS = 12
MAX_RETRIES, RETRIES = 5, 2
WAIT_S = 3600.0

_wait: Callable[[Any], float] = between(0, MAX_WAIT_S, f"must be 0 to {MAX_WAIT_S:.0f} seconds").run
_Seconds = Annotated[float, Check(lambda value: max(1.0, _wait(value)), {"type": "number"})]
_WAITS = "Seconds to wait at most; default 3600."


def _words(value: Any) -> tuple[str, ...]:
    listed = (value,) if isinstance(value, str) else strings(value)
    return tuple(word.strip() for text in listed for word in text.split(",") if word.strip())


class TeamTask(Arguments):
    """One of the tasks of ``dispatch_team``."""

    capability: Annotated[tuple[str, ...], Check(_words, {"type": "string"})] = Field(
        (),
        description="What it takes, as list_team shows it; several with commas between them. "
        "Without it, whoever has least to do.",
    )
    required_capabilities: Annotated[
        tuple[str, ...], Check(_words, {"type": ["array", "string"], "items": {"type": "string"}})
    ] = Field((), description="Another name of capability; a list.")
    prompt: Needed
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)
    retries: Annotated[int, whole(0, MAX_RETRIES)] = Field(
        RETRIES, description="How many others are asked after a failure; 0 to 5."
    )


class Route(TeamTask):
    """The arguments of ``route_to_agent``."""

    match: Annotated[str, choice("any", "all")] = Field("any", description="Of several.")
    fresh: Flag = Field(False, description="In a new session with that agent.")
    background: Flag = Field(False, description="Don't wait for the answer.")


class Dispatch(Arguments):
    """The arguments of ``dispatch_team``. The prompt and the time also hold for its tasks."""

    team: Text = Field("", description="Everyone of this team gets the prompt.")
    prompt: Text = ""
    tasks: list[TeamTask] = Field([], description=f"Or 1 to {MAX_TASKS} tasks.")
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)

    @model_validator(mode="before")
    @classmethod
    def _shared(cls, value: Any) -> Any:
        tasks = value.get("tasks") if isinstance(value, dict) else None
        if not isinstance(tasks, list) or not all(isinstance(each, dict) for each in tasks):
            return value
        shared = {name: value[name] for name in ("prompt", "timeout_s") if name in value}
        return {**value, "tasks": [{**shared, **each} for each in tasks]}


class Broadcast(Arguments):
    """The arguments of ``broadcast_to_agents``."""

    prompt: Needed
    mode: Annotated[str, choice("notify", "ask")] = Field(
        "notify", description="notify tells them and goes on; ask waits for their answers."
    )
    team: Text = Field("", description="Only this team; else everyone.")
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)


class ListTeam(Arguments):
    """The arguments of ``list_team``."""

    include_self: Flag = False
