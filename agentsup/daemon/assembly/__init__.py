"""The composition root: which objects there are and what each is given."""
