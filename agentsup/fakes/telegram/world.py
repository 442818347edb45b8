"""The small world behind the fake: bots, people, chats, messages, updates, files.

Everything is documents in the journal. A private chat belongs to one bot and one person, so its key
is ``<user>@<bot>`` and each bot sees it under the person's id; a group has one key for all. Message
numbers start anew in each chat, so code that takes them for unique is caught.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from agentsup.fakes.telegram.journal import Journal
from agentsup.fakes.telegram.refusals import Refused, bad, refused
from agentsup.fakes.telegram.rules import LIMITS, SILENT_UPDATES
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.files import HomeLock

Json = dict[str, Any]
_FIRST_USER: Final = 1001
_FIRST_SUPERGROUP: Final = -1_001_000_000_000
_IN_GROUP: Final = frozenset({"creator", "administrator", "member"})


def private_key(user_id: int, bot_id: int) -> str:
    """The key of the private chat of a person with a bot."""
    return f"{user_id}@{bot_id}"


class World:
    """Documents and the events that tell of their changes."""

    def __init__(self, folder: Path, clock: Clock, chance: Callable[[int], Entropy]) -> None:
        """Continue what lies in ``folder``; ``chance`` makes a source from the state's number.

        Raises ``HomeLocked`` when another fake has the folder.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = HomeLock(folder / "lock")
        self._lock.acquire()
        self.files = folder / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(folder / "journal.jsonl")
        self.clock = clock
        self.chance = chance(self.journal.cursor)
        self._changed = asyncio.Event()
        self._bells: dict[int, asyncio.Event] = {}
        self._pending: dict[int, list[Json]] = {}
        self._shown_drafts: dict[str, dict[str, Json]] = {}
        for draft in self.journal.all("draft"):
            self._index_draft(draft)
        for update in self.journal.all("update"):
            self._pending.setdefault(update["bot_id"], []).append(update)

    def close(self) -> None:
        """Leave the folder to another; what was put is on disk already."""
        self.journal.close()
        self._lock.release()

    # -- time and numbers --------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The fake's wall time: the clock plus what the control plane advanced it by."""
        return self.clock.now_ms() + int(self.setting("clock_offset_ms", 0))

    def now_s(self) -> int:
        """Unix time in whole seconds."""
        return self.now_ms() // 1000

    def setting(self, name: str, default: Any) -> Any:
        """A stored setting."""
        found = self.journal.get("setting", name)
        return default if found is None else found["value"]

    def set_setting(self, name: str, value: Any) -> None:
        """Store a setting."""
        self.put("setting", name, {"value": value})

    def number(self, name: str, first: int = 1) -> int:
        """The next number of a named sequence."""
        value = int(self.setting(f"number.{name}", first))
        self.journal.put("setting", f"number.{name}", {"value": value + 1})
        return value

    # -- changes -----------------------------------------------------------------------------------

    def put(self, kind: str, key: str | int, document: Json) -> None:
        """Store a document and wake whoever waits for a change."""
        self.journal.put(kind, key, document)
        self.wake()

    def wake(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def next_change(self) -> None:
        """Return after the next change."""
        await self._changed.wait()

    # -- bots and people ---------------------------------------------------------------------------

    def add_bot(self, token: str, **facts: Any) -> Json:
        """Register a bot, or change the facts of the one with this token."""
        known = self.bot_by_token(token)
        if known is None:
            head = token.partition(":")[0]
            if not head.isdigit():
                raise bad("a token looks like 123456:secret")
            known = {
                "id": int(head),
                "token": token,
                "username": f"bot{head}_bot",
                "first_name": f"Bot {head}",
                "can_read_all_group_messages": False,
                "has_topics_enabled": False,
                "can_manage_bots": False,
                "manager_id": 0,
                "owner_id": 0,
                "next_update_id": self._random_update_id(),
                "last_update_ms": self.now_ms(),
                "allowed_updates": None,
                "commands": {},
                "texts": {},
                "menu_buttons": {},
                "revoked": False,
            }
        known.update({name: value for name, value in facts.items() if value is not None})
        self.put("bot", known["id"], known)
        return known

    def bot_by_token(self, token: str) -> Json | None:
        """The bot of a token, or None."""
        bot = self.journal.get("bot", token.partition(":")[0])
        return bot if bot is not None and bot["token"] == token else None

    def bot_user(self, bot: Json) -> Json:
        """The bot as a User."""
        return {
            "id": bot["id"],
            "is_bot": True,
            "first_name": bot["first_name"],
            "username": bot["username"],
        }

    def user(self, user_id: int) -> Json:
        """A person's or a bot's User. Raises ``Refused`` for an unknown id."""
        person = self.journal.get("user", user_id)
        if person is not None:
            return {name: value for name, value in person.items() if name != "is_deactivated"}
        bot = self.journal.get("bot", user_id)
        if bot is None:
            raise refused("no user")
        return self.bot_user(bot)

    def add_user(self, **facts: Any) -> Json:
        """Make a person, or change the one with the given id."""
        user_id = int(facts.pop("id", 0) or self.number("user", _FIRST_USER))
        person = self.journal.get("user", user_id) or {
            "id": user_id,
            "is_bot": False,
            "first_name": f"Person {user_id}",
            "language_code": "en",
        }
        person = {**person, **{name: value for name, value in facts.items() if value is not None}}
        self.put("user", user_id, person)
        return person

    # -- chats -------------------------------------------------------------------------------------

    def add_group(self, kind: str, title: str, members: dict[str, str], **facts: Any) -> Json:
        """Make a group or supergroup; ``members`` are statuses by id."""
        base = -1 if kind == "group" else _FIRST_SUPERGROUP
        chat_id = base - self.number(kind, 0) if kind != "group" else -self.number(kind, 1)
        chat = {
            "key": str(chat_id),
            "id": chat_id,
            "type": kind,
            "title": title,
            "is_forum": False,
            "members": members,
            "topics": {},
            "next_message_id": 1,
            "migrated_to": None,
            **facts,
        }
        self.put("chat", chat["key"], chat)
        return chat

    def private_chat(self, user_id: int, bot_id: int) -> Json:
        """The private chat of a person with a bot, made on first use."""
        key = private_key(user_id, bot_id)
        found = self.journal.get("chat", key)
        if found is None:
            self.user(user_id)
            found = {
                "key": key,
                "id": user_id,
                "type": "private",
                "user_id": user_id,
                "bot_id": bot_id,
                "is_blocked": False,
                "topics": {},
                "next_message_id": 1,
            }
            self.put("chat", key, found)
        return found

    def chat(self, key: str) -> Json:
        """A chat by its key. Raises ``Refused``."""
        found = self.journal.get("chat", key)
        if found is None:
            raise refused("no chat")
        return found

    def chat_for(self, bot: Json, chat_id: Any, *, write: bool = True) -> Json:
        """The chat that ``bot`` calls ``chat_id``. Raises ``Refused`` as the server does."""
        try:
            number = int(chat_id)
        except (TypeError, ValueError):
            raise refused("no chat") from None
        key = private_key(number, bot["id"]) if number > 0 else str(number)
        chat = self.journal.get("chat", key)
        if chat is None:
            raise refused("no chat")
        if chat["type"] == "private":
            if write and (self.journal.get("user", number) or {}).get("is_deactivated"):
                raise refused("deactivated")
            if write and chat["is_blocked"]:
                raise refused("blocked")
            return chat
        if chat["migrated_to"] is not None:
            found = refused("migrated")
            raise Refused(found.code, found.description, migrate_to_chat_id=chat["migrated_to"])
        status = chat["members"].get(str(bot["id"]))
        if status is None:
            raise refused("no chat")
        if status not in _IN_GROUP:
            why = "kicked" if status == "kicked" else "not member"
            raise refused(f"{why} {chat['type']}")
        return chat

    def shown_chat(self, chat: Json) -> Json:
        """The chat as a Chat."""
        if chat["type"] == "private":
            person = self.user(chat["user_id"])
            shown = {"id": chat["id"], "type": "private", "first_name": person["first_name"]}
            for name in ("last_name", "username"):
                if person.get(name):
                    shown[name] = person[name]
            return shown
        shown = {"id": chat["id"], "type": chat["type"], "title": chat["title"]}
        if chat["is_forum"]:
            shown["is_forum"] = True
        return shown

    def bots_in(self, chat: Json) -> Iterable[Json]:
        """The bots that are in a chat now."""
        if chat["type"] == "private":
            ids = [str(chat["bot_id"])]
        else:
            ids = [i for i, status in chat["members"].items() if status in _IN_GROUP]
        for bot_id in ids:
            bot = self.journal.get("bot", bot_id)
            if bot is not None:
                yield bot

    def is_admin(self, chat: Json, member_id: int) -> bool:
        """Whether a member is an administrator of a group."""
        status = chat.get("members", {}).get(str(member_id))
        return status in {"creator", "administrator"}

    # -- messages ----------------------------------------------------------------------------------

    def new_message(self, chat: Json, sender: Json, content: Json, thread_id: int = 0) -> Json:
        """Append a message to a chat and return its document."""
        message_id = chat["next_message_id"]
        chat["next_message_id"] = message_id + 1
        self.journal.put("chat", chat["key"], chat)
        message: Json = {
            "message_id": message_id,
            "from": sender,
            "chat": self.shown_chat(chat),
            "date": self.now_s(),
        }
        if thread_id:
            message |= {"message_thread_id": thread_id, "is_topic_message": True}
        message |= content
        record = {
            "chat": chat["key"],
            "message_id": message_id,
            "by": sender["id"],
            "is_bot": bool(sender["is_bot"]),
            "sent_ms": self.now_ms(),
            "message": message,
            "edits": 0,
            "deleted_ms": None,
            "reactions": {},
        }
        self.put_message(record)
        return record

    def put_message(self, record: Json) -> None:
        """Store a changed message."""
        self.put("message", f"{record['chat']}/{record['message_id']}", record)

    def add_history(self, record: Json, content: Json) -> None:
        """Keep what a message was before an edit; the caller stores the message afterwards."""
        key = f"{record['chat']}/{record['message_id']}#{record['edits']}"
        self.journal.put("history", key, {"until_ms": self.now_ms(), **content})
        record["edits"] += 1

    def history(self, record: Json) -> list[Json]:
        """Earlier versions of a message, before its edits."""
        key = f"{record['chat']}/{record['message_id']}"
        found = (self.journal.get("history", f"{key}#{n}") for n in range(record["edits"]))
        return [step for step in found if step is not None]

    def message(self, chat: Json, message_id: Any) -> Json | None:
        """A message that has not been deleted, or None."""
        found = self.journal.get("message", f"{chat['key']}/{message_id}")
        return found if found is not None and found["deleted_ms"] is None else None

    def messages(self, chat: Json, after: int = 0) -> Iterable[Json]:
        """Messages of a chat later than ``after``, in order, deleted ones too."""
        for number in range(after + 1, chat["next_message_id"]):
            found = self.journal.get("message", f"{chat['key']}/{number}")
            if found is not None:
                yield found

    def add_draft_text(self, draft: Json, text: str) -> None:
        """Keep one text of a draft; the caller stores the draft afterwards."""
        self.journal.put("draft_text", f"{draft['key']}#{draft['count']}", {"text": text})
        draft["count"] += 1

    def draft_texts(self, draft: Json) -> list[str]:
        """All texts that a draft had, in order."""
        key = draft["key"]
        found = (self.journal.get("draft_text", f"{key}#{n}") for n in range(draft["count"]))
        return [str(step["text"]) for step in found if step is not None]

    def put_draft(self, draft: Json) -> None:
        """Store a changed draft."""
        self._index_draft(draft)
        self.put("draft", draft["key"], draft)

    def _index_draft(self, draft: Json) -> None:
        shown = self._shown_drafts.setdefault(draft["chat"], {})
        if draft["is_shown"]:
            shown[draft["key"]] = draft
        else:
            shown.pop(draft["key"], None)

    def end_drafts(self, chat: Json) -> None:
        """A sent message takes the place of the drafts and the action shown in the chat."""
        for draft in list(self._shown_drafts.get(chat["key"], {}).values()):
            draft["is_shown"] = False
            self.put_draft(draft)
        self.journal.drop("action", chat["key"])

    # -- updates -----------------------------------------------------------------------------------

    def _random_update_id(self) -> int:
        return int(self.chance.uniform(100_000_000, 900_000_000))

    def add_update(self, bot: Json, kind: str, body: Json) -> Json | None:
        """Queue an update for a bot unless it does not want the kind; returns it."""
        allowed = bot["allowed_updates"]
        wanted = kind in allowed if allowed else kind not in SILENT_UPDATES
        return self.queue_update(bot, {kind: body}) if wanted else None

    def queue_update(self, bot: Json, update: Json) -> Json:
        """Queue a raw update, whatever it holds; gives it its id unless it has one."""
        now_ms = self.now_ms()
        if now_ms - bot["last_update_ms"] >= LIMITS["id_restart_s"] * 1000:
            bot["next_update_id"] = self._random_update_id()
        if "update_id" not in update:
            update = {"update_id": bot["next_update_id"], **update}
        bot["next_update_id"] = int(update["update_id"]) + 1
        bot["last_update_ms"] = now_ms
        self.journal.put("bot", bot["id"], bot)
        entry = {
            "key": f"{bot['id']}/{self.number('queued')}",
            "bot_id": bot["id"],
            "at_ms": now_ms,
            # A copy: what was queued does not change when the message is edited later.
            "update": json.loads(json.dumps(update)),
        }
        self._pending.setdefault(bot["id"], []).append(entry)
        self.put("update", entry["key"], entry)
        self.ring(bot["id"])
        return update

    def pending(self, bot: Json) -> list[Json]:
        """Queued updates of a bot, those past their day dropped."""
        queue = self._pending.setdefault(bot["id"], [])
        oldest_ms = self.now_ms() - LIMITS["update_s"] * 1000
        while queue and queue[0]["at_ms"] < oldest_ms:
            self.journal.drop("update", queue.pop(0)["key"])
        return queue

    def confirm(self, bot: Json, below: int) -> None:
        """Forget the updates with an id lower than ``below``."""
        queue = self.pending(bot)
        remaining = [entry for entry in queue if entry["update"]["update_id"] >= below]
        for entry in queue:
            if entry["update"]["update_id"] < below:
                self.journal.drop("update", entry["key"])
        if len(remaining) != len(queue):
            self._pending[bot["id"]] = remaining
            self.wake()

    def bell(self, bot_id: int) -> asyncio.Event:
        """Set when the next update of a bot comes."""
        return self._bells.setdefault(bot_id, asyncio.Event())

    def ring(self, bot_id: int) -> None:
        """Wake the long poll of a bot."""
        self._bells.pop(bot_id, asyncio.Event()).set()
