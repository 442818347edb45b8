"""How much memory process groups use; blocks for some milliseconds."""

from __future__ import annotations

from collections import Counter

from agentsup.kit import proctable


def group_mib(pgids: set[int]) -> dict[int, int]:
    """MiB of memory of its own for each group with living members.

    Pages of files that several members map, such as the program itself, are not counted. Members
    are those of the group and of its session.
    """
    used: Counter[int] = Counter()
    for row in proctable.table():
        pgid = row.pgid if row.pgid in pgids else row.session
        if pgid in pgids and row.is_alive:
            used[pgid] += proctable.private_bytes(row.pid)
    return {pgid: size // (1024 * 1024) for pgid, size in used.items()}
