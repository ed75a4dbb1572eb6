"""Options of a read and of a write, parsed from Spark's text and checked together. Pure.

All of them pickle.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from liftbridge_aio._core.arguments import INT32_MAX
from liftbridge_aio.model import AckPolicy, StreamPartition
from liftbridge_aio.spark.errors import InvalidOption

from .connection_options import ConnectionOptions
from .option_table import (
    BATCH_ONLY_NAMES,
    ENDING_NAMES,
    EXACTLY_ONCE_NAMES,
    SELECTION_NAMES,
    STARTING_NAMES,
    STRATEGY_NAME,
    STREAM_ONLY_NAMES,
    TARGET_NAMES,
    check_names,
    chosen,
    folded,
    one_of,
    seconds_above_zero,
    switch,
    time_span,
    warn,
    whole_number,
)
from .positions import (
    Edge,
    NoOffsetStrategy,
    Position,
    check_covers,
    check_order,
    mentions,
    places_of,
    read_position,
)
from .selection import Assigned, Selection, Streams, check_stream_name, read_selection

_ACK_POLICIES: Final = {"all": AckPolicy.ALL, "leader": AckPolicy.LEADER}
_BATCH_ROWS: Final = 8192
_MOST_TASKS: Final = 100_000
"""Upper limit for `minPartitions`; Spark cannot plan as many tasks."""
_READ_TIMEOUT: Final = 60.0
_TRIGGER_DELAY: Final = 15 * 60.0
_MAX_IN_FLIGHT: Final = 16_384
_PUBLISH_TIMEOUT: Final = 30.0
_ISOLATIONS: Final = {
    "read_committed": True,
    "read_uncommitted": False,
}
_STRATEGIES: Final = {strategy.value: strategy for strategy in NoOffsetStrategy}


class OnMalformed(enum.Enum):
    """What a committed reading does about a malformed ack of transactions."""

    ERROR = "error"
    SKIP = "skip"
    EMIT = "emit"
    """Show it as a row whose value is null, which no other row has."""


_ON_MALFORMED: Final = {policy.value: policy for policy in OnMalformed}


@dataclass(frozen=True, slots=True)
class ExtraColumns:
    """Optional columns besides key, value, topic, partition, offset and timestamp."""

    headers: bool = False
    """`headers array<struct<key string, value binary>>`."""
    subject: bool = False
    """`subject string`."""
    timestamp_nanos: bool = False
    """`timestampNanos bigint`."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse `includeHeaders`, `includeSubject` and `includeTimestampNanos`.

        Raises:
            InvalidOption: one is neither true nor false.
        """
        options = folded(options)
        return cls(
            headers=switch(options, "includeHeaders", default=False),
            subject=switch(options, "includeSubject", default=False),
            timestamp_nanos=switch(options, "includeTimestampNanos", default=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a batch or streaming query."""

    connection: ConnectionOptions
    selection: Selection
    starting: Position
    starting_strategy: NoOffsetStrategy = NoOffsetStrategy.ERROR
    """The behaviour if no message is as new as the start time."""
    ending: Position = Edge.LATEST
    """Batch queries only; the end itself is not read."""
    columns: ExtraColumns = ExtraColumns()
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    """Offsets that a micro-batch waits for, at most for `max_trigger_delay`."""
    max_trigger_delay: float = _TRIGGER_DELAY
    """Seconds since the last micro-batch after which the next one starts with what is available."""
    min_partitions: int | None = None
    """Least number of Spark partitions, as far as there are offsets to split."""
    max_records_per_partition: int | None = None
    """Most offsets of one Spark partition."""
    fail_on_data_loss: bool = True
    arrow_batch_rows: int = _BATCH_ROWS
    pushdown_filters: bool = False
    """Batch queries only."""
    committed: bool = True
    on_malformed: OnMalformed = OnMalformed.ERROR
    read_timeout: float = _READ_TIMEOUT
    """Seconds without a message after which reading a range fails."""
    positions_group: str | None = None
    """Streaming queries only: the consumer group whose positions show that of the query."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Parse and check the options of a query; warn of those that have no effect.

        Raises:
            InvalidOption: an option is missing, has an invalid value, or conflicts with another.
        """
        check_names(options, reading=True)
        options = folded(options)
        _check_mode(options, streaming=streaming)
        selection = _selection(options)
        starting = _starting(options, selection, streaming=streaming)
        ending = _ending(options, selection)
        check_order(starting, ending)
        read = cls(
            connection=ConnectionOptions.parse(options),
            selection=selection,
            starting=starting,
            starting_strategy=one_of(
                options, STRATEGY_NAME, _STRATEGIES, default=NoOffsetStrategy.ERROR
            ),
            ending=ending,
            columns=ExtraColumns.parse(options),
            max_offsets_per_trigger=whole_number(options, "maxOffsetsPerTrigger", default=None),
            max_bytes_per_trigger=whole_number(options, "maxBytesPerTrigger", default=None),
            min_offsets_per_trigger=whole_number(options, "minOffsetsPerTrigger", default=None),
            max_trigger_delay=time_span(options, "maxTriggerDelay", default=_TRIGGER_DELAY),
            min_partitions=whole_number(options, "minPartitions", default=None, most=_MOST_TASKS),
            max_records_per_partition=whole_number(options, "maxRecordsPerPartition", default=None),
            fail_on_data_loss=switch(options, "failOnDataLoss", default=True),
            arrow_batch_rows=whole_number(
                options, "arrowBatchRows", default=_BATCH_ROWS, most=INT32_MAX
            ),
            pushdown_filters=switch(options, "pushdownFilters", default=False),
            committed=one_of(options, "isolationLevel", _ISOLATIONS, default=True),
            on_malformed=one_of(options, "onMalformed", _ON_MALFORMED, default=OnMalformed.ERROR),
            read_timeout=seconds_above_zero(options, "readTimeout", default=_READ_TIMEOUT),
            positions_group=_group(options),
        )
        if streaming:
            _check_triggers(read, delayed="maxtriggerdelay" in options)
        return read


class Delivery(enum.Enum):
    """The guarantee about repeats of a row, if Spark runs a task or batch again."""

    AT_LEAST_ONCE = "at_least_once"
    """As often as it was published, at once."""
    EXACTLY_ONCE = "exactly_once"
    """Once, to committed readings, when the batch is committed."""


_DELIVERIES: Final = {delivery.value: delivery for delivery in Delivery}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write."""

    connection: ConnectionOptions
    stream: str | None = None
    """Overrides the column `stream` or `topic`. None: the column must exist."""
    ack_policy: AckPolicy = AckPolicy.ALL
    max_in_flight: int = _MAX_IN_FLIGHT
    """Most unacknowledged messages of one task."""
    publish_timeout: float = _PUBLISH_TIMEOUT
    """Seconds without an ack, or without a server at its start, after which a task fails."""
    include_write_id: bool = False
    """True to give each row a header that identifies its repeats; see `write_id`."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    decision_stream: str | None = None
    """The stream in which commits are decided; None: one named after the query."""
    write_id: str | None = None
    """Names a batch write, so that its re-run is recognised."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Parse and check the options of a write; warn of those that have no effect.

        Raises:
            InvalidOption: an option is missing, has an invalid value, or conflicts with another.
        """
        check_names(options, reading=False)
        options = folded(options)
        delivery = _delivery(options, streaming=streaming)
        return cls(
            connection=ConnectionOptions.parse(options),
            stream=_target(options),
            ack_policy=one_of(options, "ackPolicy", _ACK_POLICIES, default=AckPolicy.ALL),
            max_in_flight=whole_number(options, "maxInFlight", default=_MAX_IN_FLIGHT),
            publish_timeout=seconds_above_zero(options, "publishTimeout", default=_PUBLISH_TIMEOUT),
            include_write_id=switch(options, "includeWriteId", default=False),
            delivery=delivery,
            decision_stream=_decision_stream(options),
            write_id=options.get("writeid"),
        )


def _check_mode(options: Mapping[str, str], *, streaming: bool) -> None:
    if streaming:
        for name in BATCH_ONLY_NAMES:
            if name.lower() in options:
                raise InvalidOption(
                    f"{name} is for batch queries only; a streaming query cannot use it"
                )
    else:
        for name in STREAM_ONLY_NAMES:
            if name.lower() in options:
                warn(f"{name} is for streaming queries and has no effect in a batch query")


def _check_triggers(read: ReadOptions, *, delayed: bool) -> None:
    least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})"
        )
    if least is None and delayed:
        warn("maxTriggerDelay has no effect without minOffsetsPerTrigger")


def _selection(options: Mapping[str, str]) -> Selection:
    name = chosen(options, SELECTION_NAMES)
    if name is None:
        raise InvalidOption(
            "no option says what to read; set stream, subscribe, subscribePattern or assign"
        )
    return read_selection(name, options[name.lower()])


def _starting(options: Mapping[str, str], selection: Selection, *, streaming: bool) -> Position:
    name = chosen(options, STARTING_NAMES)
    if name is None:
        return Edge.LATEST if streaming else Edge.EARLIEST
    position = read_position(name, options[name.lower()])
    if not streaming and mentions(position, Edge.LATEST):
        raise InvalidOption(f"{name} is the latest offset, where a batch query would read nothing")
    _check_named(position, selection)
    return position


def _ending(options: Mapping[str, str], selection: Selection) -> Position:
    name = chosen(options, ENDING_NAMES)
    if name is None:
        return Edge.LATEST
    position = read_position(name, options[name.lower()])
    if mentions(position, Edge.EARLIEST):
        raise InvalidOption(f"{name} is the earliest offset, before which there is nothing to read")
    _check_named(position, selection)
    return position


def _check_named(position: Position, selection: Selection) -> None:
    """Check the partitions that a position names, as far as is possible without a server."""
    named = places_of(position)
    if named is None:
        return
    if isinstance(selection, Assigned):
        check_covers(position, selection.places)
    elif isinstance(selection, Streams):
        # One partition represents its stream, as their number is not known yet.
        check_covers(position, {place for place in named if place.stream in selection.names})
        missing = set(selection.names) - {place.stream for place in named}
        check_covers(position, {*named, *(StreamPartition(stream, 0) for stream in missing)})


def _delivery(options: Mapping[str, str], *, streaming: bool) -> Delivery:
    """Parse `delivery`, and check that the other options fit it."""
    delivery = one_of(options, "delivery", _DELIVERIES, default=Delivery.AT_LEAST_ONCE)
    exactly_once = delivery is Delivery.EXACTLY_ONCE
    for name in EXACTLY_ONCE_NAMES:
        if name.lower() in options and not exactly_once:
            raise InvalidOption(f"{name} has no effect without delivery=exactly_once")
    if "writeid" in options:
        if streaming:
            raise InvalidOption("writeId is for batch writes; Spark names streaming queries itself")
        if not options["writeid"].strip():
            raise InvalidOption("writeId is empty; give each batch write a name of its own")
    elif "decisionstream" in options and not streaming:
        raise InvalidOption("decisionStream has no effect on a batch write without writeId")
    if exactly_once and options.get("ackpolicy", "all").strip().lower() != "all":
        raise InvalidOption(
            "delivery=exactly_once needs ackPolicy=all: rows that only the leader has may be lost"
            " after they were committed"
        )
    return delivery


def _decision_stream(options: Mapping[str, str]) -> str | None:
    name = options.get("decisionstream")
    if name is not None:
        name = name.strip()
        check_stream_name("decisionStream", name)
    return name


def _group(options: Mapping[str, str]) -> str | None:
    group = options.get("positionsgroup")
    if group is not None and not group.strip():
        raise InvalidOption("positionsGroup is empty; name the group, or leave it out")
    return group


def _target(options: Mapping[str, str]) -> str | None:
    name = chosen(options, TARGET_NAMES)
    if name is None:
        return None
    stream = options[name.lower()].strip()
    check_stream_name(name, stream)
    return stream
