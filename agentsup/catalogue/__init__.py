"""What people read, by language: one TOML file each, all with the same keys."""

from agentsup.catalogue.texts import ENGLISH, Catalogue, Words, load, page_words, words

__all__ = ["ENGLISH", "Catalogue", "Words", "load", "page_words", "words"]
