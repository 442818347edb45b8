"""What a session lets be chosen (its model, its effort), as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.engines.failures import NotConfigured

MODEL, EFFORT = "model", "thought_level"
"""Categories of options, by the protocol's names."""
_FIELDS = {MODEL: "model", EFFORT: "reasoning_effort"}
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """One option of a session: its id, what is set, and the values that may be."""

    option_id: str
    category: str
    current: str
    values: tuple[str, ...]


def choices_of(answer: Mapping[str, Any]) -> tuple[Choice, ...]:
    """The options of a session in an answer of the agent; what makes no sense is passed over."""
    given = answer.get("configOptions")
    found = []
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            category, current = each.get("category"), each.get("currentValue")
            if isinstance(category, str) and isinstance(current, str):
                values = tuple(_values(each.get("options")))
                found.append(Choice(each["id"], category, current, values))
    return tuple(found)


def _values(options: object) -> Iterator[str]:
    """The values of a list of options, or of groups of them."""
    for each in options if isinstance(options, list) else ():
        if isinstance(each, dict) and isinstance(each.get("value"), str):
            yield each["value"]
        elif isinstance(each, dict) and "options" in each:
            yield from (
                inner["value"]
                for inner in each["options"] or ()
                if isinstance(inner, dict) and isinstance(inner.get("value"), str)
            )


def choose(
    choices: tuple[Choice, ...], category: str, wanted: str, *, title: str
) -> tuple[Choice, str]:
    """The option for what an entry names, and the value that stands for it there: the same text, or
    the only one that ends with it after a provider's name (``provider/model``).

    Raises ``NotConfigured`` where the agent has no such option or value; ``title`` is the agent's.
    """
    field = _FIELDS[category]
    option = next((each for each in choices if each.category == category), None)
    if option is None:
        raise NotConfigured(
            f"{title} does not let its {field} be chosen: leave `{field}` out of the entry of this "
            "agent, or give it to the program by engine_options.command"
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
