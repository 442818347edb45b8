"""``/set`` and ``/effort``: fields of an agent that an operator overrides without the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command
from agentsup.commands.pages import columns
from agentsup.config import field_problem, raises_rights, read_value
from agentsup.model.agent_fields import FieldClass
from agentsup.model.control import (
    CommandButton,
    CommandContext,
    CommandReply,
    Control,
    OverridableField,
)
from agentsup.model.errors import BadRequest

_BACK = "-"
_DEFAULT = "default"
_EFFORT = "reasoning_effort"


class _Overrides:
    def __init__(self, control: Control) -> None:
        self._control = control

    async def set(self, context: CommandContext, rest: str) -> CommandReply:
        fields = await self._control.overridable(context.agent_name)
        name, _, text = rest.partition(" ")
        if not name:
            return _listed(fields, words(context.language))
        return await self._one(context, fields, name.casefold(), text.strip())

    async def effort(self, context: CommandContext, rest: str) -> CommandReply:
        fields = await self._control.overridable(context.agent_name)
        return await self._one(context, fields, _EFFORT, rest)

    async def _one(
        self,
        context: CommandContext,
        fields: Sequence[OverridableField],
        name: str,
        text: str,
    ) -> CommandReply:
        say = words(context.language)
        found = next((each for each in fields if each.field == name), None)
        if found is None:
            raise BadRequest(field_problem(name) or say("set.unknown", field=name), field=name)
        if not text:
            return _shown(found, say)
        is_back = text == _BACK or (text == _DEFAULT and _DEFAULT not in found.choices)
        value = None if is_back else read_value(name, text)
        changed = await self._control.set_override(
            context.agent_name, name, value, context.principal
        )
        return _changed_reply(changed, say, is_back=is_back)


def _listed(fields: Sequence[OverridableField], say: LocalizedTexts) -> CommandReply:
    agent = fields[0].agent if fields else ""
    lines = [say("set.fields", name=agent)]
    lines += [
        say("set.row", field=each.field, value=_value(each.value, say), origin=each.origin)
        for each in fields
    ]
    buttons = [CommandButton(each.field, f"/set {each.field}", operator=True) for each in fields]
    return CommandReply("\n".join(lines), buttons=columns(buttons, 2))


def _shown(found: OverridableField, say: LocalizedTexts) -> CommandReply:
    value = _value(found.value, say)
    lines = [
        say("set.is", field=found.field, name=found.agent, value=value, origin=found.origin),
        found.doc,
    ]
    if found.choices:
        lines.append(say("set.choices", values=", ".join(found.choices)))
    lines.append(say("set.how", field=found.field))
    each = [_choice(found, value, say) for value in found.choices]
    back = CommandButton(
        say("button.as_in_file"), f"/set {found.field} {_BACK}", operator=True, once=True
    )
    return CommandReply("\n".join(lines), buttons=(*columns(each, 2), (back,)))


def _choice(found: OverridableField, value: str, say: LocalizedTexts) -> CommandButton:
    asks = raises_rights(found.field, found.value, value)
    return CommandButton(
        ("● " if value == found.value else "") + value,
        f"/set {found.field} {value}",
        once=True,
        confirm=say("set.confirm", name=found.agent, value=value) if asks else "",
        operator=True,
    )


def _changed_reply(
    changed: OverridableField, say: LocalizedTexts, *, is_back: bool
) -> CommandReply:
    key = "set.back" if is_back else "set.now"
    value = _value(changed.value, say)
    lines = [say(key, field=changed.field, name=changed.agent, value=value)]
    if changed.raises_rights:
        lines.append(say("set.raised", name=changed.agent, before=_value(changed.before, say)))
    if changed.takes == FieldClass.REBUILD and changed.value != changed.before:
        lines.append(say("set.rebuild", name=changed.agent))
    to_field = CommandButton(f"‹ {changed.field}", f"/set {changed.field}", operator=True)
    return CommandReply("\n".join(lines), buttons=((to_field,),))


def _value(value: Any, say: LocalizedTexts) -> str:
    if value is None:
        return say("set.nothing")
    return f"{value:g}" if isinstance(value, float) else str(value)


def override_commands(control: Control) -> tuple[Command, ...]:
    """The two commands; only an operator may give them."""
    run = _Overrides(control)
    return (
        Command(
            "set",
            "[FIELD [VALUE|-]]",
            "show or change a field of this agent without the files",
            run.set,
            operator=True,
        ),
        Command(
            "effort",
            "[LEVEL|-]",
            "how long the model thinks: show or change",
            run.effort,
            operator=True,
        ),
    )
