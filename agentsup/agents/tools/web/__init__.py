"""The ``web_fetch`` tool, and which addresses it may open."""
