"""Output of commands: tables, facts, JSON, options that all share."""
