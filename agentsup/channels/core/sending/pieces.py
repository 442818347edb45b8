"""From a part of the outbox to the pieces that are sent for it: what platforms share.

The pieces of a part depend only on the part and the settings, because after a crash the delivery
goes on at the number of a piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from agentsup.catalogue import LocalizedTexts, words
from agentsup.channels.core.files.upload import UploadFile, attached, unreadable
from agentsup.channels.core.sending import cards
from agentsup.channels.core.sending.deliver import DeliverySettings
from agentsup.channels.text.long import ON_LOOP_MAX_CHARS, as_file
from agentsup.kit.compute import compute
from agentsup.model.channel import OutboxPart

Piece = TypeVar("Piece")


class PieceMaker(ABC, Generic[Piece]):
    """Makes the pieces of one part; a platform says what a text and a file are sent as."""

    max_file_bytes: ClassVar[int]
    mark: ClassVar[str] = "/"
    """The character with which commands begin on the platform."""

    def __init__(self, part: OutboxPart, settings: DeliverySettings) -> None:
        self.part = part
        self.settings = settings
        self.language = str(part.body.get("language") or "")
        self.say = words(self.language)
        self.text = cards.text_of(
            part.kind,
            part.body,
            timezone=settings.timezone,
            language=self.language,
            mark=self.mark,
        )
        """The whole text of the part; of a repeat, with a note that it is one."""
        if "repeat_of" in part.body:
            self.text = f"{self.say('part.repeat')}\n\n{self.text}"

    # -- of the platform; all this is pure and may be called in a thread ---------------------------

    @abstractmethod
    def texts(self, text: str, *, is_plain: bool = False) -> list[Piece]:
        """Return Markdown, or with ``is_plain`` a plain text, as pieces; none if nothing is seen."""

    @abstractmethod
    def note(self, text: str) -> Piece:
        """Return a short plain text as one piece."""

    @abstractmethod
    def file(self, file: UploadFile, *, is_needed: bool = False) -> Piece:
        """Return a file without a text; ``is_needed``: no text may be sent in its place."""

    def with_text(self, file: UploadFile) -> list[Piece]:
        """Return the part's text and the file that belongs to it."""
        return [*self.texts(self.text), self.file(file)]

    def summarized(self, summary: str, file: UploadFile) -> list[Piece]:
        """Return the beginning of a long answer and the file that holds the answer."""
        return [self.note(summary), self.file(file)]

    # -- the pieces --------------------------------------------------------------------------------

    async def made(self) -> list[Piece]:
        """Return the pieces, at least one; made in a thread if the text is long.

        A file is looked at in the threads of the workspace. If the workspace fails, the pieces are
        those of the text and a note.
        """
        body, settings = self.part.body, self.settings
        if not body.get("path"):
            if len(self.text) <= ON_LOOP_MAX_CHARS:
                return self._without_path()
            return await compute(self._without_path, key=self.part.agent_id)
        try:
            return await settings.files.run(self._with_path, key=settings.workspace.parent.name)
        except OSError as error:
            file = UploadFile(None, str(body.get("name") or Path(str(body["path"])).name))
            texts = await compute(partial(self.texts, self.text), key=self.part.agent_id)
            return [*texts, self._not_sent(file, unreadable(error, self.say))]

    def _without_path(self) -> list[Piece]:
        kind, body = self.part.kind, self.part.body
        if kind == "answer" and not body.get("plain"):
            long = as_file(self.text, self.settings.long_as_file_pieces)
            if long is not None:
                return self.summarized(long.summary, UploadFile(None, long.name, long.data))
        texts = self.texts(self.text, is_plain=cards.is_plain(kind, body))
        texts = texts or [self.note(self.say("part.empty"))]
        above = cards.attached_text(body)
        return texts if above is None else [self.file(above, is_needed=True), *texts]

    def _with_path(self) -> list[Piece]:
        body, settings = self.part.body, self.settings
        file, why = attached(
            str(body["path"]),
            str(body.get("name") or ""),
            settings.workspace,
            max_bytes=self.max_file_bytes,
            say=self.say,
            files=settings.files,
        )
        return [*self.texts(self.text), self._not_sent(file, why)] if why else self.with_text(file)

    def _not_sent(self, file: UploadFile, why: str) -> Piece:
        return self.note(not_sent(file, why, self.say))


def not_sent(file: UploadFile, why: str, say: LocalizedTexts) -> str:
    """Return the text that replaces a file."""
    return say("file.not_sent", name=file.name, why=why)
