"""The command line: one file per noun, put together here.

What a program may read goes to stdout, words for people go to stderr. Exit codes: 0 done, 1 it
failed (one line on stderr says why), 2 wrong usage, 130 interrupted, 141 nobody reads the output.
Commands import the client and the broker when they run, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum

from cyclopts import App, CycloptsError

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError

from . import bench, cursor, groups, partitions, pipeline, streams
from .arguments import BadArgument
from .broker import broker
from .demo import demo
from .failures import failure_line
from .metadata import metadata
from .output import say
from .publish import publish
from .subscribe import subscribe
from .tail import tail


class ExitCode(IntEnum):
    """What the process says when it ends; the last two as shells do, 128 plus the signal."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141


app = App(
    name="liftbridge-aio",
    help="Publish to, read from and look after Liftbridge; or try it on the embedded broker.",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(demo)
app.command(broker)
app.command(publish)
app.command(subscribe)
app.command(tail)
app.command(streams.app)
app.command(partitions.app)
app.command(groups.app)
app.command(cursor.app)
app.command(metadata)
app.command(bench.app)
app.command(pipeline.app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after the program's name; None takes those of the process.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = app(words, exit_on_error=False)
        sys.stdout.flush()
    except CycloptsError:  # cyclopts has said so itself
        return ExitCode.USAGE
    except (BadArgument, InvalidRequest) as error:
        _say_error(error)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except (LiftbridgeError, OSError) as error:
        _say_error(error)
        return ExitCode.FAILED
    return result if isinstance(result, int) else ExitCode.DONE


def _say_error(error: Exception) -> None:
    say(f"error: {failure_line(error)}")
