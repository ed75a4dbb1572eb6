"""Report of a script that shows a fault of the server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from .nodes import NotInTime
from .raw import Refused


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def show(one_try: Callable[[int], str], tries: int) -> NoReturn:
    """Try until it is seen, print what each try saw, and exit: 0 if the fault was shown, else 1.

    Args:
        one_try: Tries it once, given the number of the try; what was seen, or nothing.
        tries: How often at most.
    """
    for number in range(tries):
        try:
            seen = one_try(number)
        except (NotInTime, Refused) as error:
            tell(f"try {number}: came to nothing: {error}")
            continue
        tell(f"try {number}: {seen or 'not seen'}")
        if seen:
            sys.exit(0)
    sys.exit(1)
