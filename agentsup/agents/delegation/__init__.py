"""Handing work on: who may give what to whom, and how it is started, waited for and told."""
