"""Files between people and agents: in to the workspace's inbox, out by the part that sent them.

Nobody names a path to read: what is asked for is a delivered part or a file of one's own message,
and what is opened must lie in the agent's workspace.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from aiohttp import hdrs, web

from agentsup.api import bodies, privacy, shapes
from agentsup.api.access import Access
from agentsup.api.route import Call, Route, reply
from agentsup.api.web.sweeps import OWNER
from agentsup.channels.received import FOLDER, Landing
from agentsup.channels.upload import UploadFile, inside, open_upload
from agentsup.kit.planted import Folder
from agentsup.kit.pool import NoAnswer
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.model.errors import BadRequest, Gone, NotFound, StoreUnavailable, TooLarge
from agentsup.model.message import Message, Part
from agentsup.store.database import Tx

CHUNK: Final = 256 * 1024
_KEPT_MS: Final = 7 * 86_400_000
"""An upload that nobody has sent for so long can't be sent any more."""
_SHOWN: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
"""Types that a page may show in place; everything else is bytes to save."""


# -- in --------------------------------------------------------------------------------------------


async def upload(call: Call) -> web.Response:
    """Take one file into the inbox of an agent's workspace."""
    query: bodies.UploadQuery = call.query
    limit = call.deps.limits.upload_bytes
    if (call.request.content_length or 0) > limit:
        raise _too_large(limit)
    entry = call.deps.directory.lookup(query.agent)
    workspace = call.deps.web.workspace(entry.name)
    run = partial(call.deps.web.files.run, key=entry.name)
    with call.admit("uploads"):
        await call.api.sweeps.over(entry.name)
        try:
            now_ms = call.deps.clock.now_ms()
            token = call.deps.entropy.token()
            make = partial(Landing, workspace, owner=OWNER, token=token)
            landing = await run(make, undo=Landing.close)
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
    return reply({"path": path, "name": query.name, "size": size}, 201)


async def _note(call: Call, agent_id: str, path: str) -> None:
    """Remember whose it is: what others have put there is not this person's to send or read."""
    now = call.deps.clock.now_ms()

    def step(tx: Tx) -> None:
        tx.execute("DELETE FROM web_uploads WHERE at < ?", (now - _KEPT_MS,))
        tx.execute(
            "INSERT OR REPLACE INTO web_uploads (agent_id, path, uploader, at) VALUES (?, ?, ?, ?)",
            (agent_id, path, _uploader(call), now),
        )

    await call.deps.web.database.write(step, name="web.upload")


def _uploader(call: Call) -> str:
    by = call.still_by()
    return f"{by.kind}:{by.subject}"


async def _receive(call: Call, out: IO[bytes], limit: int, agent: str) -> int:
    """Write the body to `out`; refuses what comes too slowly or is too large."""
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
    return TooLarge(f"the file is over the limit of {limit // 1_048_576} MB", limit=limit)


async def attached(
    call: Call, entry: DirectoryEntry, files: Sequence[tuple[str, str]]
) -> tuple[Part, ...]:
    """Files that this person has uploaded, given as (path, name), as parts of a message.

    Raises `BadRequest`.
    """
    if not files:
        return ()
    agent, uploader = entry.name, _uploader(call)
    workspace = call.deps.web.workspace(agent)
    own = await call.deps.web.database.read(
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
    except NoAnswer as error:
        raise StoreUnavailable(f"the workspace of {agent} does not answer: {error}") from None


def _is_file(workspace: Path, path: str) -> bool:
    try:
        return stat.S_ISREG(Folder(workspace).stat(path).st_mode)
    except OSError:
        return False


# -- out -------------------------------------------------------------------------------------------


async def delivered(call: Call) -> web.StreamResponse:
    """A file that an agent has sent."""
    number = call.named("outbox_id")
    row = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        row = await call.deps.web.database.read(
            lambda reader: reader.one(
                "SELECT agent_id, channel, conversation,"
                " body ->> 'path' AS path, body ->> 'name' AS name"
                " FROM outbox WHERE outbox_id = ? AND kind = 'file' AND state = 'delivered'",
                (int(number),),
            ),
            name="web.file",
        )
    if row is None:
        raise NotFound(f"no file was sent under the number {number[:40]}")
    privacy.check_sees(call.by, row["channel"], row["conversation"])
    return await _send(call, row["agent_id"], str(row["path"]), str(row["name"] or ""))


async def sent(call: Call) -> web.StreamResponse:
    """A file of a person's message."""
    message: Message = await call.deps.mailbox.get(call.named("id"))
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
            async with asyncio.timeout(call.deps.limits.stall_s):
                await response.write(piece)
        await response.write_eof()
        return response
    except TimeoutError:
        # Whoever still wants it asks again; the place is not held for a reader that takes nothing.
        raise ConnectionError("the reader of the file takes nothing any more") from None
    finally:
        handle.close()  # a descriptor that was only read: nothing is written back


def _open(call: Call, entry: DirectoryEntry, path: str) -> tuple[IO[bytes], int]:
    """Open a file of the workspace; no link is followed. Blocks. Raises `OSError`."""
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


ROUTES = (
    Route(
        "POST",
        "/web/uploads",
        upload,
        "Take a file into an agent's inbox; the body is the file",
        {201: shapes.Uploaded},
        access=Access.TALK,
        query=bodies.UploadQuery,
        takes_bytes=True,
        takes_work=True,
        refusals=(404, 410, 413, 429),
    ),
    Route(
        "GET",
        "/web/files/{outbox_id}",
        delivered,
        "A file that an agent has sent, by its `outbox_id`",
        {200: "application/octet-stream"},
        access=Access.LOOK,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/web/sent/{id}/{number}",
        sent,
        "A file of a person's message, counted from 0",
        {200: "application/octet-stream"},
        access=Access.LOOK,
        refusals=(404, 410),
    ),
)
