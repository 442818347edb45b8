"""`python -m agentsup` is the command `agentsup`."""

from agentsup.cli.main import main

if __name__ == "__main__":
    main()
