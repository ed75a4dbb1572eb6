"""`python -m liftbridge_aio`: the command line of the package."""

import sys
from typing import Final

_INTERRUPTED: Final = 130  # as `cli.ExitCode`, which may not be there yet


def main() -> int:
    """Run the command line and return its exit code; Ctrl-C is quiet from here on.

    Before that, while the interpreter starts and imports the package, Ctrl-C is Python's own
    business: a traceback and death by the signal, which shells show as 130 too.
    """
    try:
        from .cli import main as run  # noqa: PLC0415 (Ctrl-C may come while this is imported)

        code = run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    # Where Ctrl-C struck in code made from text, as dataclasses make some while they are imported,
    # CPython would end the process by the signal although it was handled; this has it forget that.
    exec("")  # noqa: S102
    return code


if __name__ == "__main__":
    sys.exit(main())
