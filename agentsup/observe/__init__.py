"""What people and programs can see of the running daemon: live text, logs and metrics."""
