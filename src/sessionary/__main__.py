"""`python -m sessionary` is `sessionary`."""

import sys

from sessionary.cli import main

if __name__ == "__main__":
    sys.exit(main())
