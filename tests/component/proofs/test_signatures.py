"""A patch of something private, or one that can't be called as what it replaces, is found before any
proof runs with it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

from tests.component.proofs.proof import Proof, Removal, conduct
from tests.component.proofs.signatures import PrivateTarget, WrongSignature, check, check_patches


class Real:
    limit = 3

    def __init__(self) -> None: ...

    def _own(self) -> None: ...

    def plain(self, first: int, second: int = 0, *, third: int = 0) -> int:
        return first + second + third

    async def later(self, first: int) -> int:
        return first

    async def each(self) -> AsyncIterator[int]:
        yield 1

    @staticmethod
    def alone(first: int) -> int:
        return first

    @property
    def known(self) -> int:
        return 1


class _Hidden:
    limit = 3


async def _later(self: Any, first: int) -> int:
    return first


FITTING: dict[str, tuple[str, Any]] = {
    "anything": ("plain", lambda *args, **more: 0),
    "the same": ("plain", lambda self, first, second=0, *, third=0: 0),
    "more": ("plain", lambda self, first, second=0, *, third=0, fourth=0: 0),
    "another name for self": ("plain", lambda it, first, second=0, **more: 0),
    "a coroutine": ("later", _later),
    "a static method": ("alone", staticmethod(lambda first: 0)),
    "a value": ("limit", 4),
    "a property": ("known", property(lambda self: 2)),
}
WRONG: dict[str, tuple[str, Any]] = {
    "an argument too few": ("plain", lambda self, first, *, third=0: 0),
    "an argument too many": ("plain", lambda self, first, second, more, *, third=0: 0),
    "a default that is gone": ("plain", lambda self, first, second, *, third=0: 0),
    "no argument by name": ("plain", lambda self, first, second=0: 0),
    "another name": ("plain", lambda self, one, second=0, *, third=0: 0),
    "nothing to wait for": ("later", lambda self, first: 0),
    "something to wait for": ("plain", _later),
    "one instead of many": ("each", _later),
    "a method for a function": ("alone", lambda first: 0),
    "a method for a property": ("known", lambda self: 2),
}


@pytest.mark.parametrize("name, new", FITTING.values(), ids=FITTING)
def test_what_fits_is_taken(monkeypatch: pytest.MonkeyPatch, name: str, new: Any) -> None:
    check_patches(monkeypatch)
    monkeypatch.setattr(Real, name, new)
    assert vars(Real)[name] is new


@pytest.mark.parametrize("name, new", WRONG.values(), ids=WRONG)
def test_what_cannot_be_called_alike_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, new: Any
) -> None:
    check_patches(monkeypatch)
    with pytest.raises(WrongSignature, match=f"Real.{name}"):
        monkeypatch.setattr(Real, name, new)


@pytest.mark.parametrize(
    "target, name",
    [
        (Real, "_own"),
        (Real(), "_own"),
        (_Hidden, "limit"),
        (_Hidden(), "limit"),
        (sys.modules[__name__], "_later"),
        (ModuleType("agentsup._hidden"), "limit"),
    ],
    ids=("method", "method of an object", "class", "object", "function", "module"),
)
def test_what_is_private_is_refused(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str
) -> None:
    check_patches(monkeypatch)
    with pytest.raises(PrivateTarget, match=name):
        monkeypatch.setattr(target, name, None)


def test_a_constructor_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    check_patches(monkeypatch)
    monkeypatch.setattr(Real, "__init__", lambda self: None)


def test_a_function_of_a_module_has_no_self() -> None:
    def old(first: int) -> int:
        return first

    new: Callable[..., int] = lambda other: 0  # noqa: E731 - as patches are written
    with pytest.raises(WrongSignature):
        check(old, new, "module.old")


def test_no_proof_runs_with_a_patch_that_does_not_fit(tmp_path: Any) -> None:
    async def run(home: Any) -> None:
        Real().plain(1, 2)

    removal = Removal("wrong", lambda patch: patch.setattr(Real, "plain", lambda self: 0))
    proof = Proof("calls it", "P0", run, removal)
    conduct(proof, tmp_path)
    with pytest.raises(WrongSignature):
        conduct(proof, tmp_path, removal)
