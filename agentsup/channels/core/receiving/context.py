"""Notices to people, and writes that wait for the store, for all code that handles input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.rows import ReceivedRow, SkipReason
from agentsup.kit.descriptors import is_shortage
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store import Tx, is_over

_STORE_PAUSE_S = 1.0


async def write_patiently(ctx: ReceiveDependencies, fn: Callable[[Tx], object], name: str) -> None:
    """Write ``fn``, and try again while the store is not available or overloaded.

    Raises ``StoreUnavailable`` once the store is closed.
    """
    while True:
        try:
            await ctx.database.write(fn, name=name)
        except (StoreUnavailable, Overloaded) as error:
            if is_over(error):
                raise
            await ctx.clock.sleep(_STORE_PAUSE_S)
        else:
            return


async def end_rows(
    ctx: ReceiveDependencies,
    rows: Sequence[ReceivedRow],
    name: str,
    *,
    notices: Mapping[str, str] | None = None,
    skip: SkipReason | None = None,
    why: str = "",
) -> None:
    """Mark rows as handled, or as skipped for a reason, in one write called ``name``.

    ``notices`` are texts for people by conversation; empty ones are left out. ``why`` is stored
    with skipped rows.
    """

    def step(tx: Tx) -> None:
        for conversation, text in (notices or {}).items():
            if text:
                ctx.notices.add_tx(tx, conversation, text)
        if skip is None:
            stored.done_tx(tx, rows)
        else:
            stored.skip_tx(tx, rows, skip, why)

    await write_patiently(ctx, step, f"{ctx.channel}.{name}")


def is_passing(error: Exception) -> bool:
    """Whether the error is temporary and not caused by the item, which is then tried again.

    Either the store is not available or overloaded, or the machine lacks descriptors or memory.
    """
    return isinstance(error, StoreUnavailable | Overloaded) or is_shortage(error)
