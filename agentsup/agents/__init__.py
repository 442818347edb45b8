"""Agents in their running form: stacks, turns, sessions, prompts, tools and chat commands."""
