"""Live display of a running turn: rate limits, streams, waiting notes."""
