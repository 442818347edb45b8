"""The rules of the Bot API as data: methods with their fields, limits, emoji, update types.

Taken from the public documentation (core.telegram.org/bots/api). Only what is listed here exists
for the fake: another method is answered 404, another field is recorded as a violation. ``checks``,
``limits`` and the method modules read these tables; no number or list stands anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter: ``kind`` is int, bool, str, chat, list, dict or file; ``missing`` is the
    description of the refusal when a required one is absent or empty."""

    name: str
    kind: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its parameters and what it counts as for the rate limits (send, edit, draft,
    action, other)."""

    name: str
    fields: tuple[Field, ...]
    counts_as: str = "other"

    def field(self, name: str) -> Field | None:
        """The parameter called ``name``, or None if the documentation has none."""
        return next((field for field in self.fields if field.name == name), None)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` calls of the kinds ``counts`` in ``span_s``, plus ``burst`` allowed at once.

    ``slack_s`` is taken off the span, because requests arrive with jitter.
    """

    name: str
    scope: str
    counts: frozenset[str]
    span_s: float
    count: int
    burst: int
    slack_s: float


LIMITS: Final = {
    "text_units": 4096,
    "text_bytes": 1 << 15,
    "caption_units": 1024,
    "entities": 100,
    "callback_data_bytes": 64,
    "buttons": 100,
    "callback_answer_text": 200,
    "callback_query_s": 60,
    "delete_s": 48 * 3600,
    "update_s": 24 * 3600,
    "id_restart_s": 7 * 24 * 3600,
    "updates_per_poll": 100,
    "poll_s": 50,
    "offset_ahead": 10,
    "commands": 100,
    "created_bots": 20,
    "command_length": 32,
    "command_description": 256,
    "name": 64,
    "description": 512,
    "short_description": 120,
    "topic_name": 128,
    "reactions": 1,
    "album_min": 2,
    "album_max": 10,
    "upload_bytes": 50 * 1024 * 1024,
    "photo_bytes": 10 * 1024 * 1024,
    "download_bytes": 20 * 1024 * 1024,
    "file_link_s": 3600,
    "draft_s": 30,
    "action_s": 5,
    "retry_after_max_s": 300,
}

RATES: Final = (
    Rate("private", "private", frozenset({"send"}), 1.0, 1, 3, 0.05),
    Rate("private edits", "private", frozenset({"edit"}), 1.0, 1, 5, 0.05),
    Rate("group", "group", frozenset({"send", "edit"}), 60.0, 20, 0, 0.5),
    Rate("bot", "bot", frozenset({"send", "edit"}), 1.0, 30, 0, 0.1),
)

UPDATE_TYPES: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_connection",
    "business_message",
    "edited_business_message",
    "deleted_business_messages",
    "guest_message",
    "message_reaction",
    "message_reaction_count",
    "inline_query",
    "chosen_inline_result",
    "callback_query",
    "shipping_query",
    "pre_checkout_query",
    "purchased_paid_media",
    "poll",
    "poll_answer",
    "my_chat_member",
    "chat_member",
    "chat_join_request",
    "chat_boost",
    "removed_chat_boost",
    "managed_bot",
    "stopped_message_generation",
)
# Not sent unless a bot names them in allowed_updates.
SILENT_UPDATES: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})

CHAT_ACTIONS: Final = frozenset(
    {
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    }
)

ENTITY_TYPES: Final = frozenset(
    {
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "date_time",
    }
)

_EMOJI: Final = (
    "❤ 👍 👎 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 "
    "🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ "
    "😡"
)
REACTIONS: Final = frozenset(_EMOJI.split())


def _required(name: str, kind: str, missing: str = "") -> Field:
    return Field(name, kind, missing or f'parameter "{name}" is required')


def _optional(**kinds: str) -> tuple[Field, ...]:
    return tuple(Field(name, kind) for name, kind in kinds.items())


_CHAT = _required("chat_id", "chat", "chat_id is empty")
_EDITED = (
    *_optional(business_connection_id="str", inline_message_id="str"),
    _CHAT,
    _required("message_id", "int", "message identifier is not specified"),
)
_SENDING = (
    _CHAT,
    *_optional(
        business_connection_id="str",
        message_thread_id="int",
        direct_messages_topic_id="int",
        disable_notification="bool",
        protect_content="bool",
        allow_paid_broadcast="bool",
        message_effect_id="str",
        suggested_post_parameters="dict",
        reply_parameters="dict",
        reply_markup="dict",
    ),
)
_CAPTION = _optional(caption="str", parse_mode="str", caption_entities="list")
_TEXT = _optional(parse_mode="str", entities="list", link_preview_options="dict")
_TOPIC = (_CHAT, _required("message_thread_id", "int"))
_LANGUAGE = _optional(language_code="str")
_SCOPED = _optional(scope="dict", language_code="str")


def _media(name: str) -> Field:
    return _required(name, "file", f"there is no {name} in the request")


METHODS: Final = {
    method.name.lower(): method
    for method in (
        Method("getMe", ()),
        Method("getManagedBotToken", (_required("user_id", "int", "invalid user_id specified"),)),
        Method(
            "getUpdates",
            _optional(offset="int", limit="int", timeout="int", allowed_updates="list"),
        ),
        Method("deleteWebhook", _optional(drop_pending_updates="bool")),
        Method("getWebhookInfo", ()),
        Method(
            "sendMessage",
            (*_SENDING, _required("text", "str", "message text is empty"), *_TEXT),
            "send",
        ),
        Method(
            "sendMessageDraft",
            (
                _CHAT,
                _required("draft_id", "int"),
                *_optional(message_thread_id="int", text="str", parse_mode="str", entities="list"),
                *_optional(can_stop="bool", keep_on_stop="bool"),
            ),
            "draft",
        ),
        Method(
            "sendDocument",
            (
                *_SENDING,
                _media("document"),
                *_CAPTION,
                *_optional(thumbnail="file", disable_content_type_detection="bool"),
            ),
            "send",
        ),
        Method(
            "sendPhoto",
            (
                *_SENDING,
                _media("photo"),
                *_CAPTION,
                *_optional(show_caption_above_media="bool", has_spoiler="bool"),
            ),
            "send",
        ),
        Method(
            "sendVoice", (*_SENDING, _media("voice"), *_CAPTION, *_optional(duration="int")), "send"
        ),
        Method("sendMediaGroup", (*_SENDING[:-1], _required("media", "list")), "send"),
        Method(
            "sendChatAction",
            (
                _CHAT,
                _required("action", "str", "wrong parameter action in request"),
                *_optional(message_thread_id="int", business_connection_id="str"),
            ),
            "action",
        ),
        Method(
            "editMessageText",
            (
                *_EDITED,
                _required("text", "str", "message text is empty"),
                *_TEXT,
                *_optional(reply_markup="dict", rich_message="dict"),
            ),
            "edit",
        ),
        Method(
            "editMessageCaption",
            (*_EDITED, *_CAPTION, *_optional(reply_markup="dict", show_caption_above_media="bool")),
            "edit",
        ),
        Method("editMessageReplyMarkup", (*_EDITED, *_optional(reply_markup="dict")), "edit"),
        Method(
            "deleteMessage",
            (_CHAT, _required("message_id", "int", "message identifier is not specified")),
        ),
        Method(
            "deleteMessages",
            (_CHAT, _required("message_ids", "list", "message identifiers are not specified")),
        ),
        Method(
            "setMessageReaction",
            (
                _CHAT,
                _required("message_id", "int", "message to react not found"),
                *_optional(reaction="list", is_big="bool"),
            ),
        ),
        Method("getFile", (_required("file_id", "str", "file_id not specified"),)),
        Method(
            "answerCallbackQuery",
            (
                _required("callback_query_id", "str"),
                *_optional(text="str", show_alert="bool", url="str", cache_time="int"),
            ),
        ),
        Method("setMyCommands", (*_optional(commands="list"), *_SCOPED)),
        Method("getMyCommands", _SCOPED),
        Method("deleteMyCommands", _SCOPED),
        Method("setMyName", (*_optional(name="str"), *_LANGUAGE)),
        Method("getMyName", _LANGUAGE),
        Method("setMyDescription", (*_optional(description="str"), *_LANGUAGE)),
        Method("getMyDescription", _LANGUAGE),
        Method("setMyShortDescription", (*_optional(short_description="str"), *_LANGUAGE)),
        Method("getMyShortDescription", _LANGUAGE),
        Method("setChatMenuButton", _optional(chat_id="int", menu_button="dict")),
        Method("getChatMenuButton", _optional(chat_id="int")),
        Method("getChat", (_CHAT,)),
        Method("getChatMember", (_CHAT, _required("user_id", "int", "invalid user_id specified"))),
        Method("leaveChat", (_CHAT,)),
        Method(
            "createForumTopic",
            (
                _CHAT,
                _required("name", "str"),
                *_optional(icon_color="int", icon_custom_emoji_id="str"),
            ),
        ),
        Method("editForumTopic", (*_TOPIC, *_optional(name="str", icon_custom_emoji_id="str"))),
        Method("closeForumTopic", _TOPIC),
        Method("reopenForumTopic", _TOPIC),
        Method("deleteForumTopic", _TOPIC),
    )
}
