"""`python -m liftbridge_aio`: the command line of the package."""

import sys

from liftbridge_aio._runtime.early_interrupt import INTERRUPTED, raise_when_interrupted


def main() -> int:
    """Run the command line and return its exit code; Ctrl-C is quiet.

    It is so from the moment when Python imports the package; before that, while the interpreter
    starts, the signal ends the process, which shells show as 130 too.
    """
    try:
        from .cli import main as run  # noqa: PLC0415 (Ctrl-C may come while this is imported)

        raise_when_interrupted()
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    # Where Ctrl-C struck in code made from text, as dataclasses make some while they are imported,
    # CPython would end the process by the signal although it was handled; this has it forget that.
    exec("")  # noqa: S102
    return code


if __name__ == "__main__":
    sys.exit(main())
