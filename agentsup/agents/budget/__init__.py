"""Budgets at work: which limits hold for a turn, its holds, and what people are told of them."""
