"""What is shown while a turn runs: rate limits, streams, waiting notes."""
