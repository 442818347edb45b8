"""What an agent remembers beyond a session, and what becomes of a session that grows too long."""
