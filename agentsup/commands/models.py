"""``/model``, ``/set`` and ``/effort``: the models of the provider with their prices, and the fields
of an agent that an operator overrides without the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.agents.recovery import FALLBACK, TIERS
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command, columns, is_operator, page_of, turning, wanted_page
from agentsup.config import field_problem, raises_rights, read_value
from agentsup.model.agent import OFFLINE
from agentsup.model.agent_fields import FieldClass
from agentsup.model.chat_model import ChatModel
from agentsup.model.control import (
    AgentView,
    CommandButton,
    CommandButtons,
    CommandContext,
    CommandReply,
    Control,
    ModelPrice,
    OverridableField,
)
from agentsup.model.errors import BadRequest, Conflict, EngineFailed, Forbidden

PER_PAGE = 8
LINES = 30
"""The most models in a list without pages; a part of a name finds the others."""


HERE, CHAT, BACK, DEFAULT = "here", "chat", "-", "default"
"""For this conversation; for the whole chat of a topic; back to the files; back to the agent's."""


@dataclass(frozen=True, slots=True)
class _ModelCommand:
    """Shows and changes the model of an agent, of a chat or of a topic."""

    control: Control

    async def run(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        scope, _, left = rest.partition(" ")
        if rest == DEFAULT:
            scope, left = HERE, DEFAULT
        if scope not in (HERE, CHAT):
            scope, left = "", rest
        left = left.strip()
        number = wanted_page(left)
        if number is not None:
            return await self._shown(context, number, scope)
        if not is_operator(context):
            raise Forbidden(say("model.operators"))
        if scope:
            return await self._for_chat(context, scope, left, say)
        if rest in TIERS:
            return await self._tier(context, rest, say)
        return await self._for_agent(context, rest, say)

    # -- showing -----------------------------------------------------------------------------------

    async def _shown(self, context: CommandContext, number: int, scope: str) -> CommandReply:
        """The model in use, and for operators a page of those that could be."""
        say = words(context.language)
        view = await self.control.agent(context.agent_name)
        model = view.model or say("model.default")
        here = await self.control.chat_models.here(view.name, _chat(context))
        is_offline = view.engine == OFFLINE and not view.model
        text = "model.offline" if is_offline else "model.uses"
        lines = [say(text, name=view.name, model=model, engine=view.engine)]
        if here is not None:
            lines.append(_here(here, context, say))
        if view.fallback_model:
            lines.append(say("model.fallback_is", model=view.fallback_model))
        if not is_operator(context):
            return CommandReply("\n".join(lines))
        try:
            offered = await self.control.models(view.name, context.principal)
            names = offered.names
            lines.append(say("model.offered", where=offered.where))
        except (Conflict, EngineFailed) as error:
            if not is_offline:
                lines.append(say("model.no_list", reason=error.message))
            names = await self._in_use(view)
        command = f"/model {scope}".strip()
        used = (here.model if here is not None else "") if scope else view.model
        page = page_of(names, number, PER_PAGE if context.has_buttons else LINES)
        prices = await self.control.model_prices(view.name, page.items)
        if context.has_buttons and (heading := page.heading(say)):
            lines.append(heading)
        each = []
        for name, price in zip(page.items, prices, strict=True):
            label = f"● {name}" if name == used else name
            lines.append("   ".join(filter(None, (label, price_text(price, say)))))
            each.append(CommandButton(label, f"{command} {name}", operator=True))
        if not context.has_buttons and page.count > 1:
            lines.append(say("model.more", n=page.total - len(page.items)))
        lines.append(say("model.how_here"))
        ends = _ends(scope, here, context, say)
        return CommandReply(
            "\n".join(lines), buttons=(*columns(each, 1), *turning(page, command), *ends)
        )

    async def _about(self, view: str, model: str, unchecked: str, say: LocalizedTexts) -> list[str]:
        """Lines about a model that was set: its price, or why it was not checked."""
        (price,) = await self.control.model_prices(view, (model,))
        lines = [say("model.costs", price=text)] if (text := price_text(price, say)) else []
        if unchecked:
            lines.append(say("model.unchecked", reason=unchecked))
        return lines

    # -- changing ----------------------------------------------------------------------------------

    async def _for_agent(
        self, context: CommandContext, rest: str, say: LocalizedTexts
    ) -> CommandReply:
        value, set_override = None if rest == BACK else rest, self.control.set_override
        changed = await set_override(context.agent_name, "model", value, context.principal)
        if value is None:
            await set_override(context.agent_name, "model_tier", None, context.principal)
        model = changed.value or say("model.default")
        lines = [say("model.now", name=changed.agent, model=model)]
        if changed.value:
            lines += await self._about(changed.agent, changed.value, changed.unchecked, say)
        own = await self.control.chat_models.of(changed.agent)
        here = await self.control.chat_models.here(changed.agent, _chat(context))
        if here is not None:
            lines.append(say("model.here_stays", model=here.model))
        elif own:
            lines.append(say.count("model.others_stay", len(own)))
        return CommandReply("\n".join(lines), buttons=_to_model(say))

    async def _for_chat(
        self, context: CommandContext, scope: str, model: str, say: LocalizedTexts
    ) -> CommandReply:
        chat = _chat(context)
        if scope == CHAT:
            chat = chat.partition("/")[0]
        choices, name = self.control.chat_models, context.agent_name
        if model in (BACK, DEFAULT):
            before = await choices.here(name, chat)
            holds = await choices.set(name, chat, None, context.principal)
            if holds is not None:  # a topic, whose chat has a choice
                text = say("model.of_chat", model=holds.model)
            elif before is None:
                text = say("model.none_here")
            else:
                view = await self.control.agent(name)
                text = say("model.here_back", model=view.model or say("model.default"))
            return CommandReply(text, buttons=_to_model(say))
        chosen = await choices.set(name, chat, model, context.principal)
        is_topic = "/" in chat
        key = "model.topic_now" if is_topic else "model.here_now"
        lines = [say(key, model=model)]
        unchecked = chosen.unchecked if chosen is not None else ""
        lines += await self._about(name, model, unchecked, say)
        return CommandReply("\n".join(lines), buttons=_to_model(say))

    async def _tier(self, context: CommandContext, tier: str, say: LocalizedTexts) -> CommandReply:
        """Choose the primary or the fallback model, from the next turn on."""
        view = await self.control.agent(context.agent_name)
        if tier == FALLBACK and not view.fallback_model:
            raise Conflict(say("model.no_fallback", name=view.name))
        await self.control.set_override(context.agent_name, "model_tier", tier, context.principal)
        if tier == FALLBACK:
            text = say("model.tier_fallback", name=view.name, model=view.fallback_model)
        else:
            model = view.model or say("model.default")
            text = say("model.tier_primary", name=view.name, model=model)
        return CommandReply(text, buttons=_to_model(say))

    async def _in_use(self, view: AgentView) -> tuple[str, ...]:
        """The models of the agents on the same engine."""
        views = await self.control.agents()
        return tuple(sorted({v.model for v in views if v.engine == view.engine and v.model}))


def price_text(price: ModelPrice | None, say: LocalizedTexts) -> str:
    """The price of a model as text; empty if it is not known."""
    if price is None:
        return ""
    if price == ModelPrice(0.0, 0.0):
        return say("model.free")
    return say("model.price", input=f"{price.input_usd:g}", output=f"{price.output_usd:g}")


def _chat(context: CommandContext) -> str:
    return f"{context.channel}:{context.conversation}"


def _here(here: ChatModel, context: CommandContext, say: LocalizedTexts) -> str:
    """A line with the model that answers in this conversation, or why the chosen one does not."""
    if here.not_used:
        return say("model.here_not_used", model=here.model, name=here.agent, service=here.not_used)
    if here.chat != _chat(context):
        return say("model.of_chat", model=here.model)
    return say("model.here_is", model=here.model)


def _ends(
    scope: str, here: ChatModel | None, context: CommandContext, say: LocalizedTexts
) -> CommandButtons:
    """The last rows: to the list for this chat, or back from it."""
    if scope:
        back = CommandButton(say("button.to_model"), "/model", operator=True)
        reset = CommandButton(say("button.as_agent"), f"/model {scope} {DEFAULT}", operator=True)
        return ((reset,), (back,)) if here is not None else ((back,),)
    as_in_file = CommandButton(say("button.as_in_file"), f"/model {BACK}", operator=True)
    for_here = CommandButton(say("button.for_here"), f"/model {HERE}", operator=True)
    return ((for_here,), (as_in_file,))


def _to_model(say: LocalizedTexts) -> CommandButtons:
    return ((CommandButton(say("button.to_model"), "/model"),),)


def model_command(control: Control) -> Command:
    """The command; only operators change anything."""
    return Command(
        "model",
        "[NAME|here NAME|default|primary|fallback]",
        "show or change the model, also for this chat alone",
        _ModelCommand(control).run,
    )


_EFFORT = "reasoning_effort"


@dataclass(frozen=True, slots=True)
class _Overrides:
    control: Control

    async def set(self, context: CommandContext, rest: str) -> CommandReply:
        fields = await self.control.overridable(context.agent_name)
        name, _, text = rest.partition(" ")
        if not name:
            return _listed(fields, words(context.language))
        return await self._one(context, fields, name.casefold(), text.strip())

    async def effort(self, context: CommandContext, rest: str) -> CommandReply:
        fields = await self.control.overridable(context.agent_name)
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
        is_back = text == BACK or (text == DEFAULT and DEFAULT not in found.choices)
        value = None if is_back else read_value(name, text)
        changed = await self.control.set_override(
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
        say("button.as_in_file"), f"/set {found.field} {BACK}", operator=True, once=True
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
