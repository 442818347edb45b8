"""A whole platform in few lines, over the classes of ``channels.core``: the model for a new one.

Sends have no keys, so one of unknown outcome is not repeated. The server hands an update over again
until it is confirmed, so no position is stored. There are no groups, no markup and no codes for
strangers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from agentsup.channels.core import errors, life
from agentsup.channels.core.buttons import display, presses, typed_answers
from agentsup.channels.core.files import UploadFile
from agentsup.channels.core.files.inbox_files import Opened
from agentsup.channels.core.live import live_answer, placeholders, signs, streams
from agentsup.channels.core.live.rate_limit import RateLimit
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.receiving import gate, incoming, messages, raw, source
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.channels.core.sending import cards, deliver, pieces
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.split import passages
from agentsup.kit import faults
from agentsup.kit.tasks import TaskOwner
from agentsup.model.answer import AnswerBlocks, TextBlock
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.control import CommandButton
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx
from tests.contract.platform.toy_server import Button, ToyServer, Update

CHANNEL = "toy"
LATE_S = 1.0
"""A request that was under way when its process ended takes effect within this time or never."""

# -- sending: a part of the outbox becomes pieces, each a message --------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """One message: a text or a file, with buttons."""

    text: str
    file: UploadFile | None = None
    buttons: tuple[Button, ...] = ()


def render(text: str) -> list[Piece]:
    """Return a text as messages; there is no markup here, so Markdown is shown as it was written."""
    flow = lay_out(AnswerBlocks((TextBlock(text),)))
    return [Piece(each.text) for each in passages(flow, 4_000)]


class ToyPieces(pieces.PieceMaker[Piece]):
    max_file_bytes = 1_000_000

    def texts(self, text: str, *, is_plain: bool = False) -> list[Piece]:
        return render(text)

    def note(self, text: str) -> Piece:
        return Piece(text)

    def file(self, file: UploadFile, *, is_needed: bool = False) -> Piece:
        return Piece("", file)

    def buttons(self) -> tuple[Button, ...]:
        """Return the buttons of the part, which belong to its last message."""
        body = self.part.body
        found = [(each["label"], each["data"]) for row in body.get("buttons", ()) for each in row]
        for label, meaning in cards.offered(body):
            found.append((label, f"{cards.QUESTION}{body['question_id']}:{meaning}"))
        for key, prefix in (("again", cards.AGAIN), ("cancel", cards.CANCEL)):
            if body.get(key):
                found.append((self.say(f"button.{key}"), f"{prefix}{body[key]}"))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Handle:
    """The part of a running bot that delivers."""

    server: ToyServer
    settings: Callable[[], deliver.DeliverySettings]
    takeover: Callable[[str], Awaitable[str | None]]


class ToyChannel(deliver.PieceChannel[Handle, str, Piece]):
    """Delivers the outbox of all bots on the platform."""

    name = CHANNEL
    idempotent = False

    def _where(self, part: OutboxPart) -> str:
        return part.conversation

    async def _rendered(self, part: OutboxPart, bot: Handle, where: str) -> tuple[Piece, ...]:
        maker = ToyPieces(part, bot.settings())
        *first, last = await maker.made()
        return (*first, replace(last, buttons=maker.buttons()))

    async def _deliver_piece(
        self, bot: Handle, part: OutboxPart, where: str, piece: Piece, begin: Begin, *, more: bool
    ) -> Delivery:
        try:
            platform_id = await self._send(bot, part, where, piece, begin)
        except errors.PlatformError as error:
            return deliver.delivery_for(error)
        except OSError as error:
            return Delivery(DeliveryOutcome.REFUSED, f"the file can't be read: {error}")
        return Delivery(DeliveryOutcome.DELIVERED, more=more, platform_ids=(platform_id,))

    async def _send(
        self, bot: Handle, part: OutboxPart, where: str, piece: Piece, begin: Begin
    ) -> str:
        """Send the piece, or edit the message in which its answer was streamed; return the id."""
        is_first = part.kind == "answer" and not part.progress
        if is_first and (streamed_id := await bot.takeover(part.message_id)):
            with suppress(errors.RequestRefused):  # somebody has deleted it
                await bot.server.edit(streamed_id, piece.text, piece.buttons)
                return streamed_id
        await begin()
        if piece.file is None:
            return await bot.server.send(where, piece.text, piece.buttons)
        with await piece.file.opened() as content:
            return await bot.server.send(where, "", piece.buttons, piece.file.name, content.read())


# -- an answer while it is written, and signs -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chat:
    """An address."""

    conversation: str


class Streamed(placeholders.PlaceholderUpdates[Piece, Chat, ToyServer]):
    """The message in which an answer is streamed."""

    _render = staticmethod(render)

    def _edit_call(self, platform_id: str, piece: Piece) -> Callable[[], Awaitable[object]]:
        return partial(self.sender.edit, platform_id, piece.text)

    async def _delete_once(self, platform_id: str) -> None:
        await self.sender.delete(platform_id)


class Answer(live_answer.LiveAnswer[Piece]):
    async def takeover(self) -> str | None:
        if not await self._rests_within(LATE_S):
            self._is_distrusted = True
        return None if self._is_distrusted else self._platform_id or None

    def _pace(self) -> RateLimit:
        return RateLimit.of(self._context.mode(), self._context.streaming(), least_s=1.0)

    async def _rendered(self, markdown: str) -> Piece | None:
        return next(iter(render(markdown)), None)

    def _ended_with(self, piece: Piece, word: str) -> Piece:
        return Piece(f"{piece.text}\n\n{word}")

    async def _send(self, piece: Piece) -> bool:
        updates = self._updates
        if self._platform_id:
            await updates.sender.edit(self._platform_id, piece.text)
        else:
            chat = updates.address.conversation
            self._platform_id = await updates.sender.send(chat, piece.text)
            await updates.record(self._platform_id)
        return True

    async def _on_error(self, error: errors.PlatformError, retry_at: float) -> None:
        if isinstance(error, errors.NotSent):
            self._on_failure(retry_at)
        else:  # the message may be shown, or change, at any later time
            self._is_muted = self._is_distrusted = True
            await self._updates.distrust()


class Typing(signs.Typing[ToyServer]):
    renew_s = 5.0
    is_brief = False

    async def _set(self, chat: str, *, is_on: bool) -> None:
        await self._sender.show_typing(chat, is_on=is_on)


class Reactions(signs.Reactions[str, ToyServer]):
    clear_attempts = 3

    async def restore(self) -> None:
        look = partial(stored.of_open_messages, limit=signs.REACTIONS_MAX)
        for each in await self._database.read(look, CHANNEL, self._agent_id, name="toy.seen"):
            self._watch(each.message_id, signs.SeenMessage(each.platform_id, is_shown=True))

    async def _set(self, seen: signs.SeenMessage[str]) -> None:
        await self._sender.react(seen.target, signs.SEEN)

    async def _unset(self, seen: signs.SeenMessage[str]) -> None:
        await self._sender.react(seen.target, "")


class Streams(streams.StreamSet[ToyServer]):
    channel = CHANNEL
    typing_kind = Typing
    reactions_kind = Reactions

    def _target(self, message_id: str, conversation: str, platform_id: str) -> str:
        return platform_id

    def _new(
        self, message_id: str, conversation: str, left: placeholders.Placeholder | None = None
    ) -> Answer:
        chat = Chat(conversation)
        updates = Streamed(self._context, message_id, chat, self._sender, left)
        return Answer(updates, LATE_S)


# -- buttons -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Press:
    press_id: str
    conversation: str
    message_id: str
    data: str
    language: str = ""
    is_shared: bool = False


class Display(display.PressDisplay[Press, Piece]):
    channel = CHANNEL
    _render = staticmethod(render)

    def __init__(self, deps: messages.BotServices, server: ToyServer) -> None:
        super().__init__(deps)
        self._server = server

    async def answer(self, press: Press, text: str = "", *, alert: bool = False) -> None:
        await self._server.answer(press.press_id, text)

    async def show(
        self,
        press: Press,
        text: str,
        rows: Sequence[Sequence[CommandButton]] = (),
        *,
        origin: str = "",
    ) -> None:
        def mint(tx: Tx) -> list[list[dict[str, str]]]:
            return self._notices.mint_tx(tx, press.conversation, rows, origin)

        minted = await self._deps.database.write(mint, name="toy.mint")
        buttons = tuple((each["label"], each["data"]) for row in minted for each in row)
        shown = await self._edit(press.message_id, text, buttons)
        if shown is not display.EndShown.DONE:
            say = partial(self._say_tx, buttons=minted)
            await self._deps.database.write(say, press, text, name="toy.say")

    async def take_keyboard(self, press: Press) -> None:
        await self._edit(press.message_id, None)

    async def _close_question(
        self, card: typed_answers.AskedCard, last: Piece, *, is_end: bool
    ) -> display.EndShown:
        return await self._edit(card.platform_ids[-1], last.text)

    async def _close_note(self, conversation: str, platform_id: str, text: str) -> display.EndShown:
        return await self._edit(platform_id, text)

    async def _edit(
        self, message_id: str, text: str | None, buttons: tuple[Button, ...] = ()
    ) -> display.EndShown:
        return await self._edited(partial(self._server.edit, message_id, text, buttons))


# -- receiving: an update is stored, read, and handled in the lane of its chat ---------------------


@dataclass(frozen=True, slots=True)
class Event:
    """An update as read. Each chat has one person in it."""

    address: Chat
    kind: str
    user: str
    platform_id: str
    at: int
    text: str = ""
    data: str = ""
    attachments: tuple[Attachment, ...] = ()
    quoted_attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    is_private: bool = True

    @property
    def has_content(self) -> bool:
        return bool(self.text.strip() or self.attachments)

    @property
    def is_edit(self) -> bool:
        return self.kind == "edit"

    @property
    def is_message(self) -> bool:
        return self.kind in ("message", "edit")


def read(update: raw.Json) -> Event:
    """Return an update as read. Raises ``Malformed``."""
    text = partial(raw.text_of, update)
    at = raw.integer(update, "at")
    files = tuple(Attachment("file", name, name) for name in raw.list_of(update, "files"))
    chat, kind, user, platform_id = Chat(text("chat")), text("kind"), text("user"), text("message")
    return Event(chat, kind, user, platform_id, at, text("text"), text("data"), files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyDeps(messages.BotDependencies):
    """The dependencies of a bot; made by the daemon for each life."""

    channel: ToyChannel
    server: ToyServer
    token: str
    people: Callable[[str], Principal | None]
    """Who a user of the platform is; None for a stranger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDeps(messages.ReceiveDependencies):
    server: ToyServer
    people: Callable[[str], Principal | None]
    menus: presses.Presses[Press]
    accepted: Callable[[str, str, str], None]


class Messages(messages.PlatformMessages[Event]):
    _deps: ReceiveDeps
    downloads = 2

    def ledger_id(self, row: stored.ReceivedRow) -> str:
        return f"update:{row.external_id}"

    def read(self, row: stored.ReceivedRow, raw: str) -> Event:
        return read(stored.load(raw))

    def unread(self, reader: Reader, row: stored.ReceivedRow) -> Event | None:
        item = incoming.read_item(row, self.read)
        return item.event if item.event is not None and item.event.is_message else None

    async def answer(
        self, row: stored.ReceivedRow, event: Event, principal: Principal
    ) -> str | None:
        typed = typed_answers.TypedText(
            conversation=event.address.conversation,
            text=event.text,
            principal=principal,
            press_id=self.ledger_id(row),
            is_private=event.is_private,
        )
        return await self._deps.menus.on_text(typed)

    async def pull(self, sent: Attachment, opened: Opened) -> None:
        content = await self._deps.server.download(sent.file_id)
        write = await opened()
        await write(content)

    def accepted(self, message_id: str, event: Event) -> None:
        self._deps.accepted(message_id, event.address.conversation, event.platform_id)


class Incoming(incoming.ReceivedItems[Event]):
    _deps: ReceiveDeps

    def _chat_of(self, item: messages.ReceivedItem[Event]) -> str:
        return item.row.chat_id

    def _urgent(self, event: Event) -> str:
        if event.kind == "press":
            return "press"
        return "stop" if gate.is_stop(event.text) else ""

    async def _route(
        self, item: messages.ReceivedItem[Event], event: Event, lane: messages.Lane[Event]
    ) -> None:
        principal = self._deps.people(event.user)
        if event.kind == "press":
            press_id = f"update:{item.row.external_id}"
            press = Press(press_id, event.address.conversation, event.platform_id, event.data)
            await self._deps.menus.on_press(press, principal)
            await self._done(item)
        elif principal is None:
            remedy = f"{event.user} is not known and got no answer"
            await self._refuse([item], gate.AccessReason.STRANGER, event.user, remedy)
        elif not event.has_content:
            await self._skip([item], stored.SkipReason.NOTHING_TO_ANSWER)
        elif self._is_late(item):
            await self._late(item, lane, self._admitted)
        else:
            await self._messages.handle(item, event, principal, lane)

    async def _admitted(
        self, item: messages.ReceivedItem[Event], event: Event
    ) -> tuple[Event, str] | None:
        return None if self._awaits(event) is None else (event, "")

    def _awaits(self, event: Event) -> str | None:
        return None if self._deps.people(event.user) is None else ""


def decide_retry(error: errors.PlatformError, failures: int, unit: float) -> source.RetryDecision:
    """Decide what to do after a failed poll or sign-in."""
    return source.decide_retry(error, failures, unit, unreachable="Toy can't be reached")


class Poller(source.Source):
    _deps: ReceiveDeps
    title = "Toy"
    _confirmed = 0

    async def _receive(self, is_well: bool) -> Sequence[stored.ReceivedRow]:
        wait_s = self._deps.limits.poll_s if is_well else 0.0
        updates = await self._deps.server.poll(self._confirmed, wait_s)
        await self._answered()
        rows = await self._deps.database.write(self._keep_tx, updates, name="toy.keep")
        faults.platform_point(CHANNEL, "after_commit")
        self._confirmed = max([self._confirmed, *(each["id"] for each in updates)])
        return rows

    def _keep_tx(self, tx: Tx, updates: Sequence[Update]) -> list[stored.ReceivedRow]:
        rows = [
            stored.add_tx(
                tx,
                self._deps.owner,
                chat_id=each["chat"],
                external_id=str(each["id"]),
                platform_id="" if each["kind"] == "press" else each["message"],
                raw=stored.written(each),
                at=self._clock.now_ms(),
            )
            for each in updates
        ]
        faults.platform_point(CHANNEL, "before_commit")
        return [row for row in rows if row is not None]

    async def _after_failure(self, error: errors.PlatformError) -> source.RetryDecision:
        return decide_retry(error, self._failures, self._deps.entropy.uniform(0.0, 1.0))


# -- the life of a bot -----------------------------------------------------------------------------


class ToyBot(life.Bot[ToyServer, str]):
    _deps: ToyDeps
    _after_failure = staticmethod(decide_retry)

    def _open(self) -> ToyServer:
        return self._deps.server

    async def _identify(self, connection: ToyServer) -> str:
        return await connection.sign_in(self._deps.token)

    def _row_owner(self, connection: ToyServer, me: str) -> stored.RowOwner:
        return stored.RowOwner(CHANNEL, me, me)

    def _advice(self, error: errors.TokenRefused) -> str:
        return f"Toy does not know the token of {self._deps.agent_name}"

    def _attach(self, connection: ToyServer, me: str, owner: TaskOwner) -> life.LifeParts:
        deps = self._deps
        shown = Streams(deps, connection)
        menus = presses.Presses(deps, Display(deps, connection))
        deps.channel.attach(deps.agent_id, Handle(connection, deps.settings, shown.takeover))
        after_s = deps.limits.waiting_note_s
        waiting = WaitingNotes(deps, CHANNEL, menus.display.end_note, after_s)
        receiving = ReceiveDeps(
            **self._receive_fields(self._row_owner(connection, me)),
            server=connection,
            people=deps.people,
            menus=menus,
            accepted=shown.accepted,
        )
        handler = Messages(receiving, lambda event: deps.people(event.user) is not None)
        items = Incoming(receiving, handler, waiting.watch)
        return life.LifeParts(shown, menus, waiting, items, Poller(receiving, self._report_state))
