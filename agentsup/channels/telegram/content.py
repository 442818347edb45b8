"""Reads what a message holds: its text, files and other content, and what it replies to. Pure.

A message, the message that it replies to, and a reply across chats have the same fields for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentsup.channels.core.receiving.raw import (
    Json,
    Malformed,
    int_or_none,
    is_int,
    list_of,
    maybe_list,
    maybe_of,
    maybe_text,
    text_of,
)
from agentsup.channels.core.receiving.texts import Attachment, Quoted
from agentsup.channels.telegram.entities import marks_of, written_out
from agentsup.channels.telegram.rich import read_rich

UNREADABLE = {
    "story": "story",
    "paid_media": "paid_media",
    "game": "game",
    "invoice": "invoice",
    "giveaway": "giveaway",
    "giveaway_winners": "giveaway",
}
"""Content that holds nothing for an agent, and the key of the text that says so."""
_FILES = {
    "document": "file",
    "audio": "audio.mp3",
    "voice": "voice.ogg",
    "video": "video.mp4",
    "live_photo": "live-photo.mp4",
    "video_note": "video-note.mp4",
    "animation": "animation.mp4",
    "sticker": "sticker.webp",
}
_READ = {"location", "venue", "checklist", "contact", "poll", "dice", "photo", "rich_message"}


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


FRAME = _fields(
    """
    message_id message_thread_id direct_messages_topic from sender_chat sender_boost_count
    sender_business_bot sender_tag date guest_query_id guest_bot_caller_user
    guest_bot_caller_chat business_connection_id chat forward_origin forward_from
    forward_from_chat forward_from_message_id forward_signature forward_sender_name forward_date
    is_topic_message is_automatic_forward reply_to_message external_reply quote reply_to_story
    reply_to_checklist_task_id reply_to_poll_option_id via_bot edit_date has_protected_content
    is_from_offline is_paid_post media_group_id author_signature paid_star_count text entities
    caption caption_entities link_preview_options suggested_post_info effect_id
    show_caption_above_media has_media_spoiler reply_markup ephemeral_message_id
    receiver_user_id origin
    """
)
"""Fields of a message around its content."""
SERVICE = _fields(
    """
    new_chat_members left_chat_member new_chat_title new_chat_photo delete_chat_photo
    group_chat_created supergroup_chat_created channel_chat_created
    message_auto_delete_timer_changed migrate_to_chat_id migrate_from_chat_id pinned_message
    successful_payment refunded_payment users_shared chat_shared gift unique_gift
    gift_upgrade_sent connected_website write_access_allowed passport_data
    proximity_alert_triggered boost_added chat_background_set checklist_tasks_done
    checklist_tasks_added direct_message_price_changed forum_topic_created forum_topic_edited
    forum_topic_closed forum_topic_reopened general_forum_topic_hidden
    general_forum_topic_unhidden giveaway_created giveaway_completed paid_message_price_changed
    suggested_post_approved suggested_post_approval_failed suggested_post_declined
    suggested_post_paid suggested_post_refunded video_chat_scheduled video_chat_started
    video_chat_ended video_chat_participants_invited web_app_data chat_owner_changed
    chat_owner_left poll_option_added poll_option_deleted managed_bot_created
    community_chat_added community_chat_removed community_chat_joined
    """
)
"""Notes of the platform about a chat. Nobody expects an answer to them."""


@dataclass(frozen=True, slots=True)
class BotUser:
    """The bot itself. ``hears_groups``: privacy mode is off; None if the platform does not say."""

    bot_id: int
    username: str
    hears_groups: bool | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message."""

    text: str = ""
    """With what only its entities say, see ``entities.written_out``."""
    mentioned: bool = False
    """The bot is mentioned."""
    target: str = ""
    """The bot to which a command is given, by its user name."""
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    unreadable: str = ""
    """The kind of content that cannot be read, or empty."""


def content_of(body: Json, me: BotUser) -> Content:
    """Read the content of a message. Raises ``Malformed``."""
    plain = text_of(body, "text") or text_of(body, "caption")
    own, attachments = me.username.casefold(), _attachments(body)
    marks = marks_of(plain, [*list_of(body, "entities"), *list_of(body, "caption_entities")])
    others = [m for m in marks if maybe_of(m.raw, "user").get("id") != me.bot_id]
    text, mentioned = written_out(plain, others), len(others) < len(marks)
    mentioned = mentioned or any(
        m.kind == "mention" and m.text.casefold() == f"@{own}" for m in marks
    )
    command = next((m.text for m in marks if m.kind == "bot_command" and m.offset == 0), "")
    target, unreadable = command.partition("@")[2].casefold(), ""
    if "rich_message" in body:
        rich = read_rich(maybe_of(body, "rich_message"))
        text = "\n\n".join(filter(None, (text, rich.text)))
        mentioned = mentioned or me.bot_id in rich.user_ids or _names(rich.text, own)
        if found := re.match(r"/\w+@(\w+)", text):
            target = found[1].casefold()
        attachments += [each for kind, raw in rich.media for each in _medium(kind, raw)]
        unreadable = rich.unknown
    notes = _notes(body)
    if not unreadable:
        is_empty = not (text.strip() or attachments or notes)
        unreadable = next((each for each in UNREADABLE if each in body), "")
        unreadable = unreadable or (_unknown(body) if is_empty else "")
    return Content(text, mentioned, target, tuple(attachments), tuple(notes), unreadable)


def _names(text: str, username: str) -> bool:
    """Whether the bot's name stands in a text that comes without entities."""
    pattern = rf"(?<![\w@])@{re.escape(username)}(?!\w)"
    return bool(username) and re.search(pattern, text, re.IGNORECASE) is not None


def _unknown(body: Json) -> str:
    """Return the name of the content that nobody here knows, or empty."""
    if not SERVICE.isdisjoint(body):
        return ""
    known = FRAME | _FILES.keys() | _READ | UNREADABLE.keys()
    return next((each for each in body if each not in known), "")


# -- what it replies to ----------------------------------------------------------------------------


def quoted_of(body: Json, me: BotUser) -> Quoted | None:
    """Return the message to which a message replies, in the same or another chat. None: to none."""
    quote, reply = maybe_of(body, "quote"), maybe_of(body, "reply_to_message")
    part = maybe_text(quote, "text")
    part = written_out(part, marks_of(part, maybe_list(quote, "entities")))
    if is_int(reply.get("message_id")):
        if "forum_topic_created" in reply:
            return None  # every message of a topic "replies" to its beginning
        sender = maybe_of(reply, "from")
        who = maybe_text(sender, "first_name") or maybe_text(sender, "username")
        is_ours = sender.get("id") == me.bot_id
        return _quoted(reply, me, str(reply["message_id"]), is_ours=is_ours, who=who, part=part)
    if external := maybe_of(body, "external_reply"):
        origin = maybe_of(external, "origin")
        is_ours = maybe_of(origin, "sender_user").get("id") == me.bot_id
        found = _quoted(external, me, "", is_ours=is_ours, who=origin_name(origin), part=part)
        unseen = "(a message of another chat, which can't be read from here)"
        return found if found.text or found.files else replace(found, text=unseen)
    if story := maybe_of(body, "reply_to_story"):
        chat = maybe_of(story, "chat")
        who = maybe_text(chat, "title") or maybe_text(chat, "first_name")
        return Quoted("", is_ours=False, who=who, text="(a story, which can't be read here)")
    return Quoted("", is_ours=False, text=part) if part else None


def _quoted(
    body: Json, me: BotUser, message_id: str, *, is_ours: bool, who: str, part: str
) -> Quoted:
    try:
        content = content_of(body, me)
    except Malformed:
        content = Content()
    text = part or "\n".join(filter(None, (content.text, *content.notes)))
    if not text and not content.attachments and content.unreadable:
        text = f"(content of the kind “{content.unreadable[:40]}”, which can't be read here)"
    return Quoted(message_id, is_ours=is_ours, who=who, text=text, files=content.attachments)


def forwarded_from(body: Json) -> str:
    """Return whose message was forwarded; empty if it is no forwarded one."""
    origin = body.get("forward_origin")
    return origin_name(origin) or "somebody" if isinstance(origin, Mapping) else ""


def origin_name(origin: Json) -> str:
    """Return the name of who wrote a message that comes from another chat; empty if unknown."""
    chat = maybe_of(origin, "chat") or maybe_of(origin, "sender_chat")
    return (
        maybe_text(maybe_of(origin, "sender_user"), "first_name")
        or maybe_text(chat, "title")
        or maybe_text(origin, "sender_user_name")
    )


# -- files and other content -----------------------------------------------------------------------


def _attachments(body: Json) -> list[Attachment]:
    found = _medium("photo", body["photo"]) if list_of(body, "photo") else []
    for kind in _FILES:
        # An animation comes with a document of the same content, a live photo with a photo.
        is_double = (kind == "document" and "animation" in body) or (
            kind == "live_photo" and bool(found)
        )
        if kind in body and not is_double:
            found += _medium(kind, body[kind])
    return found


def _medium(kind: str, raw: object) -> list[Attachment]:
    """Return the file of a field: an object, or for a photo a list of sizes."""
    if isinstance(raw, Mapping):
        return [_attachment(kind, raw, _FILES.get(kind, kind))]
    sizes = [each for each in raw if isinstance(each, Mapping)] if isinstance(raw, list) else []
    if not sizes:
        return []
    largest = max(sizes, key=lambda each: (each.get("width") or 0) * (each.get("height") or 0))
    return [_attachment(kind, largest, f"{kind}.jpg")]


def _attachment(kind: str, body: Json, name: str) -> Attachment:
    size = body.get("file_size")
    file_id = text_of(body, "file_id")
    if not file_id:
        raise Malformed(f"a {kind} without a file_id")
    return Attachment(kind, file_id, text_of(body, "file_name") or name, int_or_none(size))


def _notes(body: Json) -> list[str]:
    found = []
    if isinstance(location := body.get("location"), Mapping):
        spot = f"{location.get('latitude')}, {location.get('longitude')}"
        venue = maybe_of(body, "venue")
        named = [text_of(venue, "title"), text_of(venue, "address")]
        found.append(f"[place: {', '.join([*filter(None, named), spot])}]")
    if isinstance(listed := body.get("checklist"), Mapping):
        tasks = [text_of(t, "text") for t in list_of(listed, "tasks") if isinstance(t, Mapping)]
        found.append(f"[checklist: {text_of(listed, 'title')} ({', '.join(tasks)})]")
    if isinstance(contact := body.get("contact"), Mapping):
        name = f"{text_of(contact, 'first_name')} {text_of(contact, 'last_name')}".strip()
        found.append(f"[contact: {name}, {text_of(contact, 'phone_number')}]")
    if isinstance(poll := body.get("poll"), Mapping):
        options = [text_of(o, "text") for o in list_of(poll, "options") if isinstance(o, Mapping)]
        found.append(f"[poll: {text_of(poll, 'question')} ({', '.join(options)})]")
    if isinstance(dice := body.get("dice"), Mapping):
        found.append(f"[{text_of(dice, 'emoji')} {dice.get('value')}]")
    return found
