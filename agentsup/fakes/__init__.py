"""Strict stand-ins for services of others and for chance, for the demo and for tests.

Offers: a Telegram server with people who write to bots, a clock and chance that tests set.
Entry: ``telegram``.
Owns: no tables.
Never: is imported by the product, but for the demo.
"""
