"""The commands. Each imports what it needs when it runs, so that a short one starts fast.

Offers: the program ``agentsup``.
Entry: ``main``; one module in ``commands`` for each noun.
Owns: no table; it reads the store itself only while no daemon runs.
Never: holds an object of a running daemon: it asks over HTTP.
"""
