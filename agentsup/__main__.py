"""``python -m agentsup`` is the command ``agentsup``."""

from __future__ import annotations

from agentsup.cli.main import main

if __name__ == "__main__":
    main()
