"""The options of an agent that speaks the protocol: of its entry, and of a session, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agentsup.engines.clean import objects
from agentsup.engines.failures import NotConfigured
from agentsup.engines.process import ProgramOptions

MODEL, EFFORT = "model", "thought_level"
"""Categories of options, by the protocol's names."""
_FIELDS = {MODEL: "model", EFFORT: "reasoning_effort"}
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class SessionOption:
    """One option of a session: its id, the value that is set, and the possible values."""

    option_id: str
    category: str
    current: str
    values: tuple[str, ...]


def choices_of(answer: Mapping[str, Any]) -> tuple[SessionOption, ...]:
    """Return the options of a session from an answer of the agent; malformed ones are skipped."""
    found = []
    for each in objects(answer.get("configOptions")):
        option_id, category, current = map(each.get, ("id", "category", "currentValue"))
        if isinstance(option_id, str) and isinstance(category, str) and isinstance(current, str):
            values = tuple(_values(each.get("options")))
            found.append(SessionOption(option_id, category, current, values))
    return tuple(found)


def _values(options: object) -> Iterator[str]:
    """The values of a list of options, or of groups of them."""
    for each in objects(options):
        if isinstance(each.get("value"), str):
            yield each["value"]
        else:
            yield from _values(each.get("options"))


def choose(
    choices: tuple[SessionOption, ...], category: str, wanted: str, *, title: str
) -> tuple[SessionOption, str]:
    """Return the option of ``category``, and its value for ``wanted``, the text of an entry.

    The value is the same text, or the only one that ends with it after a provider's name
    (``provider/model``). Raises ``NotConfigured`` if the agent has no such option or value;
    ``title`` is the agent's.
    """
    field = _FIELDS[category]
    option = next((each for each in choices if each.category == category), None)
    if option is None:
        raise NotConfigured(
            f"{title} does not let its {field} be chosen: take `{field}` out of the entry of this "
            "agent (null, where [agent_defaults] sets it), or give it to the program by "
            "engine_options.command"
        )
    if wanted in option.values:
        return option, wanted
    ending = [each for each in option.values if each.endswith(f"/{wanted}")]
    if len(ending) == 1:
        return option, ending[0]
    offered = ", ".join(option.values[:_MOST_NAMED]) or "none"
    more = len(option.values) - _MOST_NAMED
    raise NotConfigured(
        f"{title} has no {field} {wanted!r}; it offers {offered}"
        + (f" and {more} more" if more > 0 else "")
    )


class AcpOptions(ProgramOptions):
    """``command``: the agent's command line (a preset has its own). ``start_timeout_s``: how long
    it may take until it can be talked to. ``auth_method``: the id of a sign-in over the protocol,
    asked for before a session is opened."""

    start_timeout_s: float = Field(default=90.0, gt=0)
    auth_method: str = ""
