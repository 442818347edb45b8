"""The commands. Each imports what it needs when it runs, so that a short one starts fast."""
