"""Sessions: whose turns a session has, and the handler that runs them."""
