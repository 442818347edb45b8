"""Refusals of the Bot API: codes and texts, one table.

The texts are those that the public server gives; names in braces are replaced by facts.
"""

from __future__ import annotations

from typing import Any, Final

_PREFIX: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
}

REFUSALS: Final[dict[str, tuple[int, str]]] = {
    "unauthorized": (401, ""),
    "no method": (404, "method not found"),
    "too large": (413, ""),
    "conflict": (
        409,
        "terminated by other getUpdates request; make sure that only one bot instance is running",
    ),
    "flood": (429, "retry after {retry_after}"),
    "blocked": (403, "bot was blocked by the user"),
    "deactivated": (403, "user is deactivated"),
    "kicked group": (403, "bot was kicked from the group chat"),
    "kicked supergroup": (403, "bot was kicked from the supergroup chat"),
    "not member group": (403, "bot is not a member of the group chat"),
    "not member supergroup": (403, "bot is not a member of the supergroup chat"),
    "migrated": (400, "group chat was upgraded to a supergroup chat"),
    "no chat": (400, "chat not found"),
    "no user": (400, "user not found"),
    "no thread": (400, "message thread not found"),
    "no reply": (400, "message to be replied not found"),
    "no edit": (400, "message to edit not found"),
    "no delete": (400, "message to delete not found"),
    "no react": (400, "message to react not found"),
    "cannot edit": (400, "message can't be edited"),
    "cannot delete": (400, "message can't be deleted"),
    "too old to delete": (400, "message can't be deleted for everyone"),
    "not modified": (
        400,
        (
            "message is not modified: specified new message content and reply markup are exactly the "
            "same as a current content and reply markup of the message"
        ),
    ),
    "no text": (400, "there is no text in the message to edit"),
    "no caption": (400, "there is no caption in the message to edit"),
    "empty text": (400, "text must be non-empty"),
    "empty message": (400, "message text is empty"),
    "text too long": (400, "text is too long"),
    "message too long": (400, "message is too long"),
    "caption too long": (400, "message caption is too long"),
    "parse mode": (400, "unsupported parse_mode"),
    "entities": (400, "can't parse entities: {why}"),
    "entity": (400, "can't parse MessageEntity: {why}"),
    "entity place": (400, "{why}"),
    "reply markup json": (400, "can't parse reply keyboard markup JSON object"),
    "reply markup": (400, "object expected as reply markup"),
    "button": (400, "can't parse inline keyboard button: {why}"),
    "keyboard rows": (400, 'field "{field}" must be an Array of Arrays'),
    "inline only": (400, "inline keyboard expected"),
    "key": (400, "can't parse keyboard button: {why}"),
    "key text": (400, "keyboard button text must be non-empty"),
    "button data": (400, "BUTTON_DATA_INVALID"),
    "button text": (400, "inline keyboard button text must be non-empty"),
    "many buttons": (400, "reply markup is too long"),
    "reply json": (400, "can't parse reply parameters JSON object"),
    "reply object": (400, "object expected as reply parameters"),
    "json": (400, "can't parse {field} JSON object"),
    "media": (400, "can't parse InputMedia: {why}"),
    "album": (400, "{why}"),
    "no file": (400, "there is no {kind} in the request"),
    "file id": (400, "wrong file_id or the file is temporarily unavailable"),
    "file identifier": (
        400,
        "wrong remote file identifier specified: wrong string length",
    ),
    "file url": (400, "failed to get HTTP URL content"),
    "file empty": (400, "file must be non-empty"),
    "file too big": (400, "file is too big"),
    "image": (400, "IMAGE_PROCESS_FAILED"),
    "action": (400, "wrong parameter action in request"),
    "reaction": (400, "REACTION_INVALID"),
    "many reactions": (400, "REACTIONS_TOO_MANY"),
    "reaction shape": (400, "can't parse ReactionType: {why}"),
    "query": (
        400,
        "query is too old and response timeout expired or query ID is invalid",
    ),
    "answer too long": (400, "MESSAGE_TOO_LONG"),
    "draft peer": (400, "TEXTDRAFT_PEER_INVALID"),
    "draft id": (400, "RANDOM_ID_INVALID"),
    "commands json": (400, "can't parse commands JSON object"),
    "command": (400, "{why}"),
    "scope": (400, "can't parse BotCommandScope: {why}"),
    "language": (400, "invalid language code specified"),
    "profile": (400, "{why}"),
    "menu button": (400, "can't parse menu button: {why}"),
    "not a forum": (400, "the chat is not a forum"),
    "topic rights": (400, "not enough rights to manage topics"),
    "topic name": (400, "TOPIC_TITLE_EMPTY"),
    "topic name long": (400, "TOPIC_TITLE_TOO_LONG"),
    "topic colour": (400, "TOPIC_ICON_COLOR_INVALID"),
    "topic closed": (400, "TOPIC_CLOSED"),
    "topic same": (400, "TOPIC_NOT_MODIFIED"),
    "no access to bot": (400, "BOT_ACCESS_FORBIDDEN"),
    "bot id": (400, "BOT_INVALID"),
    "no manager": (400, "MANAGER_PERMISSION_MISSING"),
    "bot limit": (400, "BOT_CREATE_LIMIT_EXCEEDED"),
    "username": (400, "USERNAME_INVALID"),
    "username taken": (400, "USERNAME_OCCUPIED"),
    "key for bots": (400, "BUTTON_TYPE_INVALID"),
    "no member": (400, "member not found"),
    "private leave": (400, "chat member status can't be changed in private chats"),
    "field": (400, "{why}"),
}


class Refused(Exception):
    """A refusal, as the Bot API words it."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        """``parameters`` are the ResponseParameters (retry_after, migrate_to_chat_id)."""
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def body(self) -> dict[str, Any]:
        """The JSON document of the answer."""
        document: dict[str, Any] = {
            "ok": False,
            "error_code": self.code,
            "description": self.description,
        }
        if self.parameters:
            document["parameters"] = dict(self.parameters)
        return document


def refused(name: str, **facts: object) -> Refused:
    """The refusal called ``name`` in the table, with ``facts`` filled in."""
    code, text = REFUSALS[name]
    filled = text.format(**facts)
    return Refused(code, f"{_PREFIX[code]}: {filled}" if filled else _PREFIX[code])


def bad(why: str) -> Refused:
    """A Bad Request that quotes ``why``, for the texts that name a field."""
    return refused("field", why=why)


def flood(retry_after_s: int) -> Refused:
    """429 with the seconds to wait."""
    found = refused("flood", retry_after=retry_after_s)
    return Refused(found.code, found.description, retry_after=retry_after_s)
