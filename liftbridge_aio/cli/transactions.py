"""`liftbridge-aio transactions`: show open transactions, and roll back abandoned ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import UUID_HEADER, StartAt, StopAt

from .arguments import BadArgument, parse_start
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, Integers, StreamName
from .messages import message_line
from .output import failure_line, moment, say, write_json, write_table
from .partition_states import fetch_streams
from .reading import OnMalformedFlag, message_writer
from .running import CLIENT, TABLES, in_event_loop, while_output_is_read

if TYPE_CHECKING:
    from liftbridge_aio.transactions import CheckpointStream, Explanation, OpenSpan
    from liftbridge_aio.transactions.reading import OnMalformed

app = App(
    name="transactions",
    help="Show open transactions, whose messages committed readings do not show, and roll them "
    "back.",
)

Partitions = Annotated[
    Integers,
    Parameter(negative="", show_default=False, help="Only this partition; may be repeated."),
]
Begin = Annotated[
    str,
    Parameter(
        name="--from",
        allow_leading_hyphen=True,
        help="Where to begin to look, in each partition: earliest, an offset, a time, or -10m for "
        "ago. What began before is not found.",
    ),
]
ProducerId = Annotated[str, Parameter(help="Id of the producer, as `transactions list` shows it.")]


@app.command(name="list")
@in_event_loop(*CLIENT, *TABLES, "liftbridge_aio.transactions")
async def list_transactions(
    stream: StreamName,
    /,
    *,
    partition: Partitions = (),
    begin: Begin = "earliest",
    on_malformed: OnMalformedFlag = "error",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """List the open transactions of a stream: why a committed reading shows nothing.

    Reads the partitions to their ends. Age is the time since the first message, idle that since
    the newest one.

    For example:

        liftbridge-aio transactions list orders
        liftbridge-aio transactions list orders --partition 1 --from -1h --json
    """
    start = parse_start(begin)
    async with connection.client() as client:
        found = await _explain(client, stream, partition, start, on_malformed)
    if as_json:
        write_json([_as_json(each, span) for each in found for span in each.open])
        return
    for each in found:
        if each.malformed:
            say(f"partition {each.partition}: malformed acks were skipped ({each.malformed})")
        if each.paused:
            say(f"partition {each.partition} is paused; it was not read")
        elif each.high_watermark < each.newest_offset:
            say(
                f"partition {each.partition}: the server has not committed the messages from offset"
                f" {each.high_watermark + 1} on yet"
            )
    rows = [
        (
            span.partition,
            span.producer.hex(),
            f"{span.begin}-{span.newest}",
            span.messages,
            f"{each.age(span):.0f} s",
            f"{each.idle(span):.0f} s",
            moment(span.began),
        )
        for each in found
        for span in each.open
    ]
    columns = ("Partition", "Producer", "Offsets", "Messages", "Age", "Idle", "Began")
    write_table(f"Open transactions of {stream}", columns, rows, ("Began",))


@app.command
@in_event_loop(*CLIENT, "liftbridge_aio.transactions")
async def show(
    stream: StreamName,
    producer: ProducerId,
    /,
    *,
    partition: Partitions = (),
    begin: Begin = "earliest",
    on_malformed: OnMalformedFlag = "error",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Write the messages of an open transaction, one line each, as `tail` does.

    For example:

        liftbridge-aio transactions show orders 0170726f6441
        liftbridge-aio transactions show orders 0170726f6441 --json
    """
    wanted = _producer(producer)
    start = parse_start(begin)
    write = message_writer(None, as_json=as_json, line=partial(message_line, headers=False))
    async with while_output_is_read(), connection.client() as client:
        found = await _explain(client, stream, partition, start, on_malformed)
        for span in _of(found, wanted, stream):
            start_at, stop = StartAt.offset(span.begin), StopAt.offset(span.newest)
            async with client.read(
                stream, partition=span.partition, start=start_at, stop=stop
            ) as messages:
                async for batch in messages.batches():
                    write(
                        message
                        for message in batch
                        if message.transaction_headers.get(UUID_HEADER, b"").endswith(wanted)
                    )


@app.command
@in_event_loop(*CLIENT, "liftbridge_aio.transactions")
async def abort(
    stream: StreamName,
    producer: ProducerId,
    /,
    *,
    partition: Partitions = (),
    begin: Begin = "earliest",
    on_malformed: OnMalformedFlag = "error",
    force: Annotated[
        bool,
        Parameter(negative="", help="Also where its newest message is less than a minute old."),
    ] = False,
    name: Annotated[
        str | None, Parameter(help="Name of the producer, if it has a store; needs --store.")
    ] = None,
    store: Annotated[
        str | None, Parameter(help="Prefix of the store of the producer, see CheckpointStream.")
    ] = None,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Roll back what a dead producer left open in a stream, for good.

    One that lives after all is not told: its commit succeeds, and shows nothing. So this is refused
    while the newest message is less than a minute old, unless --force is given. Other streams of
    the transaction need commands of their own. With --name and --store the producer is fenced off
    first, and learns of it: what it has committed in its store is committed, the rest rolled back.

    For example:

        liftbridge-aio transactions abort orders 0170726f6441
        liftbridge-aio transactions abort orders 0170726f6441 --partition 1 --force
        liftbridge-aio transactions abort orders 0170726f6441 --name invoicer --store checkpoints
    """
    if (name is None) is not (store is None):
        raise BadArgument("--name and --store go together")
    from liftbridge_aio.transactions import CheckpointStream  # noqa: PLC0415 (help must not wait)
    from liftbridge_aio.transactions.explain import check_idle  # noqa: PLC0415 (as above)

    wanted = _producer(producer)
    start = parse_start(begin)
    async with connection.client() as client:
        found = await _explain(client, stream, partition, start, on_malformed)
        spans = _of(found, wanted, stream)
        if name is not None and store is not None:
            for span in spans:
                check_idle(span, force=force)
            await _fence_off(client, name, CheckpointStream(store))
            found = await _explain(client, stream, partition, start, on_malformed)
            spans = [span for each in found for span in each.open if span.producer == wanted]
            force = True  # it is fenced
        failures = []
        for span in spans:
            try:
                await client.abort_transaction(span, force=force)
            except LiftbridgeError as error:
                failures.append(error)
                continue
            if not as_json:
                say(f"rolled back {_counted(span.messages)} of {stream}[{span.partition}]")
        for failure in failures[:-1]:
            say(f"error: {failure_line(failure)}")
        if failures:
            raise failures[-1]
    if as_json:
        write_json([_as_json(each, span) for each in found for span in each.open if span in spans])


async def _fence_off(client: Client, name: str, store: CheckpointStream) -> None:
    stream = store.stream_of(name)
    if stream not in (await client.fetch_metadata()).streams:
        raise BadArgument(f"the producer {name!r} has no such store: there is no stream {stream}")
    async with client.producer(name, store=store):
        say(f"fenced off the producer {name!r}, and finished what it has left")


def _producer(text: str) -> bytes:
    try:
        producer = bytes.fromhex(text)
    except ValueError:
        producer = b""
    if len(producer) != 6:
        raise BadArgument(f"a producer id has 12 hexadecimal digits, unlike {text!r}")
    return producer


def _counted(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"


async def _explain(
    client: Client,
    stream: str,
    partitions: tuple[int, ...],
    start: StartAt,
    on_malformed: OnMalformed,
) -> list[Explanation]:
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)

    [info] = await fetch_streams(client, [stream])
    chosen = dict.fromkeys(partitions) or sorted(info.partitions)

    async def explain(number: int) -> Explanation:
        return await client.explain(stream, number, start, on_malformed=on_malformed)

    return await bounded_gather(chosen, explain)


def _of(found: list[Explanation], producer: bytes, stream: str) -> list[OpenSpan]:
    spans = [span for each in found for span in each.open if span.producer == producer]
    if not spans:
        raise BadArgument(f"producer {producer.hex()} has no open transaction in {stream}")
    return spans


def _as_json(explanation: Explanation, span: OpenSpan) -> dict[str, Any]:
    return {
        "stream": span.stream,
        "partition": span.partition,
        "producer": span.producer.hex(),
        "begin": span.begin,
        "newest": span.newest,
        "messages": span.messages,
        "began": span.began,
        "latest": span.latest,
        "age": round(explanation.age(span), 3),
        "idle": round(explanation.idle(span), 3),
    }
