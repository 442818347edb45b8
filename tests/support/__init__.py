"""The test kit: a simulated loop, a leak check and fakes. It may import anything.

Nothing but the tests and the demonstration command imports it. It imports nothing by itself: many
of its modules are programs that tests start over and over.
"""
