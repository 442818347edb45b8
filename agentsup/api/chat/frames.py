"""Frames that a chat client may send over ``/ws``, one JSON object per text frame."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Frame(BaseModel):
    """Exact types, no unknown members."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Hello(Frame):
    """The first frame: which conversation, and what of it was seen already."""

    type: Literal["hello"]
    agent: Annotated[str, Field(min_length=1, max_length=200)]
    conversation: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "local"
    channel: Literal["console", "web"] = "console"
    after: Annotated[int | None, Field(ge=0)] = None

    @property
    def key(self) -> str:
        """The conversation as events name it."""
        return f"{self.channel}:{self.conversation}"


class SayFile(Frame):
    """A file that was uploaded before; `name` is what its sender calls it."""

    path: Annotated[str, Field(min_length=1, max_length=300)]
    name: Annotated[str, Field(max_length=500)] = ""


class Say(Frame):
    """A text or a command. `id` is the client's own; said again with it, it counts once."""

    type: Literal["say"]
    id: Annotated[str, Field(min_length=1, max_length=100)]
    text: str
    files: Annotated[list[SayFile], Field(max_length=10)] = Field(default_factory=list)

    @property
    def digest(self) -> bytes:
        """A digest of the text, by which texts are compared."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()


class Ping(Frame):
    """Asks for a `pong`."""

    type: Literal["ping"]


Later = Annotated[Say | Ping, Field(discriminator="type")]
HELLO: Final[TypeAdapter[Hello]] = TypeAdapter(Hello)
LATER: Final[TypeAdapter[Say | Ping]] = TypeAdapter(Later)
