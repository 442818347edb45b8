"""Several waits of one call at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> list[T]:
    """The results of all, each a task of its name, in the order given.

    The first that fails cancels the others, and its error is raised as it is: what calls this
    decides by its type.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each, name=name) for name, each in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
