"""`python -m minispec COMMAND`: see minispec/cli."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
