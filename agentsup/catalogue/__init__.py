"""The texts that people read, by language: one TOML file each, all with the same keys.

Offers: ``words`` (the texts of a language), ``page_words`` (those of the page), ``Note``.
Entry: ``words(language)("table.key", name=value)``.
Owns: no tables.
Never: knows what a text is about, or imports ``model``.
"""

from __future__ import annotations

from agentsup.catalogue.texts import (
    ENGLISH,
    Catalogue,
    LocalizedTexts,
    Note,
    load,
    page_words,
    words,
)

__all__ = ["ENGLISH", "Catalogue", "LocalizedTexts", "Note", "load", "page_words", "words"]
