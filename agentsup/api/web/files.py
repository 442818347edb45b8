"""Files between people and agents: uploads to the workspace's inbox, and downloads.

No request names a path to read. It names a delivered part or a file of a message, and the file must
lie in the agent's workspace.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from aiohttp import hdrs, web

from agentsup.api.documents import bodies
from agentsup.api.documents.web import Uploaded
from agentsup.api.http import privacy
from agentsup.api.http.access import Access
from agentsup.api.http.connections import OWNER
from agentsup.api.http.dependencies import MIB
from agentsup.api.http.route import Call, get, post
from agentsup.channels.core.files import FOLDER, InboxFolder, UploadFile, inside, open_upload
from agentsup.kit.pool import PoolTimeout
from agentsup.kit.safe_files import GuardedFolder, PathEscapes
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.errors import (
    BadRequest,
    Gone,
    NotFound,
    QuotaExceeded,
    StoreUnavailable,
    TooLarge,
)
from agentsup.model.message import Message, Part
from agentsup.store import Tx

CHUNK: Final = 256 * 1024
_UPLOAD_LIFE_MS: Final = 7 * 86_400_000
"""An upload that no message has sent within this time can't be sent any more."""
_SHOWN: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
"""Types that a page may show inline; every other type is served as bytes to save."""


# -- in --------------------------------------------------------------------------------------------


@post(
    "/web/uploads",
    201,
    access=Access.TALK,
    takes_bytes=True,
    takes_work=True,
    refusals=(404, 410, 413, 429),
)
async def upload(call: Call, query: bodies.UploadQuery) -> Uploaded:
    """Take a file into an agent's inbox; the body is the file."""
    limit = call.deps.limits.upload_bytes
    if (call.request.content_length or 0) > limit:
        raise _too_large(limit)
    entry = call.deps.directory.lookup(query.agent)
    workspace = call.deps.web.workspace(entry.name)
    run = partial(call.deps.web.files.run, key=entry.name)
    with call.admit("uploads"):
        await call.api.sweeps.over(entry.name)
        try:
            limit = min(limit, await _room(call, entry, run))
            now_ms = call.deps.clock.now_ms()
            token = call.deps.entropy.token()
            make = partial(InboxFolder, workspace, owner=OWNER, token=token)
            landing = await run(make, undo=InboxFolder.close)
            try:
                size = await _receive(call, landing.out, limit, entry.name)
                to = await run(partial(landing.keep, query.name, now_ms=now_ms))
            finally:
                await run(landing.close)
        except ConnectionError:
            raise  # the sender has gone; nothing is wrong here
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreUnavailable(f"the file can't be kept in the workspace: {why}") from error
    path = f"{FOLDER}/{to.name}"
    await _note(call, entry.agent_id, path)
    return Uploaded(path=path, name=query.name, size=size)


async def _room(call: Call, entry: DirectoryEntry, run: Callable[..., Awaitable[Any]]) -> int:
    """Bytes that this person may still put into the agent's inbox. Raises ``QuotaExceeded``.

    Files that were uploaded within seven days count, as long as they are in the inbox.
    """
    limits, uploader = call.deps.limits, _uploader(call)
    since = call.deps.clock.now_ms() - _UPLOAD_LIFE_MS
    rows = await call.deps.database.read(
        lambda reader: reader.all(
            "SELECT path FROM web_uploads WHERE agent_id = ? AND uploader = ? AND at >= ?"
            " ORDER BY at DESC LIMIT ?",
            (entry.agent_id, uploader, since, 2 * limits.stored_uploads),
        ),
        name="web.uploads_kept",
    )
    sizes = partial(_sizes, call.deps.web.workspace(entry.name), [str(row[0]) for row in rows])
    sizes_stored: list[int] = await run(sizes)
    left = limits.stored_upload_bytes - sum(sizes_stored)
    if len(sizes_stored) >= limits.stored_uploads or left < max(
        1, call.request.content_length or 0
    ):
        raise QuotaExceeded(
            f"{len(sizes_stored)} files of yours with {sum(sizes_stored) // MIB} MB lie in the folder"
            f" {FOLDER!r} of {entry.name}, which keeps {limits.stored_uploads} with"
            f" {limits.stored_upload_bytes // MIB} MB for each person. Have the agent remove those"
            " that are not needed; what is older than seven days does not count",
            files=len(sizes_stored),
            bytes=sum(sizes_stored),
        )
    return left


def _sizes(workspace: Path, paths: Sequence[str]) -> list[int]:
    """The sizes of those files that exist. Blocks."""
    folder, found = GuardedFolder(workspace), []
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, PathEscapes):
            found.append(folder.stat(path).st_size)
    return found


async def _note(call: Call, agent_id: str, path: str) -> None:
    """Store who uploaded the file: a person may not send files that others put in the inbox."""
    now = call.deps.clock.now_ms()

    def step(tx: Tx) -> None:
        tx.execute("DELETE FROM web_uploads WHERE at < ?", (now - _UPLOAD_LIFE_MS,))
        tx.execute(
            "INSERT OR REPLACE INTO web_uploads (agent_id, path, uploader, at) VALUES (?, ?, ?, ?)",
            (agent_id, path, _uploader(call), now),
        )

    await call.deps.database.write(step, name="web.upload")


def _uploader(call: Call) -> str:
    by = call.still_by()
    return f"{by.kind}:{by.subject}"


async def _receive(call: Call, out: IO[bytes], limit: int, agent: str) -> int:
    """Write the body to ``out`` and return its size.

    Raises ``BadRequest`` if the body stalls, ``TooLarge`` if it is over ``limit`` bytes.
    """
    size = 0
    while piece := await _next_piece(call):
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        await call.deps.web.files.run(partial(out.write, piece), key=agent)
    await call.deps.web.files.run(out.flush, key=agent)
    return size


async def _next_piece(call: Call) -> bytes:
    try:
        async with asyncio.timeout(call.deps.limits.stall_s):
            return await call.request.content.read(CHUNK)
    except TimeoutError:
        raise BadRequest("the file stopped coming; send it again", field="body") from None


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the file is over the limit of {limit // MIB} MB", limit=limit)


async def attached(
    call: Call, entry: DirectoryEntry, files: Sequence[tuple[str, str]]
) -> tuple[Part, ...]:
    """Files that this person has uploaded, given as (path, name), as parts of a message.

    Raises ``BadRequest`` for any other file, ``StoreUnavailable`` if the workspace does not answer.
    """
    if not files:
        return ()
    agent, uploader = entry.name, _uploader(call)
    workspace = call.deps.web.workspace(agent)
    own = await call.deps.database.read(
        lambda reader: {
            row["path"]
            for row in reader.all(
                "SELECT path FROM web_uploads WHERE agent_id = ? AND uploader = ?",
                (entry.agent_id, uploader),
            )
        },
        name="web.uploads",
    )

    def check() -> tuple[Part, ...]:
        for path, _ in files:
            folder, _, name = path.partition("/")
            is_plain = folder == FOLDER and "/" not in name and name not in ("", ".", "..")
            if path not in own or not is_plain or not _is_file(workspace, path):
                raise BadRequest(f"{path!r} is no uploaded file of {agent}", field="files")
        return tuple(Part("file", path=path, name=name) for path, name in files)

    try:
        return await call.deps.web.files.run(check, key=agent)
    except PoolTimeout as error:
        raise StoreUnavailable(f"the workspace of {agent} does not answer: {error}") from None


def _is_file(workspace: Path, path: str) -> bool:
    try:
        return stat.S_ISREG(GuardedFolder(workspace).stat(path).st_mode)
    except OSError:
        return False


# -- out -------------------------------------------------------------------------------------------


@get("/web/files/{outbox_id}", "application/octet-stream", access=Access.LOOK, refusals=(404, 410))
async def delivered(call: Call) -> web.StreamResponse:
    """A file that an agent has sent, by its `outbox_id`."""
    number = call.named("outbox_id")
    part = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        part = await call.deps.database.read(
            lambda reader: outbox.delivered_file(reader, int(number)), name="web.file"
        )
    if part is None:
        raise NotFound(f"no file was sent under the number {number[:40]}")
    privacy.check_sees(call.by, part.channel, part.conversation)
    path, name = part.body.get("path"), part.body.get("name") or ""
    return await _send(call, part.agent_id, str(path), str(name))


@get("/web/sent/{id}/{number}", "application/octet-stream", access=Access.LOOK, refusals=(404, 410))
async def sent(call: Call) -> web.StreamResponse:
    """A file of a person's message, counted from 0."""
    message: Message = await call.deps.mailbox.messages.get(call.named("id"))
    if not privacy.is_own(call.by, message):
        to = message.deliver_to
        privacy.check_sees(call.by, to.channel, to.conversation)
    parts = [part for part in message.parts if part.type == "file"]
    number = call.named("number")
    if not (number.isascii() and number.isdigit() and int(number[:9]) < len(parts)):
        raise NotFound(f"the message {message.message_id} has no file {number[:40]}")
    part = parts[int(number[:9])]
    return await _send(call, message.agent_id, part.path, part.name)


async def _send(call: Call, agent_id: str, path: str, name: str) -> web.StreamResponse:
    entry = call.deps.directory.by_id(agent_id)
    if entry is None:
        raise Gone("the agent of this file was removed")
    run = partial(call.deps.web.files.run, key=entry.name)
    try:
        handle, size = await run(
            partial(_open, call, entry, path), undo=lambda made: made[0].close()
        )
    except OSError:
        raise Gone("the file is no longer in the agent's workspace") from None
    try:
        name = name or Path(path).name
        response = web.StreamResponse(headers=_headers(name))
        response.content_length = size
        await response.prepare(call.request)
        left = size
        while left > 0:
            piece = await run(partial(handle.read, min(CHUNK, left)))
            if not piece:
                raise ConnectionError("the file became shorter while it was sent")
            left -= len(piece)
            await call.write(response, piece)
        await response.write_eof()
        return response
    except TimeoutError:
        # The client can ask again; a reader that takes nothing must not keep the file open.
        raise ConnectionError("the reader of the file takes nothing any more") from None
    finally:
        handle.close()  # a descriptor that was only read: nothing is written back


def _open(call: Call, entry: DirectoryEntry, path: str) -> tuple[IO[bytes], int]:
    """Open a file of the workspace; no link is followed. Blocks. Raises ``OSError``."""
    workspace = call.deps.web.workspace(entry.name)
    below = inside(workspace, path)
    handle = open_upload(UploadFile(workspace / below, below, workspace=workspace))
    return handle, handle.seek(0, 2) - handle.seek(0)


def _headers(name: str) -> dict[str, str]:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in " ._-") else "_" for c in name)[:100]
    media = _SHOWN.get(name.rpartition(".")[2].lower(), "application/octet-stream")
    quoted = quote(name.encode("utf-8", "replace")[:300], safe="")
    return {
        hdrs.CONTENT_TYPE: media,
        hdrs.CONTENT_DISPOSITION: f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quoted}",
        "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        hdrs.CACHE_CONTROL: "private, no-store",
    }
