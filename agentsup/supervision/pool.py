"""Children that come and go by key, each on its own: agents, channels, members."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Conflict, NotFound
from agentsup.supervision.board import Board
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.spec import ChildSpec, Grace

__all__ = ["Pool"]


class Pool:
    """Keyed children; no request to one waits for another."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        board: Board,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        """Changes go to `board`; `on_exit(code)` hears of a significant child's end."""
        self._clock = clock
        self._entropy = entropy
        self._board = board
        self._on_exit = on_exit
        self._owner = TaskOwner("pool")
        self._children: dict[str, SupervisedChild] = {}

    @property
    def children(self) -> Mapping[str, SupervisedChild]:
        """The children by id, running or not."""
        return MappingProxyType(self._children)

    def get(self, child_id: str) -> SupervisedChild:
        """The child `child_id`; raises `NotFound`."""
        child = self._children.get(child_id)
        if child is None:
            raise NotFound(f"there is no {child_id}", child_id=child_id)
        return child

    def add(self, spec: ChildSpec) -> SupervisedChild:
        """Take in a child without starting it; raises `Conflict` if its id is taken."""
        if spec.child_id in self._children:
            raise Conflict(f"{spec.child_id} exists already", child_id=spec.child_id)
        child = SupervisedChild(
            spec,
            clock=self._clock,
            entropy=self._entropy,
            record=self._board.record,
            on_exit=self._on_exit,
        )
        self._children[spec.child_id] = child
        self._board.record(child.status)
        return child

    def start(self, spec: ChildSpec) -> SupervisedChild:
        """Add a child, or take a changed spec of one that exists, and have it up."""
        child = self._children.get(spec.child_id)
        if child is None:
            child = self.add(spec)
        else:
            child.replace(spec)
        child.start()
        return child

    def replace(self, spec: ChildSpec) -> SupervisedChild:
        """Take a changed spec: a running child is drained and rebuilt, a stopped one stays so."""
        child = self.get(spec.child_id)
        child.replace(spec)
        return child

    async def stop(self, child_id: str, grace: Grace | None = None) -> None:
        """Have one child down, within `grace` (default: that of its spec)."""
        await self.get(child_id).stop(grace)

    async def restart(self, child_id: str, grace: Grace | None = None) -> None:
        """Stop one child's life and wait until the next has begun."""
        await self.get(child_id).restart(grace)

    async def remove(self, child_id: str, grace: Grace | None = None) -> None:
        """Stop one child and forget it."""
        child = self.get(child_id)
        await child.stop(grace)
        if self._children.get(child_id) is child:
            del self._children[child_id]
            self._board.forget(child_id)

    async def stop_all(self, grace: Grace | None = None) -> None:
        """Have every child down; takes as long as the slowest, because none waits for another."""
        stops = {
            self._owner.spawn(child.stop(grace), name=f"stop:{child_id}")
            for child_id, child in self._children.items()
        }
        if stops:
            await asyncio.wait(stops)
