"""The ``exec`` tool: running a command, and the rules about which commands are refused or asked
about."""
