"""Models that an operator chooses for single chats and topics of an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentsup.agents.recovery import provider_of
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.engines import DaemonEngines, ProviderModels
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.kit.log import get_logger
from agentsup.mailbox.messages import chat_key, chat_models, chat_of_key
from agentsup.model.agent import AgentSpec
from agentsup.model.chat_model import ChatModel
from agentsup.model.errors import BadRequest, Conflict, EngineFailed, Forbidden
from agentsup.model.principal import Principal

_log = get_logger(__name__)
_MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class ChatModels:
    """Implements ``model.chat_model.ChatModelChoices``."""

    boot_context: BootContext
    reconciler: Reconciler
    engines: DaemonEngines
    models: ProviderModels
    fleet: Fleet

    async def of(self, name: str) -> tuple[ChatModel, ...]:
        """See the port; a choice with ``not_used`` has been left behind by an edit."""
        entry = self.boot_context.roster.entry(name)
        found = await self.boot_context.database.read(
            chat_models.all_of, entry.agent_id, name="chat_models.all"
        )
        return tuple(self._shown(entry.name, one) for one in found)

    async def here(self, name: str, chat: str) -> ChatModel | None:
        """See the port."""
        entry = self.boot_context.roster.entry(name)
        keys = chat_models.keys_of(*_split(chat))
        found = await self.boot_context.database.read(
            chat_models.chosen, entry.agent_id, keys, name="chat_models.here"
        )
        return None if found is None else self._shown(entry.name, found)

    async def set(self, name: str, chat: str, model: str | None, by: Principal) -> ChatModel | None:
        """See the port."""
        if not by.is_operator:
            raise Forbidden("only an operator chooses the model of a chat")
        entry, (channel, conversation) = self.boot_context.roster.entry(name), _split(chat)
        agent_id, key = entry.agent_id, chat_key(channel, conversation)
        database, unchecked = self.boot_context.database, ""
        if model is None:
            await database.write(chat_models.drop_tx, agent_id, key, name="chat_models.drop")
        else:
            spec = self.reconciler.snapshot.require(entry.name)
            wanted = self._with(spec, model)
            unchecked = await self.models.check(spec, model)
            at = self.boot_context.clock.now_ms()
            choice = chat_models.ChosenModel(key, model, self._service(wanted), by.label, at)
            await database.write(chat_models.choose_tx, agent_id, choice, name="chat_models.set")
        _log.info("model of a chat", agent=entry.name, chat=chat, model=model, by=by.label)
        await self._forget_problems(agent_id)
        found = await self.here(entry.name, chat)
        return replace(found, unchecked=unchecked) if found is not None else None

    def _with(self, spec: AgentSpec, model: str) -> AgentSpec:
        """The agent with that model. Raises ``BadRequest`` and ``Conflict``."""
        if not 0 < len(model) <= _MOST_CHARS:
            raise BadRequest(f"a model has a name of 1 to {_MOST_CHARS} characters", field="model")
        snapshot = self.reconciler.snapshot
        value = snapshot.override(spec.name, "model", model).value
        wanted = replace(spec, model=value)
        if problem := self.engines.refusal(wanted, "model"):
            raise Conflict(f"the model is not changed: {problem}", agent=spec.name, field="model")
        return wanted

    def _service(self, spec: AgentSpec) -> str:
        """The service that answers for ``spec``; empty if its engine can't be made now."""
        try:
            engine, options = self.engines.make(spec)
        except EngineFailed:
            return ""
        return provider_of(engine.name, spec.provider or "", spec.model or "", options)

    def _shown(self, name: str, found: chat_models.ChosenModel) -> ChatModel:
        channel, conversation = chat_of_key(found.key)
        spec = self.reconciler.snapshot.require(name)
        service = self._service(replace(spec, model=found.model))
        return ChatModel(
            agent=name,
            chat=f"{channel}:{conversation}",
            model=found.model,
            chosen_by=found.chosen_by,
            chosen_at=found.chosen_at,
            not_used="" if service in ("", found.service) else found.service,
        )

    async def _forget_problems(self, agent_id: str) -> None:
        """Forget why models could not answer that no chat uses any more."""
        stack = unit.stack if (unit := self.fleet.get(agent_id)) is not None else None
        if stack is not None:
            found = await self.boot_context.database.read(chat_models.all_of, agent_id)
            stack.keep_problems(frozenset(each.model for each in found))


def _split(chat: str) -> tuple[str, str]:
    channel, colon, conversation = chat.partition(":")
    if not (channel and colon and conversation):
        raise BadRequest(
            "a chat is named by its channel and its id there, such as telegram:12345 or, for a "
            "topic, telegram:-100123/7",
            field="chat",
        )
    return channel, conversation
