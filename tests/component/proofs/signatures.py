"""Whether a patch replaces something public, and can be called as what it replaces.

A call that fails for its arguments fails a turn, a restart or a request somewhere, which a proof may
well see as its promise broken though the mechanism was never missed. A private name may be renamed
or merged by whoever works on its module, who need not know of a proof.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class WrongSignature(Exception):
    """A patch takes other arguments than what it replaces, or is called in another way."""


class PrivateTarget(Exception):
    """A patch replaces what only its own module or class should name."""


def check_patches(patch: pytest.MonkeyPatch) -> None:
    """Have ``patch`` look at each thing that it sets from here on; it then raises
    ``PrivateTarget`` or ``WrongSignature``."""
    set_anything = patch.setattr

    def set_checked(target: Any, name: str, value: Any, raising: bool = True) -> None:
        what = f"{getattr(target, '__name__', target)}.{name}"
        check_public(target, name)
        check(inspect.getattr_static(target, name), value, what, is_method=isinstance(target, type))
        set_anything(target, name, value, raising)

    patch.setattr = set_checked  # type: ignore[method-assign, assignment]  # of this object, to its end


def check_public(target: Any, name: str) -> None:
    """Raise ``PrivateTarget`` if ``name``, or a part of the name of ``target``, is private.

    ``target`` is a module, a class or an object. A name like ``__init__`` is public.
    """
    owner = target if isinstance(target, type | ModuleType) else type(target)
    parts = [owner.__name__]
    if isinstance(owner, type):
        parts = [owner.__module__, owner.__qualname__]
    whole = ".".join([*parts, name])
    if any(part.startswith("_") and not part.endswith("__") for part in whole.split(".")):
        raise PrivateTarget(
            f"{whole} is private: replace a public function, method or constant, or a constructor's "
            "argument; or make public what others could use"
        )


def check(old: Any, new: Any, what: str, *, is_method: bool = False) -> None:
    """Raise ``WrongSignature`` unless ``new`` takes every call that ``old`` takes, in the same way.

    Args:
        old: what is there, as the class or module has it.
        new: what takes its place.
        what: how the exception names it.
        is_method: its first argument is ``self`` or the class, which no caller names.
    """
    if isinstance(old, property) or not callable(_function(old)):
        if isinstance(old, property) is not isinstance(new, property):
            raise WrongSignature(f"{what}: one is a property, the other none")
        return
    if is_method and _binding(old) is not _binding(new):
        raise WrongSignature(f"{what}: {_binding(old)} is replaced by {_binding(new)}")
    before, after = _function(old), _function(new)
    for kind in (inspect.iscoroutinefunction, inspect.isasyncgenfunction):
        if kind(before) is not kind(after):
            raise WrongSignature(f"{what}: only one of them is {kind.__name__[2:]}")
    is_bound = is_method and _binding(old) is not staticmethod and not isinstance(old, type)
    for args, named in _calls(inspect.signature(before), 1 if is_bound else 0):
        try:
            inspect.signature(after).bind(*args, **named)
        except TypeError as error:
            raise WrongSignature(
                f"{what}{inspect.signature(before)} is replaced by {inspect.signature(after)}: {error}"
            ) from None


def _calls(signature: inspect.Signature, bound: int) -> list[tuple[list[None], dict[str, None]]]:
    """How a function can be called: with all by position, with the fewest, and with all by name."""
    empty, of = inspect.Parameter.empty, inspect.Parameter
    known = signature.parameters.values()
    placed = [each for each in known if each.kind in (of.POSITIONAL_ONLY, of.POSITIONAL_OR_KEYWORD)]
    named = [each for each in known if each.kind is of.KEYWORD_ONLY]
    nameless = max(bound, sum(each.kind is of.POSITIONAL_ONLY for each in placed))
    few = [each for each in placed if each.default is empty]
    few_named = [each for each in named if each.default is empty]
    return [
        ([None] * len(placed), {each.name: None for each in named}),
        ([None] * len(few), {each.name: None for each in few_named}),
        ([None] * nameless, {each.name: None for each in (*placed[nameless:], *named)}),
    ]


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _binding(value: Any) -> type | Callable[..., Any] | None:
    return type(value) if isinstance(value, staticmethod | classmethod) else None
