"""The OpenAI-compatible front: any client of that API may talk to an agent."""
