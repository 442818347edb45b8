"""The lowest package: time, randomness, tasks, processes, files and fault points.

Nothing here knows agents or messages, and nothing here imports another package of ours. Each kind
of effect is in one module only, so that all code above can run in virtual time and in simulation.
"""
