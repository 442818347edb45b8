"""Reads the files that came with a message, for the model that gets it.

Each picture and each document is read by a program of its own (``program``), a few at a time. What
can't be read is said to the person and to the model, and the turn goes on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agentsup.agents.pipeline.marking import marked
from agentsup.catalogue import words
from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.engine import Picture, unseen
from agentsup.model.message import Message, Part

HEAD_BYTES = 64 * 1024
MAX_FILE_BYTES = 24 * 1024 * 1024
"""Longer files are not read for the model; it gets their path."""
MOST_FILES = 10
"""As many as an album has."""
MOST_PICTURE_BYTES = 4 * 1024 * 1024
"""All pictures of one message together, as they are sent to the model."""
MOST_CHARS = 60_000
"""All texts of one message's files together."""
LIMITS: Mapping[str, int] = {
    "side": 1568,
    "most_side": 2048,
    "picture_bytes": 1024 * 1024,
    "chars": MOST_CHARS,
    "pages": 50,
}
"""A picture has ``side`` pixels on its longer side; a JPEG may keep up to ``most_side``, since its
decoder halves it for less than scaling costs. Models scale larger ones down themselves."""

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".heic", ".heif", ".bmp", ".tiff"})
_DOCUMENTS = {".pdf": "pdf", ".docx": "office", ".odt": "office"}
_STARTS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"%PDF-", "pdf"),
    (b"OggS", "audio"),
    (b"ID3", "audio"),
    (b"\xff\xfb", "audio"),
    (b"\xff\xf3", "audio"),
)
_log = get_logger(__name__)
_PROGRAM: Final = str(Path(__file__).with_name("program.py"))
_LIBRARIES: Final = ("PIL", "pypdf")
_LIMIT_S: Final = 15.0
_AT_ONCE: Final = 2
_REASONS: Final = frozenset({"broken", "too_large", "locked", "no_text"})
_MOST_OUT: Final = 8 * 1024 * 1024

Reading = Callable[[str, bytes], Awaitable[bytes]]
"""Runs the program for a kind on the content of a file; returns its output. Raises ``Unreadable``."""
Hear = Callable[[str, bytes, Path], Awaitable[str]]
"""The text of a recording, by its path, its content and the workspace. Raises ``Unreadable``."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message's files as a model sees them. ``problems`` are sentences for the person."""

    pictures: tuple[Picture, ...] = ()
    text: str = ""
    problems: tuple[str, ...] = ()


NOTHING = Seen()


class Unreadable(Exception):
    """The file can't be read; ``reason`` is one of the texts ``media.*``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def kind_of(name: str, head: bytes) -> str:
    """JPEG, PNG, GIF or WEBP, ``pdf``, ``office``, ``audio``, ``text``; else empty: its path is all
    that is told. ``broken`` is what has the name of a picture or a document and is none."""
    ending = PurePosixPath(name).suffix.lower()
    found = next((kind for start, kind in _STARTS if head.startswith(start)), "")
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        found = "WEBP"
    if (head.startswith(b"RIFF") and head[8:12] == b"WAVE") or head[4:11] == b"ftypM4A":
        found = "audio"
    if found:
        return found
    if _DOCUMENTS.get(ending) == "office" and head.startswith(b"PK\x03\x04"):
        return "office"
    if ending in _PICTURES or ending in _DOCUMENTS:
        return "broken"
    return "text" if is_text(head) else ""


def is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters; the last character may be cut."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    return bool(text) and not any(ord(each) < 32 and each not in "\t\n\r\f" for each in text)


def about(part: Part) -> str:
    """The path of a file in its workspace, in one line."""
    return " ".join(part.path.split())


def headline(path: str, found: Mapping[str, object]) -> str:
    """The line above a document's text."""
    pages = f", pages 1-{found['pages']} of {found['of']}" if "of" in found else ""
    more = ", cut: the file has more" if found.get("cut") else ""
    return f"Content of {path}{pages}{more}:"


def transcript(message: Message, part: Part, text: str) -> str:
    """The note for the model with the text of a recording. A voice message is the person's own
    words; another recording may be anybody's."""
    if PurePosixPath(part.name).name.casefold().startswith("voice"):
        return f"[voice message {about(part)}, as it was heard:]\n{text}"
    said = f"Recording {about(part)}, as it was heard:\n{text}"
    return marked(said, name=about(part), call_id=message.message_id)


def problem_text(message: Message, part: Part, reason: str) -> str:
    """The sentence for the person, in their language."""
    name = " ".join((part.name or part.path).split())[:80]
    return words(message.principal.language)(f"media.{reason}", name=name)


@dataclass(frozen=True, slots=True)
class _Extracted:
    head: Mapping[str, Any]
    pictures: tuple[bytes, ...] = ()


async def read_apart(kind: str, data: bytes) -> bytes:
    """The output of ``program`` for one file. Raises ``Unreadable``."""
    libraries = _libraries() if kind != "office" else ()
    if libraries is None:
        raise Unreadable("no_library")
    argv = [sys.executable, "-I", "-S", "-B", _PROGRAM, kind]
    argv += [json.dumps(libraries), json.dumps(dict(LIMITS))]
    try:
        async with (
            asyncio.timeout(_LIMIT_S),
            await ProcessGroup.spawn(
                argv, env={}, cwd="/", stdin=data, gains_rights=False
            ) as program,
        ):
            out = await program.communicate(limit_bytes=_MOST_OUT)
    except TimeoutError:
        raise Unreadable("too_large") from None
    except OSError as error:
        _log.warning(f"the program that reads files can't be started: {error}")
        raise Unreadable("busy") from None
    if out.code or out.is_truncated:
        # It was ended by its limit of time or memory, or its decoder was broken by the file.
        _log.info(f"a file of kind {kind} could not be read: exit code {out.code}")
        raise Unreadable("too_large")
    return out.stdout


def _libraries() -> tuple[str, ...] | None:
    """The folders of the libraries; None if they are not installed."""
    found = [importlib.util.find_spec(name) for name in _LIBRARIES]
    origins = [spec.origin for spec in found if spec is not None and spec.origin]
    if len(origins) < len(_LIBRARIES):
        return None
    return tuple(dict.fromkeys(str(Path(each).parent.parent) for each in origins))


@dataclass(frozen=True, slots=True)
class MediaReader:
    """Looks at files of messages; shared by all agents."""

    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """The threads that open files of workspaces."""
    read: Reading = read_apart
    hear: Hear | None = None
    """Listens to recordings."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def of(self, message: Message, workspace: Path, *, sees: bool) -> Seen:
        """Return a message's files as the engine sees them; without ``sees`` it can't be shown
        pictures."""
        if message.sender_agent_id:
            return NOTHING  # another agent's files are in another workspace
        parts = [part for part in message.parts if part.type == "file"]
        if not parts:
            return NOTHING
        found = await self._all(parts[:MOST_FILES], workspace, sees=sees)
        return _seen(message, parts, found)

    async def _all(
        self, parts: Sequence[Part], workspace: Path, *, sees: bool
    ) -> list[_Extracted | Unreadable]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one(part, workspace, sees=sees), name=f"see:{part.path}")
                for part in parts
            ]
        return [task.result() for task in tasks]

    async def _one(self, part: Part, workspace: Path, *, sees: bool) -> _Extracted | Unreadable:
        """One file: its text, its pictures, or why not. Nothing for a kind that is not shown."""
        folder, key = GuardedFolder(workspace), workspace.parent.name
        try:
            async with self._slots:
                step = partial(folder.head, part.path, HEAD_BYTES)
                head, size = await self.files.run(step, key=key)
                kind = kind_of(part.path, head)
                if kind == "text":
                    text = head.decode("utf-8", "ignore")
                    return _Extracted({"text": text, "cut": size > len(head)})
                if kind.isupper() and not sees:
                    return _Extracted({"unseen": True})
                if not kind or (kind == "audio" and not self.hear):
                    return _Extracted({})
                if kind == "broken":
                    return Unreadable("broken")
                if size > MAX_FILE_BYTES:
                    return Unreadable("too_large")
                whole = partial(folder.head, part.path, MAX_FILE_BYTES)
                data, _ = await self.files.run(whole, key=key)
                if kind == "audio":
                    assert self.hear is not None
                    return _Extracted({"spoken": await self.hear(part.path, data, workspace)})
                return _result(await self.read(kind, data))
        except Unreadable as problem:
            return problem
        except OSError:
            return Unreadable("gone")


def _result(output: bytes) -> _Extracted | Unreadable:
    """Parse the program's output: its head, and the pictures behind it."""
    line, _, rest = output.partition(b"\n")
    pictures, at = [], 0
    try:
        head = json.loads(line)
        for length in head["pictures"]:
            pictures.append(rest[at : at + length])
            at += length
    except (ValueError, KeyError, TypeError):
        return Unreadable("broken")  # the file has broken its reader
    if problem := head.get("problem"):
        return Unreadable(problem if problem in _REASONS else "broken")
    return _Extracted(head, tuple(pictures))


def _seen(
    message: Message, parts: Sequence[Part], found: Sequence[_Extracted | Unreadable]
) -> Seen:
    """Put together what was found, within the limits of one message."""
    pictures: list[Picture] = []
    texts: list[str] = []
    problems: list[str] = []
    room, chars = MOST_PICTURE_BYTES, MOST_CHARS

    def missed(part: Part, reason: str) -> None:
        problems.append(problem_text(message, part, reason))
        texts.append(f"[{about(part)} could not be shown to you: {reason}]")

    for part, one in zip(parts, found, strict=False):
        if isinstance(one, Unreadable):
            missed(part, one.reason)
            continue
        if text := str(one.head.get("text", "")):
            cut = {"cut": True} if len(text) > chars else {}
            head = headline(about(part), {**one.head, **cut})
            body = f"{head}\n{text[:chars]}"
            chars -= min(chars, len(text))
            texts.append(marked(body, name=about(part), call_id=message.message_id))
        if one.head.get("unseen"):
            texts.append(unseen(about(part)))
        if spoken := str(one.head.get("spoken", "")):
            texts.append(transcript(message, part, spoken[:chars]))
            chars -= min(chars, len(spoken))
        for data in one.pictures:
            if len(data) > room:
                missed(part, "too_many")
                break
            room -= len(data)
            pictures.append(Picture(about(part), data))
    for part in parts[MOST_FILES:]:
        missed(part, "too_many")
    return Seen(tuple(pictures), "\n\n".join(texts), tuple(problems))
