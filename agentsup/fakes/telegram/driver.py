"""TelegramDriver: plays people over raw HTTP; for tests of everything that talks to the fake.

It uses the control plane only and knows nothing of our own objects, so what a test proves with it
is what a person would see.

    async with TelegramDriver(fake.url) as people:
        ann = await people.user("Ann")
        chat = await people.private(ann, bot.bot_id)
        await people.say(chat, "hello")
        answer = await people.wait_text(chat, "Hello")
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

Json = dict[str, Any]
BOUND_S: Final = 50.0
"""Seconds that a test waits for what comes at once on a machine that is not stalled."""
_STEP_S: Final = 5.0


class ControlRefused(Exception):
    """The control plane refused an action; the text says why."""


class TelegramDriver:
    """People and trouble, by HTTP. ``chat`` everywhere is a chat key as ``private`` or ``group``
    gave."""

    def __init__(self, url: str) -> None:
        """``url`` is the fake's."""
        self.url = url
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        if self._http is not None:
            await self._http.close()

    # -- raw ---------------------------------------------------------------------------------------

    async def get(self, what: str, **query: Any) -> Any:
        """A view of the control plane."""
        assert self._http is not None, "open the driver with `async with`"
        given = {name: str(value) for name, value in query.items() if value is not None}
        async with self._http.get(f"{self.url}/_fake/{what}", params=given) as response:
            return _result(await response.json())

    async def act(self, what: str, **body: Any) -> Any:
        """An action of the control plane."""
        assert self._http is not None, "open the driver with `async with`"
        given = {name: value for name, value in body.items() if value is not None}
        async with self._http.post(f"{self.url}/_fake/{what}", json=given) as response:
            return _result(await response.json())

    async def call(self, token: str, method: str, **fields: Any) -> Json:
        """A bot method as a bot would call it: the whole answer document with its ``status``."""
        assert self._http is not None, "open the driver with `async with`"
        async with self._http.post(f"{self.url}/bot{token}/{method}", json=fields) as response:
            return {"status": response.status, **await response.json()}

    # -- chats and people --------------------------------------------------------------------------

    async def add_bot(self, token: str, **facts: Any) -> int:
        """Register a bot (username, first_name, can_read_all_group_messages,
        has_topics_enabled); returns its id."""
        return int((await self.act("bot", token=token, **facts))["id"])

    async def user(self, first_name: str, **facts: Any) -> int:
        """Make a person (username, language_code, …); returns the user id."""
        return int((await self.act("user", first_name=first_name, **facts))["id"])

    async def private(self, user: int, bot: int) -> str:
        """The key of a private chat, made on first use."""
        return str((await self.act("private", user=user, bot=bot))["key"])

    async def group(
        self,
        title: str,
        members: Sequence[int],
        *,
        administrators: Sequence[int] = (),
        supergroup: bool = False,
        forum: bool = False,
    ) -> str:
        """Make a group with these people and bots; its key is its id as text."""
        made = await self.act(
            "group",
            title=title,
            type="supergroup" if supergroup or forum else "group",
            members=list(members),
            administrators=list(administrators),
            is_forum=forum,
        )
        return str(made["key"])

    async def topic(self, chat: str, name: str, *, user: int | None = None) -> int:
        """A person opens a topic; returns message_thread_id."""
        made = await self.act("topic", chat=chat, name=name, user=user)
        return int(made["message_thread_id"])

    # -- what people do ----------------------------------------------------------------------------

    async def say(
        self,
        chat: str,
        text: str,
        *,
        user: int | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
    ) -> int:
        """Write a text; ``user`` is needed in groups. Returns the message id."""
        done = await self.act(
            "say", chat=chat, text=text, user=user, thread=thread, reply_to=reply_to
        )
        return int(done["message_id"])

    async def edit(self, chat: str, message_id: int, text: str, *, user: int | None = None) -> None:
        """Edit an own message."""
        await self.act("edit", chat=chat, message_id=message_id, text=text, user=user)

    async def delete(self, chat: str, message_id: int) -> None:
        """Delete a message for everyone."""
        await self.act("delete", chat=chat, message_id=message_id)

    async def send_file(
        self,
        chat: str,
        data: bytes,
        *,
        name: str = "file.txt",
        kind: str = "document",
        mime: str = "application/octet-stream",
        caption: str = "",
        user: int | None = None,
        thread: int | None = None,
        media_group_id: str | None = None,
    ) -> int:
        """Send a document, photo (real image bytes) or voice. Returns the message id."""
        assert self._http is not None, "open the driver with `async with`"
        form = aiohttp.FormData()
        facts = {
            "chat": chat,
            "kind": kind,
            "caption": caption,
            "user": user,
            "thread": thread,
            "media_group_id": media_group_id,
        }
        for field, value in facts.items():
            if value is not None and value != "":
                form.add_field(field, str(value))
        form.add_field("file", io.BytesIO(data), filename=name, content_type=mime)
        async with self._http.post(f"{self.url}/_fake/send_file", data=form) as response:
            return int(_result(await response.json())["message_id"])

    async def press(
        self,
        chat: str,
        message_id: int,
        *,
        text: str | None = None,
        data: str | None = None,
        user: int | None = None,
        force: bool = False,
    ) -> str:
        """Press a button by its label or data; ``force`` presses one that is gone. Returns the id of
        the callback query, for ``pressed``."""
        done = await self.act(
            "press",
            chat=chat,
            message_id=message_id,
            text=text,
            data=data,
            user=user,
            force=force,
        )
        return str(done["callback_query_id"])

    async def stop_draft(self, chat: str, draft_id: int | None = None) -> int:
        """Press the stop button of the draft, or of an earlier one; returns the draft's id."""
        return int((await self.act("stop_draft", chat=chat, draft_id=draft_id))["draft_id"])

    async def create_bot(self, chat: str | None = None, **facts: Any) -> Json:
        """Tap *Create* for the key of a chat's keyboard, or for a ``link`` as ``user``; ``username``,
        ``name`` and ``updates`` as in ``creating.create_bot``. Returns id and username."""
        made: Json = await self.act("create_bot", chat=chat, **facts)
        return made

    async def replace_token(self, bot: int, *, quiet: bool = False) -> str:
        """Have BotFather replace a bot's token; returns the new one."""
        return str((await self.act("replace_token", bot=bot, quiet=quiet))["token"])

    async def pressed(self, query_id: str, timeout_s: float = BOUND_S) -> Json:
        """The bot's answer to a press: text, show_alert, at_ms; awaited."""

        async def answer() -> Json | None:
            found: Json | None = (await self.get("callback", id=query_id))["answer"]
            return found

        found: Json = await self._until(answer, None, timeout_s, f"answer to press {query_id}")
        return found

    async def react(self, chat: str, message_id: int, *emoji: str, user: int | None = None) -> None:
        """Set a person's reactions; none removes them."""
        await self.act("react", chat=chat, message_id=message_id, emoji=list(emoji), user=user)

    async def block(self, chat: str, *, blocked: bool = True) -> None:
        """Block the bot of a private chat, or unblock it."""
        await self.act("block", chat=chat, blocked=blocked)

    async def member(self, chat: str, who: int, status: str, *, by: int | None = None) -> None:
        """Change who is in a group: member, administrator, left, kicked."""
        await self.act("member", chat=chat, who=who, status=status, by=by)

    async def migrate(self, chat: str) -> str:
        """Make a supergroup of a group; returns the new chat's key."""
        return str((await self.act("migrate", chat=chat))["chat"])

    # -- what people see ---------------------------------------------------------------------------

    async def view(self, chat: str, **query: Any) -> Json:
        """The chat now: cursor, messages (records), drafts, all_drafts, action."""
        found: Json = await self.get("messages", chat=chat, **query)
        return found

    async def messages(
        self, chat: str, *, after: int = 0, deleted: bool = False, thread: int | None = None
    ) -> list[Json]:
        """Records of a chat: message (Bot API), is_bot, history, reactions, deleted_ms."""
        given = {"after": after, "deleted": "1" if deleted else None, "thread": thread}
        found: list[Json] = (await self.view(chat, **given))["messages"]
        return found

    async def texts(self, chat: str, *, after: int = 0) -> list[str]:
        """The bot's texts and captions in a chat, in order."""
        return [
            _said(record["message"])
            for record in await self.messages(chat, after=after)
            if record["is_bot"]
        ]

    async def wait_for(
        self,
        chat: str,
        predicate: Callable[[Json], Any],
        timeout_s: float = BOUND_S,
        *,
        after: int = 0,
    ) -> Any:
        """The result of ``predicate(view of the chat)`` once that is true.

        The view's messages are those later than message ``after``.
        Raises ``TimeoutError`` that shows the chat.
        """

        async def look() -> Any:
            return predicate(await self.view(chat, after=after))

        return await self._until(look, chat, timeout_s, f"what was awaited in chat {chat}")

    async def wait_message(
        self,
        chat: str,
        matches: Callable[[Json], bool],
        timeout_s: float = BOUND_S,
        *,
        after: int = 0,
    ) -> Json:
        """The first record of a bot later than message ``after`` whose Bot API message matches."""

        def found(view: Json) -> Json | None:
            return next(
                (
                    record
                    for record in view["messages"]
                    if record["is_bot"] and matches(record["message"])
                ),
                None,
            )

        record: Json = await self.wait_for(chat, found, timeout_s, after=after)
        return record

    async def wait_text(
        self, chat: str, part: str, timeout_s: float = BOUND_S, *, after: int = 0
    ) -> Json:
        """The first record of a bot whose text or caption contains ``part``."""
        return await self.wait_message(
            chat,
            lambda message: part in _said(message),
            timeout_s,
            after=after,
        )

    async def download(self, unique: str) -> bytes:
        """The bytes of a file by its file_unique_id."""
        assert self._http is not None, "open the driver with `async with`"
        async with self._http.get(f"{self.url}/_fake/file/{unique}") as response:
            response.raise_for_status()
            return await response.read()

    async def _until(
        self, look: Callable[[], Any], chat: str | None, timeout_s: float, what: str
    ) -> Any:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    cursor = (await self.get("clock"))["cursor"]
                    found = await look()
                    if found:
                        return found
                    await self.get("wait", after=cursor, chat=chat, timeout_s=_STEP_S)
        seen: Any = ""
        if chat is not None:
            view = await self.view(chat)
            lines = [_line(record) for record in view["messages"][-20:]]
            seen = {"messages": lines, "drafts": view["drafts"], "action": view["action"]}
        raise TimeoutError(f"{what} did not come within {timeout_s} s: {json.dumps(seen)}")

    # -- trouble and accounts ----------------------------------------------------------------------

    async def fault(self, kind: str, **facts: Any) -> str:
        """Order a fault (see ``faults.KINDS``); facts: token, method, chat_id, count, probability,
        seed, skip, retry_after, status, description, body, seconds, bytes, grow. Returns its id."""
        return str((await self.act("fault", kind=kind, **facts))["fault_id"])

    async def clear_faults(self, fault_id: str | None = None) -> None:
        """Take back one fault or all."""
        await self.act("clear_faults", fault_id=fault_id)

    async def limits(self, mode: str) -> None:
        """Switch rate limits to count or enforce."""
        await self.act("limits", mode=mode)

    async def report(self) -> Json:
        """Calls by method and rates with maxima; ``exceeded`` is empty when all limits held."""
        found: Json = await self.get("report")
        return found

    async def reset_report(self) -> None:
        """Begin a new count."""
        await self.act("reset_report")

    async def violations(self) -> list[Json]:
        """Unknown fields, wrong types: what a correct client never sends."""
        found: list[Json] = await self.get("violations")
        return found

    async def inject(self, bot: int, update: Mapping[str, Any]) -> Json:
        """Queue a raw update, such as one that cannot be parsed."""
        found: Json = await self.act("inject", bot=bot, update=dict(update))
        return found

    async def next_update_id(self, bot: int, value: int) -> None:
        """Number the following updates from ``value`` on."""
        await self.act("next_update_id", bot=bot, value=value)

    async def advance(self, seconds: float) -> None:
        """Move the fake's clock forward."""
        await self.act("advance", seconds=seconds)

    async def revoke(self, bot: int, *, revoked: bool = True) -> None:
        """Make a bot's token invalid (401), or valid again."""
        await self.act("revoke", bot=bot, revoked=revoked)


def _result(document: Json) -> Any:
    if not document.get("ok"):
        raise ControlRefused(document.get("description", document))
    return document["result"]


def _said(message: Json) -> str:
    return str(message.get("text", message.get("caption", "")))


def _line(record: Json) -> str:
    message = record["message"]
    text = message.get("text", message.get("caption", "(no text)"))
    return f"{record['message_id']} {'bot' if record['is_bot'] else 'person'}: {text[:200]}"
