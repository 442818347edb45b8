"""Finding a daemon and talking to it."""
