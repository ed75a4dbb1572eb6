"""The command line: one file per noun, assembled here.

Output for programs goes to stdout, messages for people go to stderr. Exit codes: 0 success, 1
failure (one line on stderr says why), 2 wrong usage, 130 interrupted, 141 nobody reads the output.
Commands import the client and the broker when they run, so that help is fast.

- `arguments`: Parse arguments: positions, durations, headers.
- `bench`: `liftbridge-aio bench`: measure how fast servers ack and deliver messages.
- `bridge`: `liftbridge-aio bridge`: copy between Liftbridge and NATS Streaming or NSQ.
- `broker`: `liftbridge-aio broker`: run the embedded broker.
- `connection`: Flags that all commands for servers share, and the client that they configure.
- `console`: Tables, figures and checks printed with rich. Imported only by commands that print
  them.
- `cursor`: `liftbridge-aio cursor`: positions that are stored in servers.
- `demo`: `liftbridge-aio demo`: show that the client loses nothing when connections break.
- `doctor`: `liftbridge-aio doctor`: find what is wrong with a cluster, or with the way to it.
- `gateway`: `liftbridge-aio gateway`: serve Durable Streams over HTTP from Liftbridge.
- `group_overview`: Find consumer groups in the internal streams of servers, and show them.
- `group_positions`: Positions of consumer groups: fetch them with their lag, resolve and store new
  ones.
- `groups`: `liftbridge-aio groups`: show members and positions of consumer groups, and move
  positions.
- `internal_streams`: Read the internal streams of servers: ids of cursors, and members of consumer
  groups.
- `messages`: Format messages, and search them.
- `metadata`: `liftbridge-aio metadata`: show brokers and streams, and ping each broker.
- `output`: Write output: JSON, lines or tables to stdout, messages for people to stderr.
- `partition_states`: Fetch the state of partitions from their leaders, also if some do not answer.
- `partitions`: `liftbridge-aio partitions`: show single partitions of streams and change them.
- `pipeline`: `liftbridge-aio pipeline`: run pipelines on Spark, which starts and ends with the
  command.
- `pipeline_replay`: Run a replay for a command: part after part, with progress, until its end or a
  signal.
- `pipeline_runs`: Run streaming queries for a command: Spark, progress, warnings, and the way to
  their end.
- `publish`: `liftbridge-aio publish`: publish messages from the command line, stdin or a file.
- `queue`: `liftbridge-aio queue`: show what queues have not settled, and requeue dead letters.
- `reading`: Write messages as `--format` or `--json` wants them, and read on through outages.
- `running`: Run the coroutine of a command, and end it by a signal or when nobody reads its
  output.
- `streams`: `liftbridge-aio streams`: create, show, change and delete streams.
- `subscribe`: `liftbridge-aio subscribe`: write the messages of a partition, one line each.
- `tail`: `liftbridge-aio tail`: write the messages of all partitions of a stream, one line each.
- `transactions`: `liftbridge-aio transactions`: show open transactions, and roll back abandoned
  ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum

from cyclopts import App, CycloptsError, UnknownOptionError

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError

from . import bench, cursor, groups, partitions, pipeline, queue, streams, transactions
from .arguments import BadArgument
from .bridge import bridge
from .broker import broker
from .connection import connection_behind_command
from .demo import demo
from .doctor import doctor
from .gateway import gateway
from .metadata import metadata
from .output import failure_line, prepare_output, say
from .publish import publish
from .subscribe import subscribe
from .tail import tail


class ExitCode(IntEnum):
    """Exit codes of the process; the last two are 128 plus the signal, as in shells."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141


app = App(
    name="liftbridge-aio",
    help="Publish to, read from and administer Liftbridge; or try it on the embedded broker.",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
    version_flags=("--version", "-V"),
)
app.command(demo)
app.command(broker)
app.command(publish, usage="Usage: liftbridge-aio publish [OPTIONS] STREAM [VALUES...]")
app.command(subscribe)
app.command(tail)
app.command(streams.app)
app.command(partitions.app)
app.command(groups.app)
app.command(queue.app)
app.command(cursor.app)
app.command(transactions.app)
app.command(metadata)
app.command(doctor)
app.command(gateway)
app.command(bridge)
app.command(bench.app)
app.command(pipeline.app)
app.register_install_completion_command(help="Install completion for the shell in use.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after the program's name; None: those of the process.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        prepare_output()
        result = app(connection_behind_command(app, words), exit_on_error=False)
        sys.stdout.flush()
    except CycloptsError as error:  # cyclopts has printed it
        if isinstance(error, UnknownOptionError) and "publish" in (error.command_chain or ()):
            option = error.token.keyword or error.token.value
            if not option.startswith("--"):
                say("a value that begins with - goes behind --, as in: publish jobs -- -x")
        return ExitCode.USAGE
    except (BadArgument, InvalidRequest) as error:
        _say_error(error)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except SystemExit as end:  # rich raises it for a BrokenPipeError while cyclopts prints help
        if isinstance(end.__context__, BrokenPipeError):
            return ExitCode.BROKEN_PIPE
        raise
    except (LiftbridgeError, OSError) as error:
        _say_error(error)
        return ExitCode.FAILED
    return result if isinstance(result, int) else ExitCode.DONE


def _say_error(error: Exception) -> None:
    say(f"error: {failure_line(error)}")
