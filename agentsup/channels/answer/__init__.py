"""The way from an engine's Markdown to what a channel sends: parse, lay out, split.

Pure functions over values. Nothing is lost and nothing doubled on the way (P1, P2 as far as the
text of an answer goes): pieces of an answer put together are the answer.
"""
