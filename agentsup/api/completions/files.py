"""Files in a request of an OpenAI client: read from its parts, and put into the agent's inbox."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agentsup.api.http.route import Call
from agentsup.kit.planted import GuardedFolder
from agentsup.model.errors import BadRequest, StoreUnavailable
from agentsup.model.message import Part

MOST_FILES: Final = 10
_FOLDER: Final = "inbox"
_NAME_CHARS: Final = 60
_DATA: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.ASCII)
_ENDINGS: Final = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/webp": "webp",
    "image/gif": "gif",
    "application/pdf": "pdf",
    "text/plain": "txt",
}


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file of a request."""

    name: str
    digest: str
    data: bytes = field(repr=False)

    @property
    def mark(self) -> str:
        """The mark of the file in the text of the conversation, by which that is recognised."""
        return f"[file {self.name} {self.digest[:16]}]"

    @property
    def path(self) -> str:
        """Its place in the workspace: the same for the same content, so that a request that is
        repeated adds nothing."""
        return f"{_FOLDER}/v1-{self.digest[:16]}-{self.name}"


def file_of(part: Mapping[str, Any], where: str) -> GivenFile | None:
    """The file that a content part holds; None for a part of another type. Raises ``BadRequest``."""
    kind = part.get("type")
    given = part.get(kind) if isinstance(kind, str) else None
    if kind not in {"image_url", "file", "input_audio"}:
        return None
    if not isinstance(given, Mapping):
        raise _wrong(where, f"{kind} is no object")
    match kind:
        case "image_url":
            media, data = _of_url(given.get("url"), where)
            return _made(f"picture.{_ENDINGS.get(media, 'bin')}", data)
        case "file":
            media, data = _of_url(given.get("file_data"), where)
            return _made(str(given.get("filename") or f"file.{_ENDINGS.get(media, 'bin')}"), data)
        case _:
            ending = str(given.get("format") or "wav")
            return _made(f"voice.{ending}", _decoded(given.get("data"), where))


def _of_url(url: Any, where: str) -> tuple[str, bytes]:
    found = _DATA.match(url[:200]) if isinstance(url, str) else None
    if found is None:
        raise _wrong(where, "a file is sent as data:TYPE;base64,…; addresses are not fetched")
    return found[1] or "", _decoded(url[found.end() :], where)


def _decoded(text: Any, where: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise _wrong(where, "the file is empty, or its base64 is damaged")
    return data


def _made(name: str, data: bytes) -> GivenFile:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_NAME_CHARS:].lstrip(".-") or "file"
    return GivenFile(plain, hashlib.sha256(data).hexdigest(), data)


def _wrong(where: str, why: str) -> BadRequest:
    return BadRequest(f"{where}: {why}", field="messages")


async def put(call: Call, agent: str, files: Sequence[GivenFile]) -> tuple[Part, ...]:
    """Write the files into the agent's inbox; return them as parts of its message.

    Raises ``StoreUnavailable`` if the workspace does not take them.
    """
    if not files:
        return ()
    folder = GuardedFolder(call.deps.web.workspace(agent))
    run = partial(call.deps.web.files.run, key=agent)
    try:
        for each in files:
            await run(partial(folder.renew, each.path, each.data))
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(f"the file can't be kept in the workspace: {why}") from error
    return tuple(Part("file", path=each.path, name=each.name) for each in files)
