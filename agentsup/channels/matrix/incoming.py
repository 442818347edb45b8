"""What becomes of each kept event: let through or not, handled once, or set aside to be seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from agentsup.catalogue import words
from agentsup.channels import compose, poison
from agentsup.channels.desk import is_over, is_passing
from agentsup.channels.lanes import Lanes
from agentsup.channels.matrix import kept
from agentsup.channels.matrix.access import (
    People,
    Reason,
    Room,
    Verdict,
    may,
    named,
    remedy,
    would_answer,
)
from agentsup.channels.matrix.clear import tell_tx
from agentsup.channels.matrix.context import Context
from agentsup.channels.matrix.desk import (
    Buttons,
    Item,
    Lane,
    SayDeps,
    Watching,
    notice_tx,
    shown,
    write_patiently,
)
from agentsup.channels.matrix.entering import Doors, Entering
from agentsup.channels.matrix.errors import MatrixError, TokenRefused
from agentsup.channels.matrix.event import Event, EventKind, Malformed, read
from agentsup.channels.matrix.feeding import Feeder
from agentsup.channels.matrix.kept import CHANNEL, Row
from agentsup.channels.matrix.marks import Marks
from agentsup.channels.matrix.rooms import Rooms
from agentsup.channels.matrix.saying import Saying
from agentsup.kit import faults
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.observe.logging import get_logger
from agentsup.store.database import Tx

__all__ = ["Doors", "Incoming"]

_log = get_logger(__name__)

_TOLD_MAX = 1000
_STORE_PAUSE_S = 1.0
_MESSAGES = frozenset({EventKind.MESSAGE, EventKind.EDITED})


class Incoming:
    """Everything that one bot is given, room by room."""

    def __init__(
        self,
        deps: SayDeps,
        *,
        spec: Callable[[], AgentSpec],
        people: People,
        menus: Buttons,
        waiting: Watching,
        rooms: Rooms,
        doors: Doors,
        marks: Marks,
        max_age_s: float,
        rooms_at_once: int,
        backlog: int,
        tell: Callable[[str], Awaitable[None]],
        set_aside: Callable[[int], None],
    ) -> None:
        """``set_aside`` hears how many events are in quarantine whenever that changes."""
        self._deps = deps
        self._spec = spec
        self._people = people
        self._menus = menus
        self._saying = Saying(deps, waiting, self._is_for_us)
        self._rooms = rooms
        self._context = Context(deps, rooms)
        self._marks = marks
        self._max_age_s = max_age_s
        self._tell = tell
        self._set_aside = set_aside
        self._told: set[tuple[str, str]] = set()
        self._entering = Entering(
            doors,
            me=deps.me.user_id,
            agent_name=deps.agent_name,
            spec=spec,
            people=people,
            clock=deps.clock,
            warn=self._warn,
            tell=self._say,
        )
        self._lanes: Lanes[Item] = Lanes(
            self._handle,
            name=f"matrix:{deps.agent_name}",
            at_once=rooms_at_once,
            backlog=backlog,
        )
        self._feeder = Feeder(
            lanes=self._lanes,
            read=self._read,
            is_late=self._is_late,
            counted=set_aside,
            database=deps.database,
            clock=deps.clock,
            owner=deps.owner,
            name=deps.agent_name,
        )

    async def take(self, rows: Sequence[Row]) -> None:
        """Hand new rows to their rooms, in order. Never waits for room."""
        await self._feeder.take(rows)

    async def run(self) -> None:
        """Take up what an operator wants to be tried again; lasts until it is cancelled."""
        await self._feeder.try_again()

    def take_leftovers(self) -> None:
        """Begin with what earlier lives kept and did not finish."""
        self._feeder.start()

    async def close(self, drain_s: float) -> None:
        """Let what is under way end, at most ``drain_s``; the rest is kept for the next life."""
        await self._feeder.close()
        await self._lanes.close(drain_s)
        await self._saying.close()

    def _read(self, row: Row) -> Item:
        try:
            return Item(row, read(kept.load(row.raw), row.room_id, self._deps.me))
        except (Malformed, ValueError) as error:
            return Item(row, None, str(error))
        except Exception as error:  # noqa: BLE001
            # supervision boundary: whatever one event holds, the next ones must be read
            return Item(row, None, f"{type(error).__name__}: {error}")

    # -- one item ----------------------------------------------------------------------------------

    async def _handle(self, item: Item, lane: Lane) -> None:
        while True:
            try:
                faults.point("matrix.before_handle")
                await self._route(item, lane)
                faults.point("matrix.after_handle")
            except Exception as error:  # noqa: BLE001
                # supervision boundary: one event must not cost the room those behind it
                if is_passing(error) or isinstance(error, TokenRefused):
                    if is_over(error):
                        return  # its row waits for the next life
                    lane.give_back()
                    await self._deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                _log.exception(
                    "an event could not be handled",
                    agent=self._deps.agent_name,
                    event_id=item.row.event_id,
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
        elif event.kind is EventKind.INVITE:
            await self._invited(item, event, lane)
        elif event.kind is EventKind.MOVED:
            await self._moved(item, event)
        elif event.kind is EventKind.GAP:
            await self._gap(item, event)
        elif event.kind is EventKind.OTHER:
            await self._skip([item], Reason.NOT_FOR_US.value)
        else:
            await self._from_person(item, event, lane)

    async def _from_person(self, item: Item, event: Event, lane: Lane) -> None:
        found = await self._placed(event, lane)
        if found is None:
            await self._skip([item], "we are not in the room")
            return
        event, room = found
        event = replace(event, is_private=room.is_private(self._deps.me.user_id, event.sender))
        verdict = may(event, self._spec(), self._people, room, self._deps.me.user_id)
        if verdict.principal is None:
            await self._refuse(item, event, verdict)
            return
        principal = named(verdict.principal, room.members.get(event.sender, ""))
        if await self._is_encrypted(event):
            await self._tell_encrypted(item, event, principal)
        elif event.kind is EventKind.REACTION and (self._is_old(item) or event.is_doubtful):
            await self._skip([item], "too late")
        elif event.kind is EventKind.REACTION:
            await self._menus.on_reaction(
                event.room_id,
                event.target_id,
                event.emoji,
                principal,
                item.row.external_id,
                principal.language,
                is_private=event.is_private,
            )
            await self._done(item)
        elif event.kind is EventKind.REDACTION:
            await self._saying.take_back(item, event, principal)
        elif not event.has_content:
            await self._skip([item], "nothing to answer")
        elif self._is_late(item):
            await self._late(item, event, principal, room, lane)
        else:
            await self._saying.handle(item, event, principal, lane)
            self._marks.read(event.place, event.event_id)

    async def _placed(self, event: Event, lane: Lane) -> tuple[Event, Room] | None:
        """The event, with what it refers to, and its room. Others have the place while one asks."""
        room = self._rooms.known(event.room_id)
        if room is not None and not self._context.may_take_long(event):
            return event, room
        async with lane.away():
            try:
                room = await self._rooms.get(event.room_id)
                return None if room is None else (await self._context.of(event, room), room)
            except TokenRefused:
                raise
            except MatrixError as error:
                await self._tell_once(
                    ("asked", event.room_id),
                    f"The homeserver does not tell {self._deps.agent_name} what it has to know of "
                    f"the Matrix room {event.room_id} ({error.message}). What comes from there is "
                    "set aside; look at it with /dead once that is mended.",
                )
                raise

    # -- not let through ---------------------------------------------------------------------------

    async def _refuse(self, item: Item, event: Event, verdict: Verdict) -> None:
        """A stranger gets nothing, but for a word about a button that is not for him; the operator
        reads once how to let him in."""
        is_strange = verdict.reason is Reason.STRANGER
        if is_strange and event.kind is EventKind.REACTION and not self._is_old(item):
            await self._foreign(item, event)
        self._warn(
            (verdict.reason, event.sender if is_strange else event.room_id),
            remedy(event, verdict.reason, self._deps.agent_name),
        )
        await self._skip([item], verdict.reason.value)

    def _warn(self, what: tuple[str, str], text: str) -> None:
        if text and what not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(what)
            _log.warning(text, agent=self._deps.agent_name)

    async def _foreign(self, item: Item, event: Event) -> None:
        """Once for each of his buttons, and not for ever: nobody shall make the bot talk."""
        what = (event.sender, event.target_id)
        if what in self._told or len(self._told) >= _TOLD_MAX:
            return
        self._told.add(what)
        press_id, language = item.row.external_id, self._spec().matrix.language or ""
        await self._menus.on_reaction(
            event.room_id, event.target_id, event.emoji, None, press_id, language
        )

    async def _invited(self, item: Item, event: Event, lane: Lane) -> None:
        async with lane.away():
            outside = await self._entering.answer(event)
        self._rooms.forget(event.room_id)
        if outside:
            await self._skip([item], outside)
        else:
            await self._done(item)

    async def _is_encrypted(self, event: Event) -> bool:
        if event.kind is EventKind.ENCRYPTED:
            return True
        return await self._deps.database.read(
            lambda reader: kept.is_encrypted(reader, self._deps.owner, event.room_id),
            name="matrix.encrypted",
        )

    async def _tell_encrypted(self, item: Item, event: Event, principal: Principal) -> None:
        """Say once in this room why nothing is answered in it."""
        deps, at = self._deps, self._deps.clock.now_ms()

        def step(tx: Tx) -> None:
            tell_tx(tx, owner=deps.owner, room_id=event.room_id, at=at, language=principal.language)
            kept.skip_tx(tx, [item.row], "encrypted")

        await write_patiently(deps, step, "matrix.encrypted")

    async def _moved(self, item: Item, event: Event) -> None:
        if event.room_id in self._spec().matrix.allowed_rooms:
            name = self._deps.agent_name
            text = (
                f"The Matrix room {event.room_id} was replaced by {event.moved_to}. Put the new one "
                f"into matrix.allowed_rooms of {name} and invite {self._deps.me.user_id}, or {name} "
                "is silent there."
            )
            await self._say(text)
        await self._skip([item], "the room has moved")

    async def _say(self, text: str) -> None:
        """To the operator."""
        name = self._deps.agent_name
        _log.warning(text, agent=name)
        try:
            await self._tell(text)
        except AgentsupError as error:
            _log.warning("nobody could be told", agent=name, why=str(error))

    async def _tell_once(self, what: tuple[str, str], text: str) -> None:
        if what not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(what)
            await self._say(text)

    async def _gap(self, item: Item, event: Event) -> None:
        """Older messages were not read; where the agent talks, that is said."""
        deps = self._deps
        _log.warning("older messages were not read", agent=deps.agent_name, room=event.room_id)
        is_known = await self._context.talks_in(event.place)

        def step(tx: Tx) -> None:
            if is_known:
                notice_tx(tx, deps, event.room_id, words()("matrix.gap"))
            kept.skip_tx(tx, [item.row], "a gap")

        await write_patiently(deps, step, "matrix.gap")

    def _is_for_us(self, event: Event) -> bool:
        room = self._rooms.known(event.room_id)
        return would_answer(event, self._spec(), self._people, room, self._deps.me.user_id)

    # -- late --------------------------------------------------------------------------------------

    def _is_late(self, item: Item) -> bool:
        return item.event is not None and item.event.kind in _MESSAGES and self._is_old(item)

    def _is_old(self, item: Item) -> bool:
        event = item.event
        if event is None or event.at is None:
            return False
        return self._deps.clock.now_ms() - event.at > self._max_age_s * 1000

    async def _late(
        self, first: Item, event: Event, principal: Principal, room: Room, lane: Lane
    ) -> None:
        """One notice for all that came too late; a sync gives them all at once."""
        items = [first]
        texts: dict[str, list[str]] = {event.place.conversation: [shown(event)]}
        while (item := await lane.next_like(self._is_late, 0.0)) is not None:
            items.append(item)
            if item.event is None or not item.event.has_content:
                continue
            async with lane.away():
                other = await self._context.of(item.event, room)
            if may(other, self._spec(), self._people, room, self._deps.me.user_id).allowed:
                texts.setdefault(other.place.conversation, []).append(shown(other))
        hours, say = self._max_age_s / 3600, words(principal.language)

        def step(tx: Tx) -> None:
            for conversation, late in texts.items():
                notice_tx(tx, self._deps, conversation, compose.late_notice(late, hours, say))
            kept.skip_tx(tx, [each.row for each in items], "too late")

        await write_patiently(self._deps, step, "matrix.late")

    # -- ends --------------------------------------------------------------------------------------

    async def _done(self, item: Item) -> None:
        await write_patiently(self._deps, lambda tx: kept.done_tx(tx, [item.row]), "matrix.done")

    async def _skip(self, items: Sequence[Item], why: str) -> None:
        rows = [item.row for item in items]
        await write_patiently(self._deps, lambda tx: kept.skip_tx(tx, rows, why), "matrix.skip")

    async def _quarantine(self, item: Item, why: str) -> None:
        """Keep it to be looked at, and say so where somebody waits for an answer."""
        event, deps = item.event, self._deps
        _log.error(
            "an event is in quarantine",
            agent=deps.agent_name,
            event_id=item.row.event_id,
            row_id=item.row.row_id,
            why=why,
        )
        is_awaited = self._is_awaited(event)
        count = 0

        def step(tx: Tx) -> None:
            nonlocal count
            kept.quarantine_tx(tx, item.row, why)
            count = kept.quarantined(tx, deps.owner)
            if is_awaited and event is not None:
                name = poison.name_of(CHANNEL, item.row.row_id)
                text = words()("message.quarantined", id=name)
                notice_tx(tx, deps, event.place.conversation, text)

        try:
            await write_patiently(deps, step, "matrix.quarantine")
        except (StoreUnavailable, Overloaded):
            return
        self._set_aside(count)

    def _is_awaited(self, event: Event | None) -> bool:
        """Whether somebody who may write there waits for an answer; nobody is asked for that."""
        if event is None or event.kind not in _MESSAGES:
            return False
        room = self._rooms.known(event.room_id)
        if room is None:
            return False
        try:
            return may(event, self._spec(), self._people, room, self._deps.me.user_id).allowed
        except Exception:  # noqa: BLE001
            # supervision boundary: this may be what is wrong with the event
            return False
