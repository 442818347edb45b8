"""Fast import of modules: without garbage collection, because imports make almost no garbage, and
without parts of libraries that nothing here uses."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

YOUNG_OBJECTS: Final = 2000
"""The collector looks at young objects when there are so many new ones, as in Python 3.14. To look at
them takes half a millisecond, during which the loop stands still."""
OLD_ROUNDS: Final = 20
"""It looks at all objects that are not frozen after so many rounds over the younger ones. With 500
agents that takes 30 ms."""


@contextmanager
def loading() -> Iterator[None]:
    """Import modules inside the block without the cycle collector, which would traverse them again
    and again. At the end all objects are frozen, and never traversed again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def settled() -> None:
    """Prepare the cycle collector for a long life, when everything is loaded.

    What is there is frozen. Turns at work hold some thousand objects, of which hardly any become
    garbage in cycles; at the lower threshold of older Pythons the collector would traverse them
    again and again.
    """
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(max(young, YOUNG_OBJECTS), middle, max(old, OLD_ROUNDS))


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Let ``import name`` fail inside the block, for a library that takes it only if it is there.

    Nothing is hidden if the module is loaded already.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how Python marks what can't be imported
    try:
        yield
    finally:
        del sys.modules[name]


class _LateName:
    """A function, class or value of a late module, which runs when this is called or asked for an
    attribute."""

    __slots__ = ("__module", "__name")

    def __init__(self, module: ModuleType, name: str) -> None:
        self.__module, self.__name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__own()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__own(), name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.__own(),)  # a base class

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.__own())

    def __own(self) -> Any:
        if self.__name not in vars(self.__module):
            _run(self.__module)
        return vars(self.__module)[self.__name]


class _LateModule(ModuleType):
    """A module, or the ``__init__`` of a package, that has not run yet."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__" and (version := _version(self)):
            return version  # modules of the package may ask for it
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if name in vars(self).get(_STAND_INS, ()):
            return _LateName(self, name)
        if hasattr(self, "__path__") and find_spec(f"{self.__name__}.{name}") is not None:
            return import_module(f"{self.__name__}.{name}")
        _run(self)
        if name in vars(self):
            return vars(self)[name]
        if (own := vars(self).get("__getattr__")) is not None:
            return own(name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _run(module: ModuleType) -> None:
    with _RUNNING:  # a second thread waits for the end of the first
        if not vars(module).get(_HAS_BEGUN):
            setattr(module, _HAS_BEGUN, True)
            assert module.__spec__ is not None
            assert module.__spec__.loader is not None
            module.__spec__.loader.exec_module(module)
            module.__class__ = ModuleType


def _version(package: ModuleType) -> str:
    """As it stands in the text; empty if it does not. To ask for the files of the package would load
    the reader of archives."""
    assert package.__spec__ is not None
    source = package.__spec__.loader.get_source(package.__name__)  # type: ignore[union-attr]  # of a file
    found = re.search(r"""^__version__ = ["'](.+)["']""", source, re.MULTILINE)
    return found[1] if found else ""


_RUNNING = RLock()
_HAS_BEGUN: Final = "_init_has_begun"
_STAND_INS: Final = "_given_late"


def late(name: str, *stand_ins: str) -> None:
    """Let the module ``name`` run at the first use of a name in it.

    For ``stand_ins``, ``from name import …`` is no use yet, but a call of what it gives is, or a
    look at an attribute. No error class can be one: what is caught must be the class itself.

    Of a package it is the ``__init__``, and a name that is no module of it: its modules can be
    imported without all that the ``__init__`` imports. What is loaded already stays as it is.
    Raises ``ImportError`` if it is not installed.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        raise ImportError(f"No module named {name!r}", name=name)
    package = module_from_spec(spec)
    package.__class__ = _LateModule
    setattr(package, _STAND_INS, stand_ins)
    sys.modules[name] = package
    above, _, own = name.rpartition(".")
    if above:
        setattr(sys.modules[above], own, package)
