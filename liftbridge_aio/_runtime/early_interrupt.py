"""Ctrl-C while the command line is being imported ends the process at once, with exit code 130.

An interrupted import can fail with a traceback, with another error than `KeyboardInterrupt`, or
leave modules half imported. The package imports this before anything that takes time. It does
nothing in programs that use the package as a library.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of shells for it: 128 plus the number of the signal."""


def _is_command_line() -> bool:
    """Return True while `liftbridge-aio` or `python -m liftbridge_aio` starts."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # while Python looks for the module
        return ["-m", "liftbridge_aio"] in map(list, itertools.pairwise(sys.orig_argv))
    return os.path.basename(program) in {"liftbridge-aio", "liftbridge-aio.exe"}  # noqa: PTH119 - pathlib takes time


_COMMAND_LINE: Final = _is_command_line()


def exit_when_interrupted() -> None:
    """Let Ctrl-C end the process, if it is the command line, until `raise_when_interrupted`."""
    _replace(signal.default_int_handler, _exit)


def raise_when_interrupted() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again."""
    _replace(_exit, signal.default_int_handler)


def _replace(current: object, handler: signal._HANDLER) -> None:
    # Other handlers stay, such as that of a shell which ignores the signal in the background.
    if _COMMAND_LINE and signal.getsignal(signal.SIGINT) is current:
        signal.signal(signal.SIGINT, handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


exit_when_interrupted()
