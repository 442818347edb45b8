"""A secret as written in a file; its text appears only where it is used. Serves P7."""

from __future__ import annotations

from typing import NoReturn, Self

from agentsup.model.errors import ConfigError

REDACTED = "***"


class Secret:
    """A secret as written: the value itself, or a reference ``env:NAME`` or ``file:PATH``.

    Its text never appears in ``str``, ``repr``, format strings or ``dataclasses.asdict``. A
    reference is resolved at use by ``config.secrets.resolve``, which returns a literal ``Secret``.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Wrap ``text`` as written in the file."""
        self._text = text

    @property
    def is_reference(self) -> bool:
        """Whether the text is a reference."""
        return self._text.startswith(("env:", "file:"))

    @property
    def shown(self) -> str:
        """The form that may be shown: a reference as written, a literal as ``***``."""
        return self._text if self.is_reference else REDACTED

    @property
    def written(self) -> str:
        """The text as written, reference or literal. For resolving and comparing; never shown."""
        return self._text

    def reveal(self) -> str:
        """The secret's value. Raises ``ConfigError`` for a reference that was not resolved."""
        if self.is_reference:
            raise ConfigError(
                f"the secret {self._text} is a reference and was not resolved",
                hint="resolve it with agentsup.config.secrets.resolve at the place of use",
            )
        return self._text

    def __eq__(self, other: object) -> bool:
        """Equal if the written text is equal."""
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        """Hash of the written text."""
        return hash(("secret", self._text))

    def __repr__(self) -> str:
        """Redacted."""
        return f"Secret({self.shown})"

    def __str__(self) -> str:
        """Redacted."""
        return self.shown

    def __format__(self, spec: str) -> str:
        """Redacted."""
        return format(self.shown, spec)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the secret itself: it is immutable."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a pickle would hold the text in clear."""
        raise TypeError("a Secret can't be pickled")
