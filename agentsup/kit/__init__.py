"""The lowest package: time, randomness, tasks, processes, files and fault points.

Offers: one module for each kind of effect, so that all code above can run in virtual time.
Entry: import from its modules; all are public.
Owns: no table.
Never: knows agents or messages, or imports another package of ours.
"""
