"""Channels: where people talk. Thin: inbox in, outbox out."""
