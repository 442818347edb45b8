"""What a proof is: real parts at work, one claim, and the mechanisms without which it must fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, NoReturn, TypeVar

import pytest

from tests.component.proofs.signatures import check_patches
from tests.support.simloop import VirtualLoop, run_virtual

T = TypeVar("T")
PATIENCE: Final = 6.0
"""Of a proof in real time with all its mechanisms."""


class Broken(AssertionError):
    """A promise was seen broken. Nothing but a proof raises it."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


@dataclass(frozen=True, slots=True)
class Removal:
    """A mechanism, and the patch that takes it out of the running code.

    It replaces public things; else ``conduct`` raises ``PrivateTarget``. What is patched in takes
    every call that what it replaces takes; else ``conduct`` raises ``WrongSignature``.
    """

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Proof:
    """``run(home)`` raises ``Broken`` when it sees the promise broken.

    It must return as it is, and raise ``Broken`` with ``removal`` applied.
    """

    name: str
    promise: str
    run: Callable[[Path], Awaitable[None]]
    removal: Removal
    is_real: bool = False
    """Needs real time: sockets, threads or child processes."""


class Claim:
    """How the proofs of one promise say that it is broken."""

    patience: ClassVar[float] = 1.0
    """How many times longer than the limits something may take."""

    def __init__(self, promise: str) -> None:
        self._promise = promise

    def broken(self, what: str) -> NoReturn:
        raise Broken(self._promise, what)

    def holds(self, is_so: object, what: str) -> None:
        """``what`` says what was seen if it is not so."""
        if not is_so:
            self.broken(what)

    async def within(self, limit_s: float, work: Awaitable[T], what: str) -> T:
        """The result of ``work``; its delay past ``limit_s`` breaks the promise."""
        limit_s *= self.patience
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except TimeoutError:
            self.broken(f"{what} (not within {limit_s:g} s)")

    async def comes(self, is_so: Callable[[], object], limit_s: float, what: str) -> None:
        """``is_so()`` becomes true within ``limit_s``, looked at a hundred times a second; in virtual
        time whenever something can have happened since."""
        loop = asyncio.get_running_loop()
        limit_s *= self.patience
        until_s = loop.time() + limit_s
        while not is_so():
            if loop.time() >= until_s:
                self.broken(f"{what} (not within {limit_s:g} s)")
            idle_s = loop.idle_s() if isinstance(loop, VirtualLoop) else 0.0
            await asyncio.sleep(max(0.01, min(idle_s, until_s - loop.time())))


def conduct(proof: Proof, home: Path, removal: Removal | None = None) -> None:
    """Run a proof to its end, with one mechanism taken out or with all of them in place.

    In real time all of them are given longer than the limits: the machine may be busy, and a proof is
    no measure of speed.
    """

    async def run() -> None:
        await proof.run(home)

    with pytest.MonkeyPatch.context() as patch:
        if removal is not None:
            check_patches(patch)
            removal.apply(patch)
        elif proof.is_real:
            patch.setattr(Claim, "patience", PATIENCE)
        if proof.is_real:
            asyncio.run(run())
        else:
            run_virtual(run())
