"""Write messages as `--format` or `--json` wants them, and read on through outages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import Message
from liftbridge_aio.telemetry import Hook, Lost, Resubscribed

from .arguments import BadArgument
from .connection import ConnectionFlags
from .messages import Template, message_json
from .output import json_line, say, write_bytes, write_lines

if TYPE_CHECKING:
    from liftbridge_aio.transactions.reading import OnMalformed, ReadCommitted

Format = Annotated[
    str | None,
    Parameter(
        name="--format",
        help=r"Template instead of lines, as in kcat: %k key, %v value, %o offset, %h headers,"
        r" %p partition, %t stream, %T time in ms, %K and %V lengths; it ends no line itself: \n.",
    ),
]

CommittedFlag = Annotated[
    bool,
    Parameter(
        name="--committed",
        negative="",
        help="Only what transactions have committed, and each message of a producer once.",
    ),
]
Acks = Annotated[
    bool,
    Parameter(negative="", help="With --committed: acks of transactions too."),
]

OnMalformedFlag = Annotated[
    Literal["error", "skip"],
    Parameter(
        name="--on-malformed",
        help="What to do about a message that says that it is an ack of transactions, and cannot be"
        " read as one.",
    ),
]


def committed_of(
    committed: bool,
    *,
    acks: bool,
    on_malformed: OnMalformed,
) -> bool | ReadCommitted:
    """Return what `--committed`, `--acks` and `--on-malformed` ask for.

    Raises:
        BadArgument: acks are asked for where all messages are shown.
    """
    if not committed:
        if acks:
            raise BadArgument("--acks goes with --committed; all else shows them anyway")
        return False
    from liftbridge_aio.transactions.reading import ReadCommitted  # noqa: PLC0415 - help must not wait for it

    return ReadCommitted(acks=acks, on_malformed=on_malformed)


MessageWriter: TypeAlias = Callable[[Iterable[Message]], None]


def message_writer(
    template: str | None, *, as_json: bool, line: Callable[[Message], str]
) -> MessageWriter:
    """Return a function that writes messages to stdout and flushes.

    Args:
        template: of `--format`, whose fields are escaped only on a terminal.
        as_json: True to write a JSON object per message.
        line: formats a message otherwise.

    Raises:
        BadArgument: the template is invalid, or given with `as_json`.
    """
    if template is None:

        def show(message: Message) -> str:
            return json_line(message_json(message)) if as_json else line(message)

        return lambda messages: write_lines(map(show, messages))
    if as_json:
        raise BadArgument("--json and --format contradict each other; give only one of them")
    chosen = Template.parse(template)
    readably = sys.stdout.isatty()
    return lambda messages: write_bytes(
        b"".join(chosen.render(message, readably=readably) for message in messages)
    )


def reading_client(connection: ConnectionFlags) -> Client:
    """Return a client that reads on through outages and reports them on stderr.

    If the reading has no end, it waits for ever, unless `--timeout` or
    `LIFTBRIDGE_RESUBSCRIBE_TIMEOUT` limits it.

    Raises:
        BadArgument: an address or the timeout is invalid.
    """
    return connection.client(hook=_Outages())


class _Outages(Hook):
    """Report on stderr when reading stops and goes on."""

    def lost(self, event: Lost) -> None:
        if event.purpose == "subscribe":
            say(f"lost the connection to {event.address}: {event.reason}; trying again")

    def resubscribed(self, event: Resubscribed) -> None:
        place = f"{event.stream}/{event.partition}"
        where = "" if event.next_offset is None else f" at offset {event.next_offset}"
        say(f"reading {place} again{where}, from {event.address}, after {event.seconds:.1f} s")
