"""What people wrote down: agents.json, config.toml and the environment, as immutable snapshots.

Import from the modules themselves: short commands need only `home`, which imports nothing heavy.
"""
