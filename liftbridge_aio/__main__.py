"""`python -m liftbridge_aio`: the command line of the package."""

import sys
from typing import Final

_INTERRUPTED: Final = 130  # as `cli.ExitCode`, which may not be there yet


def main() -> int:
    """Run the command line and return its exit code; Ctrl-C is quiet from here on."""
    try:
        from .cli import main as run  # noqa: PLC0415 (Ctrl-C may come while this is imported)

        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
