"""`python -m hansard` is `hansard`."""

import sys

from hansard.cli import main

if __name__ == "__main__":
    sys.exit(main())
