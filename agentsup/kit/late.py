"""A reference to a part that is built later than the parts that use it."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """Breaks a real cycle between parts: one of them gets this, and calls it while it works.

    It is set once, when the other part is built. Calling it earlier is a defect of the order in
    which parts are built, and raises.
    """

    __slots__ = ("_name", "_values")

    def __init__(self, name: str) -> None:
        """``name`` says in errors what is missing."""
        self._name = name
        self._values: tuple[T, ...] = ()

    def set(self, value: T) -> None:
        """Give the part. Raises ``RuntimeError`` if it was given before."""
        if self._values:
            raise RuntimeError(f"{self._name} is built twice")
        self._values = (value,)

    def __call__(self) -> T:
        """The part. Raises ``RuntimeError`` before it is built."""
        if not self._values:
            raise RuntimeError(f"{self._name} is used before it is built")
        return self._values[0]
