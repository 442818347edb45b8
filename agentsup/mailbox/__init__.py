"""Messages from acceptance to their one end: queues, leases, questions, stops, delivery."""
