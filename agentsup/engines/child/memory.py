"""How much memory the programs of process groups use; blocks for some milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentsup.kit import proctable


def group_mib(members: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """MiB of memory of its own for each group, given the processes that belong to it.

    Pages of files that several of them map, such as the program itself, are not counted.
    """
    return {
        pgid: sum(map(proctable.private_bytes, pids)) // (1024 * 1024)
        for pgid, pids in members.items()
    }
