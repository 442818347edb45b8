"""What channels say, by language: one TOML file each, English complete."""

from agentsup.channels.catalogue.texts import ENGLISH, Catalogue, load

__all__ = ["ENGLISH", "Catalogue", "load"]
