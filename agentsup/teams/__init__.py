"""Who works together, and who is given what."""
