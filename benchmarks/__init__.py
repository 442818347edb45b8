"""What agentsup costs, each figure beside its raw cost in the same run (``python -m benchmarks``).

A module here has one coroutine, ``measure(ground)``, which returns figures. It measures its raw cost
(the same work without agentsup: a bare commit, a bare listener, a bare import) in turns with the
thing itself, because the speed of a machine changes from minute to minute; the ratio is what
stays. Figures are medians unless their name says otherwise.
"""
