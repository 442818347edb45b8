"""Presses of buttons and typed answers to questions."""
