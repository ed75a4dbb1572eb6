"""`python -m liftbridge_aio`: the command line of the package."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
