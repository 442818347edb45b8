"""What a turn does about a failure: which kind it is, what is tried next, on which model, and whether
a provider is left alone for a while. Decisions are pure; what was tried is on record."""
