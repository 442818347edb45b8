"""What becomes of each kept update: let through or not, handled once, or set aside to be seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from agentsup.catalogue import words
from agentsup.channels import poison
from agentsup.channels.desk import is_over, is_passing
from agentsup.channels.telegram import compose, updates
from agentsup.channels.telegram.access import People, Reason, Verdict, may, named, remedy
from agentsup.channels.telegram.desk import (
    SayDeps,
    TypedAnswers,
    notice_tx,
    write_patiently,
)
from agentsup.channels.telegram.event import Event, EventKind
from agentsup.channels.telegram.intake import Intake
from agentsup.channels.telegram.lanes import Item, Lane, Lanes
from agentsup.channels.telegram.menus import Press
from agentsup.channels.telegram.saying import Saying
from agentsup.channels.telegram.updates import Row
from agentsup.channels.telegram.waiting import Waiting
from agentsup.kit import faults
from agentsup.mailbox import sessions
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.observe.logging import get_logger
from agentsup.store.database import Reader, Tx

__all__ = ["Buttons", "Incoming"]

_log = get_logger(__name__)

_TOLD_MAX = 1000
_LATE_WAIT_S = 2.0
_STORE_PAUSE_S = 1.0
_MESSAGES = frozenset({EventKind.MESSAGE, EventKind.EDITED})


class Buttons(TypedAnswers, Protocol):
    """Presses, reactions and typed answers."""

    async def on_press(self, press: Press, principal: Principal | None) -> None: ...

    async def on_reaction(
        self, conversation: str, message_id: int, emoji: str, principal: Principal, press_id: str
    ) -> bool: ...


class Incoming:
    """Everything that one bot is given, chat by chat."""

    def __init__(
        self,
        deps: SayDeps,
        *,
        spec: Callable[[], AgentSpec],
        people: People,
        menus: Buttons,
        waiting: Waiting,
        max_age_s: float,
        chats_at_once: int,
        backlog: int,
        tell: Callable[[str], Awaitable[None]],
        caught_up: Callable[[], bool],
        set_aside: Callable[[int], None],
    ) -> None:
        """``caught_up``: whether the platform has nothing more waiting; ``set_aside`` hears
        how many updates are in quarantine whenever that changes."""
        self._deps = deps
        self._spec = spec
        self._people = people
        self._menus = menus
        self._saying = Saying(deps, waiting, self._would_answer)
        self._max_age_s = max_age_s
        self._tell = tell
        self._caught_up = caught_up
        self._set_aside = set_aside
        self._told: set[tuple[Reason, int]] = set()
        self._lanes = Lanes(
            self._handle, name=f"telegram:{deps.agent_name}", at_once=chats_at_once, backlog=backlog
        )
        self._intake = Intake(deps, self._lanes, is_late=self._is_late, counted=set_aside)

    async def take(self, rows: Sequence[Row]) -> None:
        """Hand rows to their chats, in order; waits only while very many wait."""
        await self._intake.take(rows)

    async def take_leftovers(self) -> None:
        """What earlier lives kept and did not finish; it is handled before what comes now."""
        await self._intake.take_leftovers()

    async def run(self) -> None:
        """Take up what an operator wants to be tried again; lasts until it is cancelled."""
        await self._intake.try_again()

    async def close(self, drain_s: float) -> None:
        """Let what is under way end, at most ``drain_s``; the rest is kept for the next life."""
        await self._intake.close()
        await self._lanes.close(drain_s)
        await self._saying.close()

    # -- one item ----------------------------------------------------------------------------------

    async def _handle(self, item: Item, lane: Lane) -> None:
        while True:
            try:
                faults.point("telegram.before_handle")
                await self._route(item, lane)
                faults.point("telegram.after_handle")
            except Exception as error:  # noqa: BLE001
                # supervision boundary: one update must not cost the chat those behind it
                if is_passing(error):
                    if is_over(error):
                        return  # its row waits for the next life
                    lane.give_back()
                    await self._deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                _log.exception(
                    "an update could not be handled",
                    agent=self._deps.agent_name,
                    update_id=item.row.update_id,
                )
                lane.give_back()
                await self._quarantine(item, f"{type(error).__name__}: {error}")
                return
            else:
                return

    async def _route(self, item: Item, lane: Lane) -> None:
        event = item.event
        if event is None:
            await self._quarantine(item, item.fault)
            return
        if event.migrated_to is not None or event.migrated_from is not None:
            await self._migrated(item, event)
            return
        verdict = may(event, self._spec(), self._people)
        if event.album and verdict.reason in (Reason.ALLOWED, Reason.NOT_ADDRESSED):
            event = await self._saying.rest_of_album(event, lane)
            verdict = may(event, self._spec(), self._people)
        if verdict.principal is None:
            await self._refuse([item, *lane.taken], event, verdict)
            return
        principal = named(verdict.principal, event)
        if event.kind is EventKind.PRESS:
            await self._menus.on_press(await self._press(item, event), principal)
            await self._done(item)
        elif event.kind is EventKind.REACTION:
            await self._reaction(item, event, principal)
        elif not event.has_content:
            await self._unreadable(item, event)
        elif self._is_late(item):
            await self._late(item, lane)
        else:
            await self._saying.handle(item, event, principal, lane)

    async def _reaction(self, item: Item, event: Event, principal: Principal) -> None:
        press_id = item.row.external_id(self._deps.bot_id)
        for emoji in event.emoji:
            await self._menus.on_reaction(
                event.place.conversation, event.message_id or 0, emoji, principal, press_id
            )
        await self._done(item)

    async def _unreadable(self, item: Item, event: Event) -> None:
        """Nothing to answer; where a person sent something, that is said."""

        def step(tx: Tx) -> None:
            if event.unreadable and event.kind is EventKind.MESSAGE:
                told = words(event.language)(f"unreadable.{event.unreadable}")
                notice_tx(tx, self._deps, event.place.conversation, told)
            updates.skip_tx(tx, [item.row], "nothing to answer")

        await write_patiently(self._deps, step, "telegram.skip")

    async def _press(self, item: Item, event: Event) -> Press:
        conversation = event.place.conversation
        if event.is_placeless:
            conversation = await self._deps.database.read(
                lambda reader: self._shown_in(reader, event) or conversation,
                name="telegram.pressed",
            )
        return Press(
            callback_id=event.callback_id,
            data=event.data,
            press_id=item.row.external_id(self._deps.bot_id),
            conversation=conversation,
            chat_id=event.chat_id or 0,
            message_id=event.message_id,
            language=event.language,
        )

    def _shown_in(self, reader: Reader, event: Event) -> str | None:
        """The conversation in which we sent the message that was pressed."""
        found: str | None = reader.scalar(
            "SELECT conversation FROM outbox WHERE agent_id = ? AND channel = ?"
            " AND (conversation = ? OR conversation GLOB ?)"
            " AND EXISTS (SELECT 1 FROM json_each(platform_ids) WHERE CAST(value AS TEXT) = ?)"
            " ORDER BY outbox_id DESC LIMIT 1",
            (
                self._deps.agent_id,
                updates.CHANNEL,
                str(event.chat_id),
                f"{event.chat_id}/*",
                str(event.message_id),
            ),
        )
        return found

    # -- not let through ---------------------------------------------------------------------------

    async def _refuse(self, items: Sequence[Item], event: Event, verdict: Verdict) -> None:
        """A stranger gets nothing; the operator reads once how to let him in."""
        told = (
            verdict.reason,
            event.user_id if verdict.reason is Reason.STRANGER else event.chat_id,
        )
        text = remedy(event, verdict, self._deps.agent_name)
        if text and told not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(told)  # type: ignore[arg-type]  # both ids are set where there is a remedy
            _log.warning(text, agent=self._deps.agent_name)
        if event.kind is EventKind.PRESS and self._is_guest(event, verdict):
            # He sees the buttons of others, and would wait for ever for an answer.
            await self._menus.on_press(await self._press(items[0], event), None)
        await self._skip(items, verdict.reason.value)

    def _is_guest(self, event: Event, verdict: Verdict) -> bool:
        """Whether it is a stranger in a group that the agent talks in."""
        return verdict.reason is Reason.STRANGER and event.chat_id in self._spec().allowed_group_ids

    async def _migrated(self, item: Item, event: Event) -> None:
        """A group has another id: its session goes on there, and the operator is told once."""
        deps = self._deps
        old, new = event.migrated_from or event.chat_id, event.migrated_to or event.chat_id
        if old in self._spec().allowed_group_ids:
            keys = [f"chat:{updates.CHANNEL}:{each}" for each in (old, new)]
            await write_patiently(
                deps, lambda tx: sessions.move_tx(tx, deps.agent_id, *keys), "telegram.moved"
            )
        if event.migrated_to is not None and old in self._spec().allowed_group_ids:
            name = self._deps.agent_name
            text = (
                f"The Telegram group {event.chat_title!r} has a new id: {event.migrated_to} instead "
                f"of {event.chat_id}. Put it into allowed_group_ids of {name}, or {name} is silent "
                "there."
            )
            _log.warning(text, agent=name)
            try:
                await self._tell(text)
            except AgentsupError as error:
                _log.warning("nobody could be told", agent=name, why=str(error))
        await self._skip([item], "the group has moved")

    def _would_answer(self, event: Event) -> bool:
        return may(event, self._spec(), self._people).allowed

    # -- late --------------------------------------------------------------------------------------

    def _is_late(self, item: Item) -> bool:
        event = item.event
        if event is None or event.kind not in _MESSAGES or event.at is None:
            return False
        return self._deps.clock.now_ms() - event.at > self._max_age_s * 1000

    async def _late(self, first: Item, lane: Lane) -> None:
        """One notice for all that came too late, once the platform has given everything."""
        items = [first, *lane.taken]
        while True:
            wait_s = 0.0 if self._caught_up() else _LATE_WAIT_S
            item = await lane.next_like(self._is_late, wait_s)
            if item is None:
                break
            items.append(item)
        spec = self._spec()
        texts: dict[str, list[str]] = {}
        languages: dict[str, str] = {}
        for item in items:
            event = item.event
            if event is not None and event.has_content and may(event, spec, self._people).allowed:
                texts.setdefault(event.place.conversation, []).append(compose.named(event))
                languages[event.place.conversation] = event.language
        notices = {
            conversation: compose.late_notice(
                late, self._max_age_s / 3600, words(languages[conversation])
            )
            for conversation, late in texts.items()
        }
        await write_patiently(
            self._deps, partial(self._late_tx, items=items, notices=notices), "telegram.late"
        )

    def _late_tx(self, tx: Tx, *, items: Sequence[Item], notices: Mapping[str, str]) -> None:
        for conversation, text in notices.items():
            notice_tx(tx, self._deps, conversation, text)
        updates.skip_tx(tx, [item.row for item in items], "too late")

    # -- ends --------------------------------------------------------------------------------------

    async def _done(self, item: Item) -> None:
        await write_patiently(
            self._deps, lambda tx: updates.done_tx(tx, [item.row]), "telegram.done"
        )

    async def _skip(self, items: Sequence[Item], why: str) -> None:
        rows = [item.row for item in items]
        await write_patiently(
            self._deps, lambda tx: updates.skip_tx(tx, rows, why), "telegram.skip"
        )

    async def _quarantine(self, item: Item, why: str) -> None:
        """Keep it to be looked at, and say so where somebody waits for an answer."""
        event, deps = item.event, self._deps
        _log.error(
            "an update is in quarantine",
            agent=deps.agent_name,
            update_id=item.row.update_id,
            why=why,
        )
        is_awaited = (
            event is not None
            and event.kind in _MESSAGES
            and may(event, self._spec(), self._people).allowed
        )

        count = 0

        def step(tx: Tx) -> None:
            nonlocal count
            updates.quarantine_tx(tx, item.row, why)
            count = updates.quarantined(tx, deps.bot_id)
            if is_awaited and event is not None:
                say = words(event.language)
                told = say(
                    "message.quarantined", id=poison.name_of(updates.CHANNEL, item.row.row_id)
                )
                notice_tx(tx, deps, event.place.conversation, told)

        try:
            await write_patiently(deps, step, "telegram.quarantine")
        except (StoreUnavailable, Overloaded):
            return
        self._set_aside(count)
