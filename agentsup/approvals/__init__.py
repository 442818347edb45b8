"""The human gate: which calls a person is asked about, and the leave people have given."""
