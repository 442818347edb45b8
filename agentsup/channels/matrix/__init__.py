"""Matrix: agents as users of a homeserver, in rooms that are not encrypted."""
