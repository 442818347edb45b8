"""The text that a turn begins with: profile, prompt, notes about delegation, and the context of the
agent."""
