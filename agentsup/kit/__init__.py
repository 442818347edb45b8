"""Ground floor: time, chance, tasks, processes, files and fault points.

Nothing here knows agents or messages, and nothing here imports another package of ours.
Each module is the only door to one kind of effect, so that everything above it can run in
virtual time and in simulation.
"""
