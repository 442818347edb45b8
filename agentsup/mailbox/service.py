"""What the services of the mailbox share: their context, and methods that are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from agentsup.mailbox.messages.values import MailboxContext
from agentsup.store import Database, Reader, Tx

S = TypeVar("S", bound="Service")
P = ParamSpec("P")
T = TypeVar("T")
Awaited = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class Service:
    """One service of the mailbox. Used from one event loop."""

    def __init__(self, database: Database, context: MailboxContext) -> None:
        """``context`` is shared by all services of one mailbox."""
        self.database, self.context = database, context


def in_writer(
    name: str, *, urgent: bool = False, closing: bool = False
) -> Callable[[Callable[Concatenate[S, Tx, P], T]], Awaited[S, P, T]]:
    """Make of a method that gets a ``Tx`` one that runs in a write transaction of its own.

    Its callers give no transaction and await it. It is on the disk when the call returns (P1).
    ``name``, ``urgent`` and ``closing`` are those of ``Database.write``.
    """

    def decorate(step: Callable[Concatenate[S, Tx, P], T]) -> Awaited[S, P, T]:
        @wraps(step)
        async def run(service: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await service.database.write(
                lambda tx: step(service, tx, *args, **kwargs),
                name=name,
                urgent=urgent,
                closing=closing,
            )

        return run

    return decorate


def in_reader(
    name: str,
) -> Callable[[Callable[Concatenate[S, Reader, P], T]], Awaited[S, P, T]]:
    """As ``in_writer``, for a method that only reads."""

    def decorate(look: Callable[Concatenate[S, Reader, P], T]) -> Awaited[S, P, T]:
        @wraps(look)
        async def run(service: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await service.database.read(
                lambda reader: look(service, reader, *args, **kwargs), name=name
            )

        return run

    return decorate
