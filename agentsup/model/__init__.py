"""Frozen values, protocols and state tables that every other package uses. No I/O here.

Offers: messages, agents, principals, questions, tasks, errors; the interfaces between rings.
Entry: import from its modules; all are public.
Owns: the states of a message and which may follow which.
Never: does I/O, or imports asyncio.
"""
