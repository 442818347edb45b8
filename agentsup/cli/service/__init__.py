"""The daemon as a service of the machine: its file, and what installs it."""
