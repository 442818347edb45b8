"""The texts that people read, by language: one TOML file each, all with the same keys."""

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
