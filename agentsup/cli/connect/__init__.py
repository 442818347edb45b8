"""How a command finds a daemon and talks to it."""
