"""How commands print: tables, facts, JSON, options that all share."""
