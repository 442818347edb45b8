"""Files: kept once on disk, named per bot by a file_id, downloadable for an hour by a path.

A ``file_id`` is valid for the bot that got it and for no other; a ``file_unique_id`` is the same for
all and opens nothing.
"""

from __future__ import annotations

import mimetypes
import struct
from pathlib import Path
from typing import Any, Final

from agentsup.fakes.telegram.refusals import refused
from agentsup.fakes.telegram.requests import Call, Upload
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World

_PREFIXES: Final = {"document": "BQ", "photo": "AgAC", "voice": "AwAC"}
_FOLDERS: Final = {"document": "documents", "photo": "photos", "voice": "voice"}


def store(world: World, kind: str, upload: Upload) -> Json:
    """Keep an upload; returns its document."""
    if not upload.data:
        raise refused("file empty")
    facts: Json = {}
    if kind == "photo":
        if len(upload.data) > LIMITS["photo_bytes"]:
            raise refused("file too big")
        width, height = _image_size(upload.data)
        facts = {"width": width, "height": height}
    number = world.number("file")
    suffix = Path(upload.name).suffix or mimetypes.guess_extension(upload.mime) or ".bin"
    if kind == "photo":
        suffix = ".jpg"
    unique = f"AQAD{number:08d}"
    mime = upload.mime
    if kind == "document" and mime == "application/octet-stream":
        mime = mimetypes.guess_type(upload.name)[0] or mime
    record = {
        "unique": unique,
        "kind": kind,
        "name": Path(upload.name).name,
        "mime": mime,
        "size": len(upload.data),
        "path": f"{_FOLDERS[kind]}/file_{number}{suffix}",
        **facts,
    }
    (world.files / unique).write_bytes(upload.data)
    world.put("file", unique, record)
    return record


def file_path(world: World, record: Json) -> Path:
    """The path of the bytes."""
    return world.files / str(record["unique"])


def _file_id(record: Json, bot_id: int) -> str:
    return f"{_PREFIXES[record['kind']]}{bot_id}-{record['unique']}"


def by_id(world: World, bot: Json, file_id: str) -> Json | None:
    """The file that a bot calls ``file_id``."""
    head, _, unique = file_id.partition("-")
    record = world.journal.get("file", unique)
    if record is None or file_id != _file_id(record, bot["id"]) or not head:
        return None
    return record


def resolve(world: World, bot: Json, call: Call, kind: str, value: Any) -> Json:
    """The file meant by a parameter: an upload (``attach://part``) or a known file_id."""
    text = str(value)
    if text.startswith("attach://"):
        upload = call.files.get(text.removeprefix("attach://"))
        if upload is None:
            raise refused("no file", kind=kind)
        return store(world, kind, upload)
    if text.startswith(("http://", "https://")):
        raise refused("file url")
    record = by_id(world, bot, text)
    if record is None:
        raise refused("file identifier")
    if record["kind"] != kind:
        raise refused("file id")
    return record


def as_content(record: Json, bot_id: int, duration_s: int) -> Json:
    """The members of a message that hold the file, with the ids that ``bot_id`` may use."""
    shown: Json = {
        "file_id": _file_id(record, bot_id),
        "file_unique_id": record["unique"],
        "file_size": record["size"],
    }
    if record["kind"] == "photo":
        return {"photo": [shown | {"width": record["width"], "height": record["height"]}]}
    if record["kind"] == "voice":
        return {"voice": shown | {"duration": duration_s, "mime_type": record["mime"]}}
    return {"document": shown | {"file_name": record["name"], "mime_type": record["mime"]}}


def link(world: World, bot: Json, file_id: str) -> Json:
    """A File with its path, valid for an hour."""
    record = by_id(world, bot, file_id)
    if record is None:
        raise refused("file id")
    if record["size"] > LIMITS["download_bytes"]:
        raise refused("file too big")
    key = f"{bot['id']}/{record['path']}"
    until_ms = world.now_ms() + LIMITS["file_link_s"] * 1000
    world.put("link", key, {"unique": record["unique"], "until_ms": until_ms})
    return {
        "file_id": file_id,
        "file_unique_id": record["unique"],
        "file_size": record["size"],
        "file_path": record["path"],
    }


def linked(world: World, bot: Json, path: str) -> Path | None:
    """The file behind a download path, while the link is valid."""
    found = world.journal.get("link", f"{bot['id']}/{path}")
    if found is None or found["until_ms"] < world.now_ms():
        return None
    return world.files / str(found["unique"])


def _image_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG, GIF, JPEG, WebP or BMP. Raises ``Refused`` for anything else."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
    elif data[:6] in {b"GIF87a", b"GIF89a"} and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
    elif data[:2] == b"\xff\xd8":
        width, height = _jpeg_size(data)
    elif (data[:4], data[8:12]) == (b"RIFF", b"WEBP") or data[:2] == b"BM":
        width, height = 640, 480
    else:
        raise refused("image")
    if not width or not height or width + height > 10_000:
        raise refused("image")
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        length = struct.unpack(">H", data[at + 2 : at + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return int(width), int(height)
        at += 2 + length
    return 640, 480
